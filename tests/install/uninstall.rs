//! The way out, with the commands of `docs/uninstall.md`.

use super::*;

const PAGE: &str = "uninstall.md";

#[tokio::test(flavor = "multi_thread")]
async fn the_page_leaves_nothing_behind_and_a_worker_cluster_that_works() {
    let (management, worker) = tokio::join!(a_cluster("management"), a_cluster("worker"));
    make_the_tenants_namespaces(&management).await;
    page::run(&management, "install.md", "## With Helm").await;
    let process = start(&management, &[]).await;
    serves_a_tenant(&management, &worker, "berlin").await;

    let removed = page::run(&management, PAGE, "## The tenants").await;
    assert!(removed.contains("berlin"), "{removed}");
    let left = ["get", "namespace", "cloud-init-settings", "-o", "json"];
    let left = kubectl(&worker, &left).await;
    assert!(!left.contains("claimed-by"), "{left}");
    let documents = ["get", "secrets", "-n", "cloud-init-settings", "-o", "name"];
    let documents = kubectl(&worker, &documents).await;
    assert!(documents.contains("provisioning-config"), "{documents}");

    let kubeconfig = management.folder().join("worker.kubeconfig");
    std::fs::write(kubeconfig, worker.admin_kubeconfig()).expect("the folder is ours");
    page::run(&management, PAGE, "## The worker clusters").await;
    drop(process);
    let [with_helm, _] = page::blocks(PAGE, "## The manager")
        .try_into()
        .expect("it has two ways");
    page::run_commands(&management, &with_helm).await;
    page::run(&management, PAGE, "## The CRDs").await;

    let everything = ["get", "machinedeployments", "-A", "-o", "json"];
    let everything = kubectl(&worker, &everything).await;
    assert!(
        !everything.contains("kubermatic.io/cleanup"),
        "{everything}"
    );
    let delete = [
        "delete",
        "machinedeployment",
        "berlin-workers",
        "-n",
        "kube-system",
    ];
    kubectl(&worker, &[&delete[..], &["--timeout=30s"]].concat()).await;
    for (cluster, kinds) in [
        (&management, "crd,clusterrole,clusterrolebinding"),
        (
            &worker,
            "clusterrole,clusterrolebinding,serviceaccount,role,rolebinding",
        ),
    ] {
        let names = kubectl(cluster, &["get", kinds, "-A", "-o", "name"]).await;
        let mut ours = names
            .lines()
            .filter(|it| it.contains("operating-system-manager"));
        assert_eq!(ours.next(), None, "{names}");
        assert!(!names.contains("operatingsystem"), "{names}");
    }
    let leases = ["get", "leases", "-n", MANAGER, "-o", "name"];
    assert_eq!(kubectl(&management, &leases).await, "");
}
