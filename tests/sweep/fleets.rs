//! Two fleets of one management cluster that watch the same tenant.

use std::time::Duration;

use fake_cluster::{AuditEntry, Fault, Matcher, Verb, object};
use serde_json::{Value, json};

use crate::{
    fixtures,
    scenarios::set,
    snapshot::text,
    world::{Process, World, put, settings},
};

/// Longer than a fleet that waits takes until it asks again.
const A_WHILE: Duration = Duration::from_mins(12);

/// Starts a fleet whose Leases are in a namespace of its own.
fn start(world: &mut World, [name, namespace]: [&str; 2], more: &[&str]) -> Process {
    let mut lease = fixtures::the_last_lease(name);
    set(&mut lease, "/metadata/namespace", json!(namespace));
    may_share_leases(world, namespace);
    put(&world.management, lease);
    let flags = [
        format!("--fleet={name}"),
        format!("--lease-namespace={namespace}"),
    ];
    let flags = flags.each_ref().map(String::as_str);
    world.settings = settings(&[&flags[..], more].concat());
    world.start()
}

fn may_share_leases(world: &World, namespace: &str) {
    let (group, name) = ("rbac.authorization.k8s.io", "replicas");
    let metadata = json!({"name": name, "namespace": namespace});
    let role = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata,
        "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}],
    });
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
        "subjects": [{
            "kind": "ServiceAccount", "namespace": "operating-system-manager",
            "name": "operating-system-manager",
        }],
    });
    for object in [fixtures::a_namespace(namespace), role, binding] {
        put(&world.management, object);
    }
}

fn served_by(world: &World) -> [String; 3] {
    let (own, ready) = (world.own("berlin"), world.condition("berlin", "Ready"));
    [
        text(&own, "/status/fleet"),
        text(&own, "/status/fleetNamespace"),
        text(&ready, "/status"),
    ]
    .map(str::to_owned)
}

/// Returns how often an Event says that another fleet watches the tenant.
fn warnings(world: &World) -> usize {
    let events = world.management.objects("events");
    let is_one = |it: &&Value| text(it, "/reason") == "AnotherFleet";
    events.iter().filter(is_one).count()
}

const FIRST: [&str; 2] = ["osm", "osm-system"];
const OF_FIRST: [&str; 3] = ["osm", "osm-system", "True"];

/// Returns how often the tenant's documents and its WorkerCluster were written.
fn writes(world: &World) -> [usize; 2] {
    let of_documents =
        |it: &AuditEntry| it.verb.is_mutating() && it.target.namespace == "cloud-init-settings";
    let of_own = |it: &AuditEntry| it.verb.is_mutating() && it.target.resource == "workerclusters";
    [
        world.worker("berlin").count_requests(of_documents),
        world.management.count_requests(of_own),
    ]
}

#[tokio::test(start_paused = true)]
async fn of_two_fleets_that_watch_a_tenant_the_first_one_serves_it() {
    // Two installations may have the same name.
    for other in [["canary", "osm-canary"], ["osm", "osm-canary"]] {
        let mut world = World::with_berlin();
        world.deploy("berlin", "workers");
        let first = start(&mut world, FIRST, &[]);
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(served_by(&world), OF_FIRST);

        let mut second = start(&mut world, other, &[]);
        // It asks after a minute, two, four, and every ten minutes.
        for most in [10, 4, 4] {
            world.clear_audits();
            tokio::time::sleep(A_WHILE).await;
            assert_eq!(served_by(&world), OF_FIRST, "{other:?}");
            let [of_documents, of_own] = writes(&world);
            assert_eq!(of_documents, 0, "{other:?}");
            assert!((2..=most).contains(&of_own), "{of_own} writes");
        }
        let warnings = warnings(&world);
        assert!((3..=9).contains(&warnings), "{other:?}: {warnings}");

        // A question is no answer, however often its fleet is restarted.
        for after in [5, 20, 40, 180] {
            second.kill().await;
            world.clear_audits();
            second = start(&mut world, other, &[]);
            tokio::time::sleep(Duration::from_secs(after)).await;
            assert_eq!(served_by(&world), OF_FIRST, "{other:?} {after}");
            assert_eq!(writes(&world)[0], 0, "{other:?} {after}");
        }

        // The first one is gone for good, without a word.
        first.kill().await;
        tokio::time::sleep(A_WHILE).await;
        let of_second = [other[0], other[1], "True"];
        assert_eq!(served_by(&world), of_second);
        assert_eq!(text(&world.own("berlin"), "/status/requestedByFleet"), "");
        // It comes back, and is the later one now.
        let first = start(&mut world, FIRST, &[]);
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(served_by(&world), of_second);
        first.stop().await;
        second.stop().await;
    }
}

/// Its own replicas could not be heard for a while.
#[tokio::test(start_paused = true)]
async fn a_fleet_leaves_a_tenant_that_another_one_has_taken() {
    let mut world = World::with_berlin();
    world.deploy("berlin", "workers");
    let process = start(&mut world, FIRST, &[]);
    tokio::time::sleep(A_WHILE).await;
    world.change_own("berlin", |own| {
        set(own, "/status/fleet", json!("other"));
        set(own, "/status/fleetNamespace", json!("elsewhere"));
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.clear_audits();
    world.add_profile("berlin", "v9.0.0", "another text");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(served_by(&world)[..2], ["other", "elsewhere"]);
    assert_eq!(writes(&world), [0, 0], "it waits");
    // Nobody answers.
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(served_by(&world), OF_FIRST);
    process.stop().await;
}

/// The operator gives the Secret another label.
#[tokio::test(start_paused = true)]
async fn a_registration_that_moves_to_another_fleet_is_served_once_the_first_has_let_go() {
    let mut world = World::with_berlin();
    world.configure("berlin", &json!({"onRemoval": "Release"}));
    let label = |world: &World, fleet: &str| {
        let secret = object("secrets", "berlin", "berlin");
        let mut secret = world.management.get(secret).expect("it is there");
        set(&mut secret, "/metadata/labels", json!({ "fleet": fleet }));
        put(&world.management, secret);
    };
    label(&world, "osm");
    let first = start(&mut world, FIRST, &["--registration-selector=fleet=osm"]);
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(served_by(&world), OF_FIRST);
    let selector = ["--registration-selector=fleet=canary"];
    let second = start(&mut world, ["canary", "osm-canary"], &selector);
    // While the first one tries to give the cluster back, nobody else touches it.
    let berlin = world.worker("berlin");
    let release = Matcher::on(&[Verb::Patch], "namespaces");
    let refused = berlin.inject(release, Fault::status(500));
    label(&world, "canary");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(served_by(&world)[..2], FIRST);
    berlin.clear_fault(refused);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(served_by(&world), ["canary", "osm-canary", "True"]);
    let claimed = berlin.get(object("namespaces", "", "cloud-init-settings"));
    let claim = "/metadata/annotations/operatingsystemmanager.k8c.io~1claimed-by";
    assert!(claimed.expect("it is there").pointer(claim).is_some());
    first.stop().await;
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_excepted_has_no_tenant_of_this_fleet() {
    let mut world = World::new(&["berlin", "lisbon"]);
    for tenant in ["berlin", "lisbon"] {
        world.register(tenant);
    }
    world.settings = settings(&["--except-namespace=lisbon"]);
    let process = world.start();
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(text(&world.condition("berlin", "Ready"), "/status"), "True");
    let own = object("workerclusters", "lisbon", "lisbon");
    assert!(world.management.get(own).is_none());
    assert_eq!(world.worker("lisbon").audit().len(), 0);
    process.stop().await;
}
