//! Somebody else writes between our look and our write: nothing of theirs is lost, and what is no
//! answer to our question changes nothing.

use std::time::Duration;

use fake_cluster::{AuditEntry, Fault, Matcher, Verb, object};
use osm::api::names::{CLAIM, CLOUD_INIT_SETTINGS};
use serde_json::json;

use crate::{
    fixtures,
    scenarios::{
        BOOTSTRAP, KUBELET_KUBECONFIG, PROVISIONING, Scenario, annotate, annotations, change,
        change_machine_deployment, document, nothing_is_made, raise_revision, set,
    },
    snapshot::boot_secret,
    wire::Life,
    world::{World, put},
};

/// How long a call takes that somebody is faster than.
const SLOW: Duration = Duration::from_secs(6);
/// Lists are made again within the hour.
const HOUR: Duration = Duration::from_secs(3600 + 30);

/// The answers to all updates of a Secret of `cloud-init-settings`.
fn updates(world: &World, name: &str) -> Vec<u16> {
    let is_update = |it: &&AuditEntry| {
        it.verb == Verb::Update && it.target.resource == "secrets" && it.target.name == name
    };
    let audit = world.worker("berlin").audit();
    audit.iter().filter(is_update).map(|it| it.code).collect()
}

/// Makes the documents those of another program.
fn disown(world: &World) {
    for name in [PROVISIONING, BOOTSTRAP] {
        let secret = ("secrets", CLOUD_INIT_SETTINGS, name);
        change(world.worker("berlin"), secret, |secret| {
            annotations(secret).retain(|key, _| key.starts_with("k8c.io/"));
            set(secret, "/data/cloud-config", json!("b3RoZXI="));
        });
    }
}

/// The annotations say which bytes are kept: they must be those that stand there.
#[tokio::test(start_paused = true)]
async fn a_secret_that_somebody_changed_since_it_was_compared_is_compared_again() {
    for is_recreated in [false, true] {
        let (world, process, _) = Scenario::Provisioning.settled_with_life().await;
        process.stop().await;
        disown(&world);
        let berlin = world.worker("berlin");
        let read = Matcher {
            name: Some(PROVISIONING.to_owned()),
            ..Matcher::on(&[Verb::Get], "secrets")
        };
        berlin.inject_times(read, Fault::Delay(SLOW), 1);
        world.clear_audits();
        let life = Life::new();
        let process = world.start_as(&life);
        tokio::time::sleep(SLOW * 2 / 3).await;
        let mut changed = boot_secret(berlin, PROVISIONING).expect("it is there");
        set(&mut changed, "/data/cloud-config", json!("dGhpcmQ="));
        if is_recreated {
            berlin.delete_raw(object("secrets", CLOUD_INIT_SETTINGS, PROVISIONING));
            set(&mut changed, "/metadata/uid", json!(""));
        }
        put(berlin, changed);
        world.settle().await;
        process.stop().await;
        assert_eq!(updates(&world, PROVISIONING), [409, 200]);
        assert_eq!(document(berlin, PROVISIONING), "third");
        let is_delete = |it: &crate::wire::Sent| it.method == http::Method::DELETE;
        assert!(!life.writes().iter().any(is_delete), "what is kept is kept");
    }
}

/// A list of finalizers that was empty is added as a whole: it may not be empty any more.
#[tokio::test(start_paused = true)]
async fn a_finalizer_that_somebody_adds_before_ours_is_added_stays() {
    let (world, process, _) = Scenario::Provisioning.settled_with_life().await;
    let berlin = world.worker("berlin");
    let patches = Matcher::on(&[Verb::Patch], "machinedeployments");
    berlin.inject_times(patches, Fault::Delay(SLOW), 1);
    put(berlin, fixtures::a_machine_deployment("more"));
    tokio::time::sleep(SLOW / 2).await;
    change_machine_deployment(berlin, "more", |found| {
        assert_eq!(found.pointer("/metadata/finalizers"), None, "ours is late");
        set(found, "/metadata/finalizers", json!(["example.com/keep"]));
    });
    world.settle().await;
    process.stop().await;
    let found = berlin.get(object("machinedeployments", "kube-system", "more"));
    let found = found.expect("it is there");
    let finalizers = found["metadata"]["finalizers"].as_array().expect("a list");
    assert_eq!(finalizers.len(), 2, "{finalizers:?}");
    assert!(finalizers.contains(&json!("example.com/keep")));
}

/// A server that does not serve the kind answers NotFound, too, and names no object.
#[tokio::test(start_paused = true)]
async fn a_not_found_that_names_no_machine_deployment_removes_nothing() {
    let (world, process, _) = Scenario::Provisioning.settled_with_life().await;
    process.stop().await;
    let berlin = world.worker("berlin");
    assert!(berlin.delete_raw(object("machinedeployments", "kube-system", "workers")));
    let reads = Matcher::on(&[Verb::Get], "machinedeployments");
    let not_found = Fault::status(404);
    let fault = berlin.inject(reads, not_found);
    let life = Life::new();
    let process = world.start_settled_as(&life).await;
    let deletes = |life: &Life| {
        let mut sent = life.writes();
        sent.retain(|it| it.method == http::Method::DELETE);
        sent
    };
    assert!(deletes(&life).is_empty(), "{:#?}", deletes(&life));
    for name in [BOOTSTRAP, PROVISIONING, KUBELET_KUBECONFIG] {
        assert!(boot_secret(berlin, name).is_some(), "{name}");
    }
    berlin.clear_fault(fault);
    tokio::time::sleep(HOUR).await;
    process.stop().await;
    nothing_is_made(berlin);
}

/// Between nine and eleven minutes pass between two looks at the claim.
#[tokio::test(start_paused = true)]
async fn a_cluster_whose_claim_somebody_took_is_left_within_eleven_minutes() {
    let (world, process, life) = Scenario::Provisioning.settled_with_life().await;
    let berlin = world.worker("berlin");
    let namespace = ("namespaces", "", CLOUD_INIT_SETTINGS);
    change(berlin, namespace, |namespace| {
        annotate(namespace, CLAIM, "another-management-cluster/oslo");
    });
    tokio::time::sleep(Duration::from_mins(12)).await;
    life.forget();
    raise_revision(berlin);
    put(berlin, fixtures::a_machine_deployment("more"));
    tokio::time::sleep(Duration::from_mins(12)).await;
    let mut writes = life.writes();
    writes.retain(|it| it.to == "berlin");
    assert!(writes.is_empty(), "{writes:#?}");
    process.stop().await;
    let claimed = world.condition("berlin", "Claimed");
    assert_eq!(claimed["reason"], "ClaimedByOther");
}
