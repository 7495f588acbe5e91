//! Objects that nobody can decode: each harms itself alone, and heals when it is corrected.

use std::time::Duration;

use fake_cluster::object;
use osm::api::names::{PINNED, PROFILE};
use serde_json::{Value, json};

use crate::{
    fixtures,
    replicas::Fleet,
    scenarios::{BOOTSTRAP, Scenario, change_machine_deployment, document, set},
    snapshot::{boot_secret, text},
    stale::expire,
    wire::Life,
    world::{World, put},
};

fn entry(world: &World, name: &str) -> Value {
    let own = world.own("berlin");
    let entries = own.pointer("/status/machineDeployments");
    let entries = entries.and_then(Value::as_array);
    let found = entries
        .into_iter()
        .flatten()
        .find(|entry| entry["name"] == name);
    found.cloned().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_object_is_skipped_and_reported() {
    let world = Scenario::Provisioning.world();
    let berlin = world.worker("berlin");
    let mut broken = fixtures::a_machine_deployment("broken");
    set(&mut broken, "/spec/template", json!("nothing of the kind"));
    put(berlin, broken);
    let process = world.start_settled().await;
    assert!(
        boot_secret(berlin, BOOTSTRAP).is_some(),
        "the other is served"
    );
    let said = entry(&world, "kube-system/broken");
    assert_eq!(text(&said, "/state"), "Refused", "{said}");
    assert_eq!(text(&said, "/reason"), "Unreadable", "{said}");
    // It becomes readable, is served, becomes unreadable again, and goes.
    put(berlin, fixtures::a_machine_deployment("broken"));
    world.settle().await;
    assert!(boot_secret(berlin, "broken-kube-system-bootstrap-config").is_some());
    change_machine_deployment(berlin, "broken", |it| {
        let template = json!({"spec": {"versions": {"kubelet": 5}}});
        set(it, "/spec/template", template);
        let since = json!("2026-01-01T00:05:00Z");
        set(it, "/metadata/deletionTimestamp", since);
    });
    world.settle().await;
    assert!(boot_secret(berlin, "broken-kube-system-bootstrap-config").is_none());
    assert_eq!(entry(&world, "kube-system/broken"), Value::Null);
    assert!(boot_secret(berlin, BOOTSTRAP).is_some());
    process.stop().await;
}

/// A profile from before the definition knew better must not hide those of other tenants.
#[tokio::test(start_paused = true)]
async fn an_unreadable_profile_refuses_only_who_names_it() {
    let world = Scenario::Provisioning.world();
    let berlin = world.worker("berlin");
    let mut broken = fixtures::a_profile("berlin", "v1.0.0", "text\n");
    set(&mut broken, "/metadata/name", json!("broken"));
    set(&mut broken, "/spec/osVersion", json!(24.04));
    put(&world.management, broken.clone());
    let mut user = fixtures::a_machine_deployment("user");
    user["metadata"]["annotations"][PROFILE] = json!("broken");
    put(berlin, user);
    let process = world.start_settled().await;
    assert!(boot_secret(berlin, BOOTSTRAP).is_some());
    let said = entry(&world, "kube-system/user");
    assert_eq!(text(&said, "/reason"), "ProfileUnreadable", "{said}");
    // Once it is corrected, its user is served; and refused again when it is not.
    set(&mut broken, "/spec/osVersion", json!("24.04"));
    put(&world.management, broken.clone());
    world.settle().await;
    assert_eq!(text(&entry(&world, "kube-system/user"), "/state"), "Served");
    set(&mut broken, "/spec/osVersion", json!(24.04));
    put(&world.management, broken);
    world.settle().await;
    let said = entry(&world, "kube-system/user");
    assert_eq!(text(&said, "/reason"), "ProfileUnreadable", "{said}");
    process.stop().await;
}

/// A config that nobody can decode is one with other content: it is recreated.
#[tokio::test(start_paused = true)]
async fn an_unreadable_config_is_recreated() {
    let (world, process) = Scenario::Provisioning.settled().await;
    process.stop().await;
    let config = "workers-kube-system-config";
    let config = object("operatingsystemconfigs", "berlin", config);
    let mut torn = world.management.get(config).expect("it was made");
    set(&mut torn, "/spec/osName", json!(7));
    put(&world.management, torn);
    let process = world.start_settled().await;
    let found = world.management.get(config).expect("it is there");
    assert_eq!(text(&found, "/spec/osName"), "ubuntu");
    process.stop().await;
}

/// A registration whose data nobody can decode has no kubeconfig, and hides no other.
#[tokio::test(start_paused = true)]
async fn an_unreadable_registration_is_refused_alone() {
    let world = World::with_workers(&["berlin", "lisbon"]);
    let secret = object("secrets", "lisbon", "lisbon");
    let mut torn = world.management.get(secret).expect("it is registered");
    set(&mut torn, "/data", json!(7));
    put(&world.management, torn);
    let process = world.start_settled().await;
    assert!(boot_secret(world.worker("berlin"), BOOTSTRAP).is_some());
    assert!(boot_secret(world.worker("lisbon"), BOOTSTRAP).is_none());
    process.stop().await;
}

/// A WorkerCluster from before the definition knew better stops nobody else, and what was known of
/// it holds on.
#[tokio::test(start_paused = true)]
async fn an_unreadable_worker_cluster_is_skipped() {
    let world = World::with_workers(&["berlin", "lisbon"]);
    let broken = json!({"paused": "perhaps"});
    world.configure("lisbon", &broken);
    let life = Life::new();
    let process = world.start_as(&life);
    tokio::time::sleep(Duration::from_mins(2)).await;
    let has_documents = |name| boot_secret(world.worker(name), BOOTSTRAP).is_some();
    assert!(has_documents("berlin"), "the other is served");
    assert!(!has_documents("lisbon"), "nobody knows how");
    life.forget();
    // While it runs: by an event, and by a list.
    world.configure("berlin", &broken);
    tokio::time::sleep(Duration::from_mins(2)).await;
    expire(&world.management);
    tokio::time::sleep(Duration::from_mins(2)).await;
    // None is created beside one that may be about the same registration.
    assert_eq!(life.lines(), [""; 0]);
    for name in ["berlin", "lisbon"] {
        let other = json!({"apiServerOverride": "https://other.example:6443"});
        world.configure(name, &other);
    }
    tokio::time::sleep(Duration::from_mins(2)).await;
    process.stop().await;
    for name in ["berlin", "lisbon"] {
        let document = document(world.worker(name), BOOTSTRAP);
        assert!(document.contains("other.example"), "{name}");
    }
}

/// A default profile that an older release installed, and that nobody can decode now, is replaced
/// like any other that is older; one that is pinned stays.
#[tokio::test(start_paused = true)]
async fn an_unreadable_default_profile_is_replaced_unless_it_is_pinned() {
    let world = World::with_berlin();
    let torn = |name: &str, annotations: Value| {
        let mut torn = fixtures::a_profile("berlin", "v0.0.1", "text\n");
        set(&mut torn, "/metadata/name", json!(name));
        set(&mut torn, "/metadata/annotations", annotations);
        set(&mut torn, "/spec/osVersion", json!(24.04));
        put(&world.management, torn);
    };
    torn("osp-ubuntu", json!({}));
    torn("osp-flatcar", json!({ PINNED: "adopted" }));
    let process = world.start();
    // It has no users, and waits for its turn.
    tokio::time::sleep(Duration::from_mins(10)).await;
    let version = |name| {
        let found = object("operatingsystemprofiles", "berlin", name);
        let found = world.management.get(found).expect("it is there");
        text(&found, "/spec/version").to_owned()
    };
    assert_ne!(version("osp-ubuntu"), "v0.0.1");
    assert_eq!(version("osp-flatcar"), "v0.0.1");
    process.stop().await;
}

/// Nobody takes over the tenants of a living replica whose Lease cannot be decoded.
#[tokio::test(start_paused = true)]
async fn an_unreadable_lease_is_that_of_a_living_replica_while_it_changes() {
    let mut fleet = Fleet::new();
    let [a] = fleet.start_all(["osm-a"]).await;
    let (key, management) = (
        object("leases", "operating-system-manager", "osm-osm-a"),
        fleet.world.management.clone(),
    );
    let b = fleet.start("osm-b");
    for _ in 0..60 {
        let mut lease = management.get(key).expect("it is renewed");
        let whole = lease.clone();
        set(&mut lease, "/spec/leaseDurationSeconds", json!("fifteen"));
        put(&management, lease);
        tokio::time::sleep(Duration::from_millis(900)).await;
        assert!(management.get(key).is_some(), "nobody removed it");
        put(&management, whole);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    b.process.stop().await;
    a.process.stop().await;
}
