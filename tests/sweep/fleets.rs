//! Two fleets of one management cluster that watch the same tenant.

use std::time::Duration;

use fake_cluster::{AuditEntry, object};
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
fn start(world: &mut World, name: &str, namespace: &str) -> Process {
    let mut lease = fixtures::the_last_lease(name);
    set(&mut lease, "/metadata/namespace", json!(namespace));
    may_share_leases(world, namespace);
    put(&world.management, lease);
    let flags = [
        format!("--fleet={name}"),
        format!("--lease-namespace={namespace}"),
    ];
    world.settings = settings(&flags.each_ref().map(String::as_str));
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

#[tokio::test(start_paused = true)]
async fn of_two_fleets_that_watch_a_tenant_the_first_one_serves_it() {
    // Two installations may have the same name.
    for other in ["canary", "osm"] {
        let mut world = World::with_berlin();
        world.deploy("berlin", "workers");
        let first = start(&mut world, "osm", "osm-system");
        tokio::time::sleep(A_WHILE).await;
        let of_first = ["osm", "osm-system", "True"];
        assert_eq!(served_by(&world), of_first);

        let second = start(&mut world, other, "osm-canary");
        for _ in 0..3 {
            world.clear_audits();
            tokio::time::sleep(A_WHILE).await;
            assert_eq!(served_by(&world), of_first, "{other}");
            let of_documents = |it: &AuditEntry| {
                it.verb.is_mutating() && it.target.namespace == "cloud-init-settings"
            };
            let writes = world.worker("berlin").count_requests(of_documents);
            assert_eq!(writes, 0, "{other}");
            let of_status =
                |it: &AuditEntry| it.verb.is_mutating() && it.target.resource == "workerclusters";
            let writes = world.management.count_requests(of_status);
            assert!((2..=4).contains(&writes), "one question: {writes}");
        }
        let warnings = warnings(&world);
        assert!((3..=4).contains(&warnings), "{other}: {warnings}");

        // The first one is gone for good, without a word.
        first.kill().await;
        tokio::time::sleep(A_WHILE).await;
        let of_second = [other, "osm-canary", "True"];
        assert_eq!(served_by(&world), of_second);
        // It comes back, and is the later one now.
        let first = start(&mut world, "osm", "osm-system");
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(served_by(&world), of_second);
        first.stop().await;
        second.stop().await;
    }
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

/// Each of the two believes that it serves the tenant.
#[tokio::test(start_paused = true)]
async fn of_two_fleets_that_serve_a_tenant_one_leaves_it() {
    for (other, leaves) in [("a-fleet", true), ("z-fleet", false)] {
        let mut world = World::with_berlin();
        let process = start(&mut world, "osm", "osm-system");
        tokio::time::sleep(A_WHILE).await;
        // What it writes when it sees the second one may be on its way.
        for _ in 0..3 {
            assert_eq!(served_by(&world)[0], "osm");
            world.change_own("berlin", |own| {
                set(own, "/status/fleet", json!(other));
                set(own, "/status/fleetNamespace", json!("elsewhere"));
            });
            tokio::time::sleep(Duration::from_mins(1)).await;
        }
        let expected = if leaves { other } else { "osm" };
        assert_eq!(served_by(&world)[0], expected);
        // Nobody answers.
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(served_by(&world), ["osm", "osm-system", "True"]);
        process.stop().await;
    }
}
