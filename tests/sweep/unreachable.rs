//! A worker cluster that does not answer: asked again with growing, capped, jittered delays, served
//! soon after it is back, and no burden on another tenant.

use std::{sync::Arc, time::Duration};

use fake_cluster::{Fault, Matcher};
use http::Method;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    fixtures,
    scenarios::{PROVISIONING, until_made},
    snapshot::boot_secret,
    wire::{Life, Sent},
    world::{Process, World, put},
};

/// Every way in which a cluster can fail to answer; a server that hangs costs a timeout each time.
fn faults() -> [(Fault, Duration); 4] {
    let day = Duration::from_hours(24);
    [
        (Fault::Hang, Duration::from_secs(10)),
        (Fault::ConnectionRefused, Duration::ZERO),
        (Fault::overloaded(day), Duration::ZERO),
        (Fault::status(500), Duration::ZERO),
    ]
}

/// Longer than the cap of a delay and a timeout.
const HEALED_WITHIN: Duration = Duration::from_secs(30);

/// For how long a server that asks for a day is left alone.
fn hold(fault: &Fault) -> Duration {
    match fault {
        Fault::Status {
            retry_after: Some(_),
            ..
        } => Duration::from_mins(1),
        _ => Duration::ZERO,
    }
}

/// Two tenants, of which only `berlin` has a machine deployment.
fn two_tenants() -> World {
    let world = World::with(&["berlin", "lisbon"]);
    world.deploy("berlin", "workers");
    world
}

fn start(world: &World) -> (Process, Arc<Life>) {
    let life = Life::new();
    (world.start_as(&life), life)
}

fn sent_to(life: &Life, cluster: &str) -> Vec<Sent> {
    let mut sent = life.sent();
    sent.retain(|sent| sent.to == cluster);
    sent
}

/// Waits until a cluster has the documents of `workers`, and tells how long that took.
async fn served(world: &World, cluster: &str) -> Duration {
    let asked = Instant::now();
    let has_all = |cluster: &fake_cluster::Cluster| {
        boot_secret(cluster, crate::scenarios::BOOTSTRAP).is_some()
            && boot_secret(cluster, PROVISIONING).is_some()
    };
    let wait = world.worker(cluster).wait_until(has_all);
    tokio::time::timeout(Duration::from_mins(5), wait)
        .await
        .expect("it is served in the end");
    asked.elapsed()
}

#[tokio::test(start_paused = true)]
async fn attempts_to_engage_are_spaced_by_growing_capped_jittered_delays() {
    for (fault, timeout) in faults() {
        let name = format!("{fault:?}");
        let hold = hold(&fault);
        let world = two_tenants();
        world.worker("lisbon").inject(Matcher::any(), fault);
        // One that is made by the first attempt is a reason for another at once.
        world.configure("lisbon", &json!({}));
        let (process, life) = start(&world);
        tokio::time::sleep(Duration::from_mins(if hold.is_zero() { 10 } else { 25 })).await;
        // The first question of each attempt is the identity.
        let mut attempts = sent_to(&life, "lisbon");
        attempts.retain(|sent| sent.path.ends_with("/namespaces/kube-system"));
        let times: Vec<Instant> = attempts.iter().map(|sent| sent.at).collect();
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        let gaps: Vec<Duration> = gaps.map(|gap| gap.saturating_sub(timeout)).collect();
        assert!(gaps.len() > 20, "{name}: {gaps:?}");
        let mut step = Duration::from_millis(500);
        for (index, gap) in gaps.iter().enumerate() {
            // Timers have whole milliseconds.
            let most = step.max(hold) + Duration::from_millis(2);
            assert!(
                *gap >= (step / 2).max(hold) && *gap <= most,
                "{name}: gap {index} is {gap:?}, step {step:?} in {gaps:?}"
            );
            step = (step * 2).min(Duration::from_secs(15));
        }
        let mut late = gaps[6..].to_vec();
        late.sort();
        late.dedup();
        assert!(
            late.len() > 5 || !hold.is_zero(),
            "{name}: no jitter in {late:?}"
        );
        process.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_comes_back_is_engaged_within_half_a_minute() {
    for (fault, _) in faults() {
        let name = format!("{fault:?}");
        let healed_within = hold(&fault) + HEALED_WITHIN;
        let world = two_tenants();
        let lisbon = world.worker("lisbon");
        put(lisbon, fixtures::a_machine_deployment("workers"));
        let outage = lisbon.inject(Matcher::any(), fault);
        let (process, _) = start(&world);
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert!(boot_secret(lisbon, PROVISIONING).is_none());
        lisbon.clear_fault(outage);
        let took = served(&world, "lisbon").await;
        assert!(took <= healed_within, "{name}: {took:?}");
        process.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_happened_during_an_outage_is_made_good_within_half_a_minute() {
    for (fault, _) in faults() {
        let name = format!("{fault:?}");
        let healed_within = hold(&fault) + HEALED_WITHIN;
        let world = two_tenants();
        let lisbon = world.worker("lisbon");
        let (process, life) = start(&world);
        world.settle().await;
        let outage = lisbon.inject(Matcher::any(), fault);
        lisbon.close_watches();
        put(lisbon, fixtures::a_machine_deployment("workers"));
        life.forget();
        tokio::time::sleep(Duration::from_mins(20)).await;
        let asked = sent_to(&life, "lisbon").len();
        // One at a time, however many want something.
        assert!(asked < 180, "{name}: {asked} requests in 20 minutes");
        lisbon.clear_fault(outage);
        let took = served(&world, "lisbon").await;
        assert!(took <= healed_within, "{name}: {took:?}");
        process.stop().await;
    }
}

/// What `berlin` sees of a run: its requests, and how long a new machine deployment took.
async fn berlin_beside(fault: Option<Fault>) -> (Vec<String>, Duration) {
    let world = two_tenants();
    if let Some(fault) = fault {
        world.worker("lisbon").inject(Matcher::any(), fault);
    }
    let (process, life) = start(&world);
    until_made(world.worker("berlin"), PROVISIONING).await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    world.deploy("berlin", "more");
    let asked = Instant::now();
    until_made(world.worker("berlin"), "more-kube-system-bootstrap-config").await;
    let took = asked.elapsed();
    tokio::time::sleep(Duration::from_mins(2)).await;
    process.stop().await;
    let mut requests: Vec<String> = sent_to(&life, "berlin")
        .iter()
        .filter(|sent| sent.method != Method::GET)
        .map(Sent::line)
        .collect();
    requests.push(format!("{} reads", sent_to(&life, "berlin").len()));
    // Two reconciles may run side by side.
    requests.sort();
    (requests, took)
}

#[tokio::test(start_paused = true)]
async fn a_dead_cluster_does_not_delay_the_others() {
    let (undisturbed, took) = berlin_beside(None).await;
    assert_eq!(took, Duration::ZERO);
    for (fault, _) in faults() {
        let name = format!("{fault:?}");
        let (requests, took) = berlin_beside(Some(fault)).await;
        assert_eq!(requests, undisturbed, "{name}");
        assert_eq!(took, Duration::ZERO, "{name}");
    }
}
