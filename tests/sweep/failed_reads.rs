//! A read that failed says nothing about what it would have returned: what was read before stays,
//! and nothing rotates.

use std::{sync::Arc, time::Duration};

use fake_cluster::{Cluster, Fault, Matcher, Verb, object};
use osm::api::names::DerivedNames;
use serde_json::{Value, json};

use crate::{
    fixtures,
    scenarios::{BOOTSTRAP, PROVISIONING, Scenario, document, set},
    snapshot::{boot_secret, decoded, text},
    wire::{Life, Sent},
    world::{World, put},
};

const HOUR: Duration = Duration::from_hours(1);

/// The address of the API server that cluster-info announces.
const ANNOUNCED: &str = "https://announced.example:6443";

/// Every way in which a read can fail without an answer about the object.
fn failures() -> [Fault; 5] {
    [
        Fault::status(500),
        Fault::status(403),
        Fault::status(401),
        Fault::ConnectionRefused,
        Fault::Hang,
    ]
}

fn cluster_info() -> Value {
    fixtures::cluster_info(ANNOUNCED, fixtures::certificate())
}

/// Reads of one object.
fn reads(resource: &str, name: &str) -> Matcher {
    Matcher {
        name: Some(name.to_owned()),
        ..Matcher::on(&[Verb::Get], resource)
    }
}

/// What was written but Leases, renewals of tokens, the status and Events.
fn writes(life: &Life) -> Vec<String> {
    let mut writes = life.writes();
    let by_the_clock = ["/leases", "/bootstrap-token-"];
    writes.retain(|sent| !by_the_clock.iter().any(|part| sent.path.contains(part)));
    writes.iter().map(Sent::line).collect()
}

fn events(life: &Life) -> usize {
    let sent = life.sent();
    let is_event = |sent: &&Sent| sent.method != http::Method::GET && sent.path.contains("/events");
    sent.iter().filter(is_event).count()
}

/// One read fails while the cluster is engaged, and one after a restart; nothing is written and
/// nobody is warned.
async fn nothing_follows(
    world: &World,
    cluster: &Cluster,
    failing: (Matcher, Fault),
    within: Duration,
) {
    let (matcher, fault) = failing;
    let name = format!("{fault:?} {matcher:?}");
    let life = Life::new();
    let process = world.start_settled_as(&life).await;
    life.forget();
    cluster.inject_times(matcher.clone(), fault.clone(), 1);
    tokio::time::sleep(within).await;
    assert_eq!(writes(&life), [""; 0], "{name}");
    assert_eq!(events(&life), 0, "{name}");
    process.stop().await;
    let life = restart(world, cluster, (matcher, fault)).await;
    assert_eq!(writes(&life), [""; 0], "{name}, at a restart");
    assert_eq!(events(&life), 0, "{name}, at a restart");
}

