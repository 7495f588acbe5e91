//! A worker cluster that has no machine-controller yet.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_machine_deployments_is_registered_and_served_once_it_has_them() {
    let (management, worker) = tokio::join!(a_cluster("management"), a_cluster("worker"));
    install(&management, "base").await;
    let process = start(&management, &[]).await;
    let printed = add_the_tenant(&management, &worker, "berlin").await;
    let expected = "registered: tenant-berlin/berlin; the worker cluster has no \
                    MachineDeployments yet: install machine-controller";
    assert!(printed.contains(expected), "{printed}");
    kubectl(&worker, &["apply", "-f", &example("worker-crds")]).await;
    let established = ["wait", "--for=condition=established", "crd", "--all"];
    kubectl(&worker, &established).await;
    its_machine_deployment_is_served(&management, &worker, "berlin").await;
    drop(process);
}
