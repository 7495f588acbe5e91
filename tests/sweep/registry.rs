//! WorkerClusters that somebody deletes, recreates or wipes, namespaces that are deleted, and two
//! fleets of one management cluster that meet in one worker cluster.

use std::time::Duration;

use fake_cluster::{Cluster, Fault, Matcher, ObjectRef, Verb, object};
use serde_json::{Value, json};

use crate::{
    fixtures,
    scenarios::{set, unregister},
    snapshot::text,
    world::{World, account, put, settings},
};

const OWN: ObjectRef<'static> = object(WORKER_CLUSTER, "berlin", "berlin");
/// Long enough for what follows an event, and shorter than any delay that is waited for here.
const MOMENT: Duration = Duration::from_secs(10);

/// The status and the reason of a tenant's condition.
pub fn condition(world: &World, tenant: &str, kind: &str) -> [String; 2] {
    let found = world.condition(tenant, kind);
    let text = |field| found.get(field).and_then(Value::as_str);
    ["status", "reason"].map(|field| text(field).unwrap_or("absent").to_owned())
}

fn is_ready(world: &World, tenant: &str) -> bool {
    text(&world.condition(tenant, "Ready"), "/status") == "True"
}

/// A tenant that is served, and whose WorkerCluster says this.
fn a_served_tenant(spec: &Value) -> World {
    let world = World::with_berlin();
    world.configure("berlin", spec);
    world.deploy("berlin", "workers");
    world
}

/// What was known of its cluster is known again, though nothing is wrong with it.
#[tokio::test(start_paused = true)]
async fn a_tenant_that_was_paused_is_ready_again() {
    let world = a_served_tenant(&json!({}));
    let process = world.start_settled().await;
    for is_paused in [true, false] {
        world.change_own("berlin", |own| set(own, "/spec/paused", json!(is_paused)));
        tokio::time::sleep(MOMENT * 6).await;
        let [connected, _] = condition(&world, "berlin", "Connected");
        assert_eq!(connected == "True", !is_paused, "{connected}");
        assert_eq!(is_ready(&world, "berlin"), !is_paused);
    }
    process.stop().await;
}

/// What makes it again, after it was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MadeBy {
    Somebody,
    TheManager,
}

#[tokio::test(start_paused = true)]
async fn a_worker_cluster_deleted_and_recreated_gets_its_status_back() {
    for made_by in [MadeBy::Somebody, MadeBy::TheManager] {
        let world = a_served_tenant(&json!({}));
        let process = world.start_settled().await;
        let before = world.own("berlin");
        assert!(is_ready(&world, "berlin"));
        assert!(world.management.delete_raw(OWN));
        if made_by == MadeBy::Somebody {
            world.configure("berlin", &json!({}));
        }
        world.settle().await;
        let after = world.own("berlin");
        assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"]);
        assert!(is_ready(&world, "berlin"), "{made_by:?}: {after:#}");
        for field in ["clusterUid", "served", "version"] {
            let (after, before) = (&after["status"][field], &before["status"][field]);
            assert_eq!(after, before, "{made_by:?}: {field}");
        }
        process.stop().await;
    }
}

