//! A panic in the work of one tenant, wherever it happens, starts that tenant's work again and is
//! felt by nobody else.

use std::time::Duration;

use http::Method;
use tokio::time::Instant;

use crate::{
    fixtures,
    scenarios::{BOOTSTRAP, PROVISIONING, until_made},
    snapshot::boot_secret,
    wire::{Life, Sent},
    world::{World, put},
};

/// Where it panics: while the cluster is engaged, in a watch, in a reconcile, in the initial sync,
/// in the report, and while a default profile is installed.
const PLACES: [(&str, &str); 6] = [
    ("lisbon", "/version"),
    ("lisbon", "/machinedeployments"),
    ("management", "/namespaces/lisbon/operatingsystemconfigs"),
    ("lisbon", "/cloud-init-settings/secrets"),
    ("management", "/namespaces/lisbon/workerclusters"),
    ("management", "/namespaces/lisbon/operatingsystemprofiles"),
];
const TIMES: usize = 2;

/// What `berlin` sees of a run beside `lisbon`, and how long its new machine deployment took.
async fn berlin_beside(place: Option<(&str, &str)>) -> (Vec<String>, Duration) {
    let world = World::with_workers(&["berlin", "lisbon"]);
    let life = Life::new();
    if let Some((cluster, part)) = place {
        life.panic_at(cluster, part, TIMES);
    }
    let process = world.start_as(&life);
    let berlin = world.worker("berlin");
    until_made(berlin, PROVISIONING).await;
    put(berlin, fixtures::a_machine_deployment("more"));
    let asked = Instant::now();
    until_made(berlin, "more-kube-system-bootstrap-config").await;
    let took = asked.elapsed();
    tokio::time::sleep(Duration::from_mins(5)).await;
    process.stop().await;
    assert_eq!(life.panics_left(), 0, "{place:?}");
    let lisbon = world.worker("lisbon");
    for name in [BOOTSTRAP, PROVISIONING] {
        assert!(boot_secret(lisbon, name).is_some(), "{place:?}: {name}");
    }
    (requests_of_berlin(&life.sent()), took)
}

/// Writes in full, and how many reads.
fn requests_of_berlin(sent: &[Sent]) -> Vec<String> {
    let own = |sent: &&Sent| sent.to == "berlin" || sent.path.contains("/namespaces/berlin/");
    let (reads, writes): (Vec<&Sent>, Vec<&Sent>) = sent
        .iter()
        .filter(own)
        .partition(|sent| sent.method == Method::GET);
    let mut requests: Vec<String> = writes.into_iter().map(Sent::line).collect();
    requests.push(format!("{} reads", reads.len()));
    // Two reconciles may run side by side.
    requests.sort();
    requests
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_one_tenants_work_restarts_that_tenant_only() {
    let (undisturbed, took) = berlin_beside(None).await;
    assert_eq!(took, Duration::ZERO);
    for place in PLACES {
        let (requests, took) = berlin_beside(Some(place)).await;
        assert_eq!(requests, undisturbed, "{place:?}");
        assert_eq!(took, Duration::ZERO, "{place:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_panics_always_is_started_again_ever_more_seldom() {
    let world = World::new(&["lisbon"]);
    world.register("lisbon");
    let life = Life::new();
    life.panic_at("lisbon", "/version", usize::MAX);
    let process = world.start_as(&life);
    tokio::time::sleep(Duration::from_mins(10)).await;
    process.stop().await;
    let tries = usize::MAX - life.panics_left();
    // Six while the delay grows to fifteen seconds; then between seven and a half and fifteen.
    assert!((40..=90).contains(&tries), "{tries}");
}
