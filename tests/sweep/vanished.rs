//! Machine deployments that vanished, or whose name another has taken: what was made for the one is
//! removed, and what was made for the other stays.

use std::time::Duration;

use fake_cluster::{Fault, Matcher, ObjectRef, Verb, object};

use crate::{
    fixtures,
    scenarios::{
        BOOTSTRAP, KUBELET_KUBECONFIG, PROVISIONING, Scenario, delete_machine_deployment,
        nothing_is_made,
    },
    snapshot::{self, text},
    wire::Life,
    world::put,
};

const WORKERS: ObjectRef<'static> = object("machinedeployments", "kube-system", "workers");

/// Somebody takes our finalizer, and the watch tells that the machine deployment is gone.
#[tokio::test(start_paused = true)]
async fn what_a_vanished_machine_deployment_left_is_removed_as_soon_as_it_is_reported() {
    let (world, process) = Scenario::Provisioning.settled().await;
    let berlin = world.worker("berlin");
    assert!(berlin.delete_raw(WORKERS));
    world.settle().await;
    nothing_is_made(berlin);
    process.stop().await;
}

/// A machine deployment that vanished while the watch was deaf, its finalizer taken by force.
#[tokio::test(start_paused = true)]
async fn what_a_vanished_machine_deployment_left_is_removed_by_the_next_process() {
    let (world, process) = Scenario::Provisioning.settled().await;
    process.stop().await;
    let berlin = world.worker("berlin");
    assert!(berlin.delete_raw(WORKERS));
    let process = world.start_settled().await;
    nothing_is_made(berlin);
    assert_eq!(world.management.objects("operatingsystemconfigs").len(), 0);
    process.stop().await;
}

/// A list shows a machine deployment that is being deleted, and the watch comes late: it is gone,
/// and another has its name.
#[tokio::test(start_paused = true)]
async fn who_took_the_name_of_a_deleted_machine_deployment_keeps_what_was_made_for_it() {
    let (world, process) = Scenario::Provisioning.settled().await;
    process.stop().await;
    let berlin = world.worker("berlin");
    delete_machine_deployment(berlin, "workers").await;
    let being_deleted = berlin.revision();
    assert!(berlin.delete_raw(WORKERS));
    put(berlin, fixtures::a_machine_deployment("workers"));
    let process = world.start_settled().await;
    process.stop().await;
    let before = snapshot::take(&world);
    let stale = Fault::StaleList {
        revisions: berlin.revision() - being_deleted,
    };
    let lists = Matcher::on(&[Verb::List], "machinedeployments");
    // The one that probes the right to it, and the one that tells.
    berlin.inject_times(lists, stale, 2);
    let watches = Matcher::on(&[Verb::Watch], "machinedeployments");
    berlin.inject_times(watches, Fault::Delay(Duration::from_secs(5)), 1);
    let life = Life::new();
    let process = world.start_settled_as(&life).await;
    process.stop().await;
    assert_eq!(life.lines(), [""; 0]);
    assert_eq!(snapshot::difference(&before, &snapshot::take(&world)), None);
}

/// A process that died after its first write has left a token and nothing else.
#[tokio::test(start_paused = true)]
async fn a_token_that_belongs_to_nobody_is_removed_by_the_next_process() {
    let (world, process) = Scenario::Provisioning.settled().await;
    process.stop().await;
    let berlin = world.worker("berlin");
    let config = "workers-kube-system-config";
    let config = object("operatingsystemconfigs", "berlin", config);
    assert!(berlin.delete_raw(WORKERS) && world.management.delete_raw(config));
    for name in [BOOTSTRAP, PROVISIONING, KUBELET_KUBECONFIG] {
        assert!(berlin.delete_raw(object("secrets", "cloud-init-settings", name)));
    }
    let tokens = || {
        let mut secrets = berlin.objects("secrets");
        secrets.retain(|secret| text(secret, "/type") == "bootstrap.kubernetes.io/token");
        secrets.len()
    };
    assert_eq!(tokens(), 1);
    let process = world.start_settled().await;
    process.stop().await;
    assert_eq!(tokens(), 0);
}
