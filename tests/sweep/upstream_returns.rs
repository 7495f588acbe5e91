//! The program that served a cluster before comes back while we serve it: an installer reconciles
//! it, say. Nothing is written while it runs, and we go on when it has gone.

use std::time::Duration;

use fake_cluster::{Cluster, object};
use jiff::SignedDuration;
use osm::fleet::adoption::LEASE;
use serde_json::json;

use crate::{
    registry::condition,
    scenarios::{PROVISIONING, change, raise_revision, set},
    snapshot::{boot_secret, text},
    stale::deafen,
    world::{World, line, put},
};

/// The claim is looked at after eleven minutes at most, and with it the Lease.
const LOOKED_AT: Duration = Duration::from_mins(12);

/// The revision of a machine deployment.
const RAISED: &str = "/metadata/annotations/machinedeployment.clusters.k8s.io~1revision";

/// Whether the other program has served the cluster before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Adopted,
    Never,
}

/// A served cluster, with the definitions that the other program needs where it was there.
fn a_world(before: Before) -> World {
    let world = World::with_berlin();
    let berlin = world.worker("berlin");
    world.deploy("berlin", "workers");
    if before == Before::Adopted {
        install_upstream(berlin);
        renew(&world, SignedDuration::from_hours(-2));
    }
    world
}

fn install_upstream(berlin: &Cluster) {
    for definitions in [
        include_str!("../../manifests/crds/operatingsystemprofiles.yaml"),
        include_str!("../../manifests/crds/operatingsystemconfigs.yaml"),
    ] {
        berlin
            .apply_yaml(definitions)
            .expect("they are well formed");
    }
}

/// The other program has renewed its Lease then, as seen from now.
fn renew(world: &World, from_now: SignedDuration) {
    let at = (world.clock().now() + from_now).strftime("%Y-%m-%dT%H:%M:%S.000000Z");
    put(
        world.worker("berlin"),
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": LEASE, "namespace": "kube-system"},
            "spec": {
                "holderIdentity": "the-one-before", "leaseDurationSeconds": 15,
                "renewTime": at.to_string(),
            },
        }),
    );
}

/// What `Adopted` says.
fn adopted(world: &World) -> [String; 2] {
    condition(world, "berlin", "Adopted")
}

fn revision(world: &World) -> String {
    let secret = boot_secret(world.worker("berlin"), PROVISIONING).unwrap_or_default();
    let revision = "/metadata/annotations/k8c.io~1machine-deployment-revision";
    text(&secret, revision).to_owned()
}

/// Nothing is written while it runs, and everything when it has gone.
async fn we_wait_for_it(world: &World) {
    let berlin = world.worker("berlin");
    berlin.clear_audit();
    raise_revision(berlin);
    tokio::time::sleep(Duration::from_mins(5)).await;
    let writes: Vec<String> = berlin.writes().iter().map(line).collect();
    assert_eq!(writes, Vec::<String>::new(), "it runs");
    renew(world, SignedDuration::from_hours(-2));
    tokio::time::sleep(Duration::from_mins(1)).await;
    let adopted = adopted(world);
    assert_eq!(adopted[0], "True", "{adopted:?}");
    let workers = berlin.get(object("machinedeployments", "kube-system", "workers"));
    let wanted = workers.and_then(|it| it.pointer(RAISED).cloned());
    assert_eq!(Some(json!(revision(world))), wanted);
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_comes_back_to_an_adopted_cluster_stops_our_writes_until_it_has_gone() {
    let world = a_world(Before::Adopted);
    let process = world.start_settled().await;
    let before = adopted(&world);
    assert_eq!(before[0], "True", "{before:?}");
    renew(&world, SignedDuration::from_hours(1));
    tokio::time::sleep(LOOKED_AT).await;
    assert_eq!(adopted(&world), ["False", "UpstreamRunning"]);
    we_wait_for_it(&world).await;
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_of_somebody_else_is_a_reason_to_look_for_another_manager_at_once() {
    for before in [Before::Adopted, Before::Never] {
        let world = a_world(before);
        let process = world.start_settled().await;
        let berlin = world.worker("berlin");
        install_upstream(berlin);
        renew(&world, SignedDuration::from_hours(1));
        let secret = object("secrets", "cloud-init-settings", PROVISIONING);
        assert!(berlin.delete_raw(secret));
        tokio::time::sleep(Duration::from_secs(5)).await;
        let said = adopted(&world);
        assert_eq!(said, ["False", "UpstreamRunning"], "{before:?}");
        we_wait_for_it(&world).await;
        process.stop().await;
    }
}

/// The watch shows nothing of what the other program writes; only a refused write reveals it.
#[tokio::test(start_paused = true)]
async fn our_write_that_meets_another_starts_a_search_for_another_manager() {
    let world = a_world(Before::Adopted);
    let process = world.start_settled().await;
    let berlin = world.worker("berlin");
    renew(&world, SignedDuration::from_hours(1));
    deafen(berlin, "secrets");
    let secret = ("secrets", "cloud-init-settings", PROVISIONING);
    change(berlin, secret, |found| {
        set(found, "/metadata/annotations/by", json!("another"));
    });
    raise_revision(berlin);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(adopted(&world), ["False", "UpstreamRunning"]);
    berlin.clear_faults();
    we_wait_for_it(&world).await;
    process.stop().await;
}