/// After a restoration a generation counts again what it has counted: the edit of today has the
/// number of one that was undone.
#[tokio::test(start_paused = true)]
async fn an_end_of_a_pause_is_seen_whatever_the_generation_says() {
    let world = a_served_tenant(&json!({"paused": true}));
    let process = world.start();
    tokio::time::sleep(MOMENT).await;
    assert_eq!(world.condition("berlin", "Registered")["reason"], "Paused");
    world.change_own("berlin", |own| set(own, "/spec/paused", json!(false)));
    let generation = &world.own("berlin")["metadata"]["generation"];
    assert!(generation.is_null(), "a raw write counts none");
    tokio::time::sleep(MOMENT).await;
    assert!(is_ready(&world, "berlin"));
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_status_that_somebody_wiped_comes_back() {
    let world = a_served_tenant(&json!({}));
    let process = world.start_settled().await;
    let before = world.own("berlin");
    world.change_own("berlin", |own| {
        own.as_object_mut().expect("an object").remove("status");
    });
    world.settle().await;
    let after = world.own("berlin");
    assert!(is_ready(&world, "berlin"), "{after:#}");
    let uid = |own: &Value| own["status"]["clusterUid"].clone();
    assert_eq!(uid(&after), uid(&before));
    // A change of somebody else is put right once, and not over and over.
    world.change_own("berlin", |own| set(own, "/status/served", json!("7/7")));
    world.settle().await;
    assert_eq!(world.own("berlin")["status"]["served"], "1/1");
    process.stop().await;
}

/// The pin does not go with the object that it stands in.
#[tokio::test(start_paused = true)]
async fn a_recreated_worker_cluster_accepts_no_other_cluster() {
    let world = World::new(&["berlin", "lisbon"]);
    world.register("berlin");
    let process = world.start_settled().await;
    assert!(is_ready(&world, "berlin"));
    let uid = world.own("berlin")["status"]["clusterUid"].clone();
    let token = world.worker("lisbon").token(&account("kube-system"));
    let mut other = fixtures::a_registration("lisbon", &token);
    set(&mut other, "/metadata/name", json!("berlin"));
    set(&mut other, "/metadata/namespace", json!("berlin"));
    assert!(world.management.delete_raw(OWN));
    put(&world.management, other);
    world.configure("berlin", &json!({}));
    world.settle().await;
    let claimed = condition(&world, "berlin", "Claimed");
    assert_eq!(claimed, ["False", "ClusterChanged"]);
    assert_eq!(world.own("berlin")["status"]["clusterUid"], uid);
    process.stop().await;
}

const SECRET: &str = "secrets";
const WORKER_CLUSTER: &str = "workerclusters";

/// The orders in which a namespace's objects go, and how long it takes in between.
const ORDERS: [([&str; 2], Duration); 4] = [
    ([SECRET, WORKER_CLUSTER], Duration::ZERO),
    ([SECRET, WORKER_CLUSTER], MOMENT),
    ([WORKER_CLUSTER, SECRET], Duration::ZERO),
    ([WORKER_CLUSTER, SECRET], MOMENT),
];

/// Nothing can be created in a namespace that is being deleted, elsewhere it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    Deleted,
    Kept,
}

async fn goes_in(
    (order, pause): ([&str; 2], Duration),
    namespace: Namespace,
    policy: &str,
) -> (usize, Option<Value>) {
    let world = a_served_tenant(&json!({"onRemoval": policy}));
    let process = world.start_settled().await;
    assert!(is_ready(&world, "berlin"));
    if namespace == Namespace::Deleted {
        let created = Matcher::on(&[Verb::Create], WORKER_CLUSTER);
        let refused = Fault::status(403);
        world.management.inject(created, refused);
    }
    for resource in order {
        let gone = object(resource, "berlin", "berlin");
        assert!(world.management.delete_raw(gone), "{resource}");
        tokio::time::sleep(pause).await;
    }
    tokio::time::sleep(MOMENT).await;
    process.stop().await;
    let berlin = world.worker("berlin");
    let all = berlin.objects("machinedeployments");
    let held = |it: &&Value| it.pointer("/metadata/finalizers/0").is_some();
    let claimed = berlin.get(object("namespaces", "", "cloud-init-settings"));
    let claim = "/metadata/annotations/operatingsystemmanager.k8c.io~1claimed-by";
    let claim = claimed.and_then(|it| it.pointer(claim).cloned());
    (all.iter().filter(held).count(), claim)
}

#[tokio::test(start_paused = true)]
async fn a_tenant_namespace_deleted_in_every_order_is_released_as_it_asked_for() {
    for order in ORDERS {
        for namespace in [Namespace::Deleted, Namespace::Kept] {
            let (held, claim) = goes_in(order, namespace, "Release").await;
            assert_eq!(held, 0, "{order:?} {namespace:?}: finalizers stay");
            assert_eq!(claim, None, "{order:?} {namespace:?}: the claim stays");
            let (held, claim) = goes_in(order, namespace, "Keep").await;
            assert_eq!(held, 1, "{order:?} {namespace:?}: nobody asked for it");
            assert!(claim.is_some(), "{order:?} {namespace:?}");
        }
    }
}

