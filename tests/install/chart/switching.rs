//! From kustomize to the chart, with the commands of `docs/install.md`.

use super::*;

async fn uid(cluster: &ControlPlane, kind: &str, name: &str) -> String {
    let get = ["get", kind, name, "-n", MANAGER];
    let output = ["-o", "jsonpath={.metadata.uid}"];
    kubectl(cluster, &[&get[..], &output].concat()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_takes_over_what_kustomize_has_installed_and_a_tenant_is_served_as_before() {
    let (management, worker) = tokio::join!(a_cluster("management"), a_cluster("worker"));
    super::install(&management, "../../tests/install/webhooks").await;
    let process = start(&management, &[]).await;
    serves_a_tenant(&management, &worker, "berlin").await;
    drop(process);
    let kinds = [
        ("deployment", MANAGER),
        ("clusterrole", "operating-system-manager-tenants"),
        (
            "customresourcedefinition",
            "workerclusters.operatingsystemmanager.k8c.io",
        ),
    ];
    let mut before = Vec::new();
    for (kind, name) in kinds {
        before.push(uid(&management, kind, name).await);
    }
    let refused = ["install", "osm", "osm", "--namespace", MANAGER];
    let refused = helm(&management, &refused).await;
    let refused = refused.expect_err("the objects belong to no release");
    assert!(refused.contains("cannot be imported"), "{refused}");
    page::run(&management, "install.md", "### From kustomize to Helm").await;
    for ((kind, name), before) in kinds.into_iter().zip(&before) {
        assert_eq!(uid(&management, kind, name).await, *before, "{kind} {name}");
    }
    let upgrade = ["upgrade", "osm", "osm", "--namespace", MANAGER];
    let more = ["--set", "webhook.enabled=true,replicas=2"];
    let upgrade = [&upgrade[..], &more].concat();
    let refused = helm(&management, &upgrade).await;
    let refused = refused.expect_err("kubectl also owns what was equal");
    assert!(refused.contains("conflict with"), "{refused}");
    let done = helm(
        &management,
        &[&upgrade[..], &["--force-conflicts"]].concat(),
    )
    .await;
    done.expect("the field is Helm's");
    let again = [&upgrade[..], &["--set", "replicas=4"]].concat();
    helm(&management, &again).await.expect("it is Helm's alone");
    let spec = deployment(&management, MANAGER, MANAGER).await.spec;
    assert_eq!(spec.replicas, Some(4));
    let process = start(&management, &[]).await;
    let wait = [
        "wait",
        "workercluster/berlin",
        "-n",
        TENANT,
        "--timeout=60s",
    ];
    let ready = ["--for=condition=Ready"];
    kubectl(&management, &[&wait[..], &ready].concat()).await;
    drop(process);
}