async fn restart(world: &World, cluster: &Cluster, failing: (Matcher, Fault)) -> Arc<Life> {
    cluster.clear_faults();
    let id = cluster.inject_times(failing.0, failing.1, 1);
    let life = Life::new();
    let process = world.start_as(&life);
    // Rights that were refused are tried again within three hours, where tokens last for a day.
    tokio::time::sleep(HOUR * 3).await;
    world.settle().await;
    process.stop().await;
    cluster.clear_fault(id);
    life
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_of_cluster_info_rotates_nothing() {
    for fault in failures() {
        let world = Scenario::Create.world();
        let berlin = world.worker("berlin");
        put(berlin, cluster_info());
        let failing = (reads("configmaps", "cluster-info"), fault);
        nothing_follows(&world, berlin, failing, HOUR).await;
        assert!(document(berlin, BOOTSTRAP).contains(ANNOUNCED));
    }
}

/// Sets the endpoints of the API server, which nothing announces.
fn set_endpoints(cluster: &Cluster, addresses: &[&str]) {
    let endpoint = |address| json!({ "addresses": [address], "conditions": { "ready": true } });
    let slice = cluster.get(object("endpointslices", "default", "kubernetes"));
    let mut slice = slice.expect("every cluster has it");
    set(
        &mut slice,
        "/endpoints",
        addresses.iter().map(endpoint).collect(),
    );
    put(cluster, slice);
}

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_the_endpoint_that_took_the_place_of_another() {
    let world = Scenario::Create.world();
    let berlin = world.worker("berlin");
    set_endpoints(berlin, &["10.0.0.1", "10.0.0.2"]);
    let process = world.start_settled().await;
    assert!(document(berlin, BOOTSTRAP).contains("https://10.0.0.1:6443"));
    set_endpoints(berlin, &["10.0.0.2"]);
    tokio::time::sleep(Duration::from_mins(12)).await;
    assert!(document(berlin, BOOTSTRAP).contains("https://10.0.0.2:6443"));
    set_endpoints(berlin, &["10.0.0.1", "10.0.0.2"]);
    tokio::time::sleep(Duration::from_mins(12)).await;
    process.stop().await;
    let in_use = &world.own("berlin")["status"]["apiServer"];
    assert_eq!(in_use, "https://10.0.0.2:6443");
    let life = Life::new();
    let process = world.start_settled_as(&life).await;
    assert_eq!(writes(&life), [""; 0]);
    process.stop().await;
}

/// What no machine could use, and what the manager calls it.
fn useless() -> [(Value, &'static str); 6] {
    let authority = fixtures::certificate();
    let by = |server, authority| fixtures::cluster_info(server, authority);
    let mut no_yaml = cluster_info();
    set(&mut no_yaml, "/data/kubeconfig", json!("{"));
    let mut no_cluster = cluster_info();
    set(&mut no_cluster, "/data/kubeconfig", json!("clusters: []"));
    [
        (no_yaml, "not a kubeconfig"),
        (no_cluster, "not a kubeconfig"),
        (by("http://announced.example:6443", authority), "server"),
        (by("https://fd00::1:6443", authority), "server"),
        (by(ANNOUNCED, ""), "certificate-authority-data"),
        (by(ANNOUNCED, "authority"), "certificate-authority-data"),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_cluster_info_that_no_machine_could_use_changes_nothing_and_is_refused_by_name() {
    for (useless, what) in useless() {
        let world = Scenario::Create.world();
        let berlin = world.worker("berlin");
        put(berlin, cluster_info());
        let process = world.start_settled().await;
        let before = boot_secret(berlin, BOOTSTRAP).expect("it is served");
        put(berlin, useless);
        tokio::time::sleep(HOUR).await;
        let now = boot_secret(berlin, BOOTSTRAP);
        assert_eq!(now.as_ref(), Some(&before), "{what}");
        process.stop().await;
        let process = world.start();
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!(boot_secret(berlin, BOOTSTRAP), Some(before), "{what}");
        let prepared = world.condition("berlin", "Prepared");
        assert_eq!(prepared["reason"], "ClusterInfoInvalid");
        assert!(text(&prepared, "/message").contains(what), "{prepared}");
        process.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn where_cluster_info_may_never_be_read_the_endpoints_count() {
    let world = Scenario::Create.world();
    let berlin = world.worker("berlin");
    put(berlin, cluster_info());
    let forbidden = Fault::status(403);
    berlin.inject(reads("configmaps", "cluster-info"), forbidden);
    let life = Life::new();
    let process = world.start_as(&life);
    tokio::time::sleep(Duration::from_mins(1)).await;
    let document = boot_secret(berlin, BOOTSTRAP).expect("it is served within a minute");
    assert!(!decoded(&document, "cloud-config").contains(ANNOUNCED));
    world.settle().await;
    process.stop().await;
    // What is in use is one of the endpoints: no doubt delays the next process.
    berlin.clear_audit();
    let process = world.start();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let asked = berlin.count_requests(|entry| entry.target.name == "cluster-info");
    assert_eq!(asked, 1);
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_of_registry_credentials_keeps_those_that_were_read_last() {
    for fault in failures() {
        let world = Scenario::Create.world();
        let text = "{{ ContainerRuntimeConfig | string }}\n";
        world.add_profile("berlin", "v1.0.0", text);
        world.give_registry_credentials(r#"{"username":"u"}"#);
        let failing = (reads("secrets", "registries"), fault);
        nothing_follows(&world, &world.management, failing, HOUR).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_read_of_a_machine_deployments_credentials_rotates_nothing() {
    let names = DerivedNames::new("kube-system", "workers");
    for resource in ["serviceaccounts", "rolebindings"] {
        let world = Scenario::OwnCreate.world();
        let berlin = world.worker("berlin");
        let forbidden = Fault::status(403);
        let failing = (reads(resource, &names.fetcher), forbidden);
        // They are looked at again after half of the lifetime of a bootstrap token.
        nothing_follows(&world, berlin, failing, HOUR * 13).await;
        assert!(boot_secret(berlin, PROVISIONING).is_some());
        let told = world.condition("berlin", "NodeCredentials");
        assert_eq!(told["reason"], "PerMachineDeployment", "{resource}");
    }
}