/// A registration that this fleet's selector takes.
fn register_with(world: &World, fleet: &str, namespace: &str) {
    let token = world.worker("berlin").token(&account("kube-system"));
    let mut secret = fixtures::a_registration("berlin", &token);
    set(&mut secret, "/metadata/name", json!(namespace));
    set(&mut secret, "/metadata/namespace", json!(namespace));
    set(&mut secret, "/metadata/labels", json!({"fleet": fleet}));
    put(&world.management, secret);
}

/// Each fleet sees the registrations that its own selector takes, and no others.
#[tokio::test(start_paused = true)]
async fn a_claim_of_another_fleet_is_no_leftover_while_its_registration_is_there() {
    let mut world = World::new(&["berlin", "lisbon"]);
    let mut processes = Vec::new();
    for (fleet, namespace) in [("one", "berlin"), ("other", "lisbon")] {
        put(&world.management, fixtures::the_last_lease(fleet));
        register_with(&world, fleet, namespace);
        let (name, selector) = (
            format!("--fleet={fleet}"),
            format!("--registration-selector=fleet={fleet}"),
        );
        world.settings = settings(&[&name, &selector]);
        processes.push(world.start());
        tokio::time::sleep(Duration::from_mins(1)).await;
    }
    let refused = ["False", "ClaimedByOther"];
    // The one that holds it looks at its claim every ten minutes.
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_mins(12)).await;
        assert_eq!(condition(&world, "lisbon", "Claimed"), refused);
        assert!(is_ready(&world, "berlin"), "{:#}", world.own("berlin"));
    }
    // Nobody gave it back, and nobody holds it any more.
    unregister(&world);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(is_ready(&world, "lisbon"), "{:#}", world.own("lisbon"));
    for process in processes {
        process.stop().await;
    }
}

/// Grants all that the account of a home may do, and more.
fn entitle_as_at_home(worker: &Cluster) {
    let group = "rbac.authorization.k8s.io";
    put(
        worker,
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": "all"},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
        }),
    );
    put(
        worker,
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
            "metadata": {"name": "all"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "all"},
            "subjects": [{
                "kind": "ServiceAccount", "namespace": "kube-system",
                "name": "operating-system-manager",
            }],
        }),
    );
}

/// Without the right to know the management cluster, a home could be that.
#[tokio::test(start_paused = true)]
async fn a_home_is_not_served_until_it_is_known_to_be_another_cluster() {
    let world = World::with_berlin();
    world.configure("berlin", &json!({"home": "Worker"}));
    entitle_as_at_home(world.worker("berlin"));
    let reads = Matcher::on(&[Verb::Get], "configmaps");
    let refused = world.management.inject(reads, Fault::status(403));
    let process = world.start();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(
        condition(&world, "berlin", "Claimed"),
        ["False", "ClaimFailed"]
    );
    let claimed = world.condition("berlin", "Claimed");
    let message = claimed["message"].as_str().unwrap_or_default();
    assert!(message.contains("osm rbac management"), "{message}");
    assert_eq!(world.worker("berlin").writes().len(), 0);
    world.management.clear_fault(refused);
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(condition(&world, "berlin", "Claimed"), ["True", "Claimed"]);
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_reason_of_a_condition_says_what_became_of_a_cluster_until_it_is_registered_again() {
    for (policy, status, reason) in [
        ("Keep", "False", "Kept"),
        ("Release", "True", "Released"),
        ("Purge", "True", "Purged"),
    ] {
        let world = a_served_tenant(&json!({"onRemoval": policy}));
        let process = world.start_settled().await;
        let absent = ["absent"; 2];
        assert_eq!(condition(&world, "berlin", "Released"), absent);
        unregister(&world);
        world.settle().await;
        assert_eq!(condition(&world, "berlin", "Released"), [status, reason]);
        world.register("berlin");
        world.settle().await;
        assert_eq!(condition(&world, "berlin", "Released"), absent, "{policy}");
        assert!(is_ready(&world, "berlin"), "{policy}");
        process.stop().await;
    }
}
