//! The commands of the page about clusters of Cluster API, and of the one about credentials.

use osm::api::names::REVISION;

use super::*;

const PAGE: &str = "cluster-api.md";
/// The namespace of the page.
const NAMESPACE: &str = "team-a";

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_served_with_the_commands_of_the_pages_about_other_secrets_and_tokens() {
    let (management, worker) = tokio::join!(a_cluster("management"), a_cluster("worker"));
    install(&management, "base").await;
    for part in ["worker-crds", "tenant-berlin/worker.yaml"] {
        kubectl(&worker, &["apply", "-f", &example(part)]).await;
    }
    // Without machine-controller, nobody else counts its revisions.
    let file = example("tenant-berlin/worker.yaml");
    let revision = format!("{REVISION}=1");
    kubectl(&worker, &["annotate", "-f", &file, &revision]).await;
    has_its_secret(&management, &worker).await;
    let look = page::blocks(PAGE, "## Look first").concat();
    // The last one ends with this code, because something would be written.
    let look = format!("{} || test $? -eq 3", look.trim_end());
    let looked = page::run_commands(&management, &look).await;
    for text in [
        "Waiting",
        "--inventory=cluster-api",
        "create WorkerCluster team-a/prod",
        "claim Namespace cloud-init-settings",
        "create Secret cloud-init-getter-token",
        "create RoleBinding cloud-init-getter",
        "create OperatingSystemProfile team-a/osp-ubuntu",
        "kube-system/berlin-workers: would be written",
    ] {
        assert!(looked.contains(text), "{text}: {looked}");
    }
    let process = start(&management, &["--inventory=label,cluster-api"]).await;
    // It is there soon, and kubectl waits for more only if it is.
    for wanted in ["--for=create", SERVED] {
        wait_for(&management, (NAMESPACE, "prod"), wanted).await;
    }
    // Its program deletes the Secret, and what follows is for the next page.
    let purge = "{\"spec\":{\"onRemoval\":\"Purge\"}}";
    let patch = ["patch", "workercluster", "prod", "-n", NAMESPACE];
    let patch = [&patch[..], &["--type=merge", "-p", purge]].concat();
    kubectl(&management, &patch).await;
    let secret = ["delete", "secret", "prod-kubeconfig", "-n", NAMESPACE];
    kubectl(&management, &secret).await;
    wait_for(&management, (NAMESPACE, "prod"), "--for=delete").await;

    let kubeconfig = management.folder().join("berlin-admin.kubeconfig");
    std::fs::write(&kubeconfig, worker.admin_kubeconfig()).expect("the folder is ours");
    let added = page::run(&management, "credentials.md", "## A token that expires").await;
    assert!(added.contains("ready: tenant-berlin/berlin"), "{added}");
    wait_for(&management, (TENANT, "berlin"), SERVED).await;
    let credentials = ["get", "workercluster", "berlin", "-n", TENANT, "-o"];
    let credentials = [&credentials[..], &["jsonpath={.spec.credentials}"]].concat();
    assert_eq!(kubectl(&management, &credentials).await, "Renewed");
    drop(process);
}

/// What Cluster API writes.
async fn has_its_secret(management: &ControlPlane, worker: &ControlPlane) {
    kubectl(management, &["create", "namespace", NAMESPACE]).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
        "metadata": { "name": "prod-kubeconfig", "namespace": NAMESPACE },
        "stringData": { "value": worker.admin_kubeconfig() },
    });
    let applied = management.apply_yaml(&secret.to_string()).await;
    applied.expect("it is applied");
}
