//! What a cluster that fails costs: the cluster itself one request at a time, and the others
//! nothing.

use std::time::Duration;

use fake_cluster::{Cluster, Fault, Matcher, object};
use futures::future::join_all;
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    fixtures,
    registry::condition,
    scenarios::{BOOTSTRAP, annotate, until_made},
    snapshot::{boot_secret, text},
    wire::Life,
    world::{World, put, settings},
};

const HOUR: Duration = Duration::from_hours(1);

fn asked(life: &Life, cluster: &str) -> usize {
    let sent = life.sent();
    sent.iter().filter(|sent| sent.to == cluster).count()
}

#[tokio::test(start_paused = true)]
async fn a_dead_cluster_costs_one_request_per_delay_however_much_is_to_be_done() {
    for fault in [Fault::ConnectionRefused, Fault::Hang] {
        let world = World::with_berlin();
        let berlin = world.worker("berlin");
        let names = ["one", "two", "three"];
        for name in names {
            world.deploy("berlin", name);
        }
        let life = Life::new();
        let process = world.start_settled_as(&life).await;
        let name = format!("{fault:?}");
        berlin.inject(Matcher::any(), fault);
        // Reconciles have much to do, then the watches, too.
        world.add_profile("berlin", "v1.0.1", "other\n");
        tokio::time::sleep(Duration::from_secs(1)).await;
        berlin.close_watches();
        tokio::time::sleep(Duration::from_mins(1)).await;
        let mut counts = Vec::new();
        for _ in 0..2 {
            life.forget();
            tokio::time::sleep(HOUR).await;
            counts.push(asked(&life, "berlin"));
        }
        println!("{name}: {counts:?} requests in the first hour and in the second");
        let [first, second] = counts.as_slice() else {
            panic!("two hours");
        };
        // At least half of 15 s between two, and later half of 60 s.
        assert!((101..=480).contains(first), "{name}: {counts:?}");
        assert!((41..=130).contains(second), "{name}: {counts:?}");
        process.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_rotated_kubeconfig_is_tried_at_once_whatever_was_wrong_with_the_last_one() {
    let world = World::with_berlin();
    let berlin = world.worker("berlin");
    world.deploy("berlin", "workers");
    let overloaded = Fault::overloaded(HOUR);
    let outage = berlin.inject(Matcher::any(), overloaded);
    let life = Life::new();
    let process = world.start_as(&life);
    tokio::time::sleep(Duration::from_mins(10)).await;
    life.forget();
    while asked(&life, "berlin") == 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // From here on it is left alone for a minute.
    berlin.clear_fault(outage);
    let begun = Instant::now();
    // The same registration with another authority in it.
    put(&world.management, an_ageing_registration(&world));
    until_made(berlin, BOOTSTRAP).await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    process.stop().await;
}

/// How long each machine deployment of the healthy tenants took, in order, with a tenth of the
/// fleet in each of these states.
async fn latencies(faults: &[Fault]) -> Vec<Duration> {
    const TENANTS: usize = 40;
    let names: Vec<&'static str> = (0..TENANTS)
        .map(|index| &*Box::leak(format!("tenant-{index}").into_boxed_str()))
        .collect();
    let mut world = World::with(&names);
    // Fewer than the reconciles of those that fail.
    world.settings = settings(&["--concurrent-renders", "8"]);
    let process = world.start();
    // Forty clusters never rest all at once: a minute engages them.
    tokio::time::sleep(Duration::from_mins(1)).await;
    let mut healthy: Vec<&Cluster> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let cluster = world.worker(name);
        // Of ten, the first three fail, or would in the other run.
        let usual = Fault::Delay(Duration::from_millis(20));
        let fault = faults.get(index % 10).cloned().unwrap_or(usual);
        cluster.inject(Matcher::any(), fault);
        if index % 10 >= 3 {
            healthy.push(cluster);
        }
    }
    let begun = Instant::now();
    for name in &names {
        for machine_deployment in ["a", "b", "c", "d"] {
            world.deploy(name, machine_deployment);
        }
    }
    let waits = healthy.iter().flat_map(|cluster| {
        ["a", "b", "c", "d"].map(|name| async move {
            let secret = format!("{name}-kube-system-bootstrap-config");
            until_made(cluster, &secret).await;
            begun.elapsed()
        })
    });
    let mut took = join_all(waits).await;
    took.sort();
    process.stop().await;
    took
}

#[tokio::test(start_paused = true)]
async fn a_tenth_dead_a_tenth_slow_and_a_tenth_overloaded_do_not_delay_the_healthy() {
    let undisturbed = latencies(&[]).await;
    let overloaded = Fault::overloaded(Duration::from_secs(1));
    let slow = Fault::Delay(Duration::from_secs(5));
    let disturbed = latencies(&[Fault::Hang, slow, overloaded]).await;
    let p99 = |took: &[Duration]| {
        took.iter()
            .rev()
            .nth(took.len() / 100)
            .copied()
            .unwrap_or_default()
    };
    println!(
        "p99 {:?}, undisturbed {:?}",
        p99(&disturbed),
        p99(&undisturbed)
    );
    assert_eq!(disturbed.len(), undisturbed.len());
    assert!(
        p99(&undisturbed) >= Duration::from_millis(60),
        "calls cost time"
    );
    assert!(
        p99(&disturbed) <= p99(&undisturbed).mul_f64(1.25),
        "{disturbed:?} instead of {undisturbed:?}"
    );
}

fn uid(cluster: &Cluster, resource: &str, name: &str) -> Option<String> {
    let found = cluster.get(object(resource, "cloud-init-settings", name))?;
    Some(found.pointer("/metadata/uid")?.as_str()?.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_token_of_a_replaced_fetcher_is_recreated() {
    const TOKEN: &str = "cloud-init-getter-token";
    let world = World::with_berlin();
    let berlin = world.worker("berlin");
    let process = world.start_settled().await;
    let before = uid(berlin, "secrets", TOKEN);
    let mut secret = boot_secret(berlin, TOKEN).expect("the fetcher has a token");
    // The token controller has noted it.
    annotate(&mut secret, "kubernetes.io/service-account.uid", "another");
    put(berlin, secret);
    berlin
        .wait_until(|berlin| {
            let now = uid(berlin, "secrets", TOKEN);
            now.is_some() && now != before
        })
        .await;
    world.settle().await;
    let secret = boot_secret(berlin, TOKEN).expect("it is there");
    let path = "/metadata/annotations/kubernetes.io~1service-account.uid";
    let account = uid(berlin, "serviceaccounts", "cloud-init-getter");
    assert_eq!(Some(text(&secret, path).to_owned()), account);
    process.stop().await;
}

/// A registration whose authority is good from ten days ago until 31 days from now.
fn an_ageing_registration(world: &World) -> Value {
    let authority = crate::join::an_authority(world.clock().now(), [-200, 32]);
    let token = world
        .worker("berlin")
        .token(&crate::world::account("kube-system"));
    fixtures::a_registration_by("berlin", &token, &authority)
}

/// The names of the Events in the management cluster that warn.
fn warnings(world: &World) -> Vec<String> {
    let events = world.management.objects("events");
    let warnings = events.iter().filter(|it| it["type"] == "Warning");
    warnings
        .map(|it| text(it, "/metadata/name").to_owned())
        .collect()
}

fn credential(world: &World) -> [String; 2] {
    let [_, valid] = condition(world, "berlin", "CredentialValid");
    let [ready, _] = condition(world, "berlin", "Ready");
    [valid, ready]
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_expires_is_warned_of_once_and_serves_on() {
    let world = World::with_berlin();
    put(&world.management, an_ageing_registration(&world));
    let process = world.start_settled().await;
    assert_eq!(credential(&world), ["Valid", "True"]);
    assert_eq!(warnings(&world).len(), 0);
    tokio::time::sleep(HOUR * 49).await;
    assert_eq!(credential(&world), ["ExpiresSoon", "True"]);
    assert_eq!(warnings(&world).len(), 1);
    process.stop().await;
    // Another process does not tell it again.
    let process = world.start_settled().await;
    assert_eq!(credential(&world), ["ExpiresSoon", "True"]);
    assert_eq!(warnings(&world).len(), 1);
    process.stop().await;
}

/// Returns how often an Event says that the tenant is served.
fn readiness(world: &World) -> usize {
    let events = world.management.objects("events");
    events.iter().filter(|it| it["reason"] == "Ready").count()
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_outage_is_told_if_its_beginning_was() {
    let world = World::with_berlin();
    let process = world.start_settled().await;
    let berlin = world.worker("berlin");
    // The first Event is about a tenant that is new.
    for (outage, warned, served) in [(5, 0, 1), (120, 1, 2)] {
        let fault = berlin.inject(Matcher::any(), Fault::ConnectionRefused);
        berlin.close_watches();
        tokio::time::sleep(Duration::from_secs(outage)).await;
        berlin.clear_fault(fault);
        tokio::time::sleep(Duration::from_mins(2)).await;
        let told = (warnings(&world).len(), readiness(&world));
        assert_eq!(told, (warned, served), "{outage} s");
    }
    process.stop().await;
}
