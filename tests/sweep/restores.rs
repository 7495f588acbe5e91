//! Clusters whose etcd is restored from a backup: a worker cluster from an hour ago, the
//! management cluster from a day ago, both at once; with resourceVersions that go back, and with
//! a revision that is bumped.

use std::{collections::BTreeSet, time::Duration};

use fake_cluster::{Backup, Cluster, Revisions, Verb};
use serde_json::json;

use crate::{
    fixtures,
    replicas::{AGREED, Fleet, LEASE, Replica, stop_all},
    scenarios::{change_machine_deployment, delete_machine_deployment, set},
    snapshot::{self, boot_secret, text},
    wire::Life,
    world::{Process, World, put, settings},
};

const BOTH: [&str; 2] = ["berlin", "lisbon"];
/// What others write in the hours after a backup.
const OTHERS: u64 = 10_000;

/// What is restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restored {
    Worker,
    Management,
    Both,
}

/// What was backed up in the course of a day.
struct Backups {
    management: Backup,
    worker: Backup,
}

fn a_world() -> World {
    let mut world = World::with(&BOTH);
    world.settings = settings(&["--lease-duration=1h", "--token-lifetime=720h"]);
    // No two of the same name: a snapshot compares what was made for each.
    world.deploy("lisbon", "lisboetas");
    let mut other = fixtures::a_profile("berlin", "v1.0.0", "other text\n");
    set(&mut other, "/metadata/name", json!("other"));
    put(&world.management, other);
    for name in ["workers", "rolled", "old"] {
        world.deploy("berlin", name);
    }
    world
}

/// A day of changes: the management cluster is backed up at its beginning, `berlin` an hour before
/// its end.
async fn a_day(world: &World) -> Backups {
    let berlin = world.worker("berlin");
    world.settle().await;
    let management = world.management.backup();
    world.add_profile("lisbon", "v2.0.0", "another text\n");
    tokio::time::sleep(Duration::from_hours(23)).await;
    let worker = berlin.backup();
    change_machine_deployment(berlin, "rolled", |rolled| {
        let annotations = json!({fixtures::PROFILE: "other", fixtures::REVISION: "2"});
        set(rolled, "/metadata/annotations", annotations);
    });
    put(berlin, fixtures::a_machine_deployment("fresh"));
    delete_machine_deployment(berlin, "old").await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert!(boot_secret(berlin, "fresh-kube-system-bootstrap-config").is_some());
    assert!(boot_secret(berlin, "old-kube-system-bootstrap-config").is_none());
    world.management.skip_revisions(OTHERS);
    berlin.skip_revisions(OTHERS);
    Backups { management, worker }
}

/// The same profiles and machine deployments in a world where nothing else ever happened.
async fn undisturbed(world: &World) -> snapshot::Snapshot {
    let mut fresh = World::new(&BOTH);
    fresh.settings = world.settings.clone();
    for name in BOTH {
        fresh.register(name);
        copy(world.worker(name), fresh.worker(name), "machinedeployments");
    }
    let (from, to) = (&world.management, &fresh.management);
    copy(from, to, "operatingsystemprofiles");
    let process = fresh.start_settled().await;
    process.stop().await;
    snapshot::take(&fresh)
}

/// Copies what people made: not the default profiles.
fn copy(from: &Cluster, to: &Cluster, resource: &str) {
    for mut found in from.objects(resource) {
        if text(&found, "/metadata/name").starts_with("osp-") {
            continue;
        }
        let named = |field: &str| text(&found, &format!("/metadata/{field}")).to_owned();
        let mut metadata = json!({"name": named("name"), "namespace": named("namespace")});
        if let Some(annotations) = found.pointer("/metadata/annotations") {
            set(&mut metadata, "/annotations", annotations.clone());
        }
        set(&mut found, "/metadata", metadata);
        put(to, found);
    }
}

/// The Secrets of a worker cluster's machines that were deleted since the audits were cleared: a
/// document that other machines get.
fn rotated(worker: &Cluster) -> BTreeSet<String> {
    let mut writes = worker.writes();
    writes.retain(|it| it.verb == Verb::Delete && it.target.namespace == "cloud-init-settings");
    writes.into_iter().map(|it| it.target.name).collect()
}

async fn heals(restored: Restored, revisions: Revisions) {
    let world = a_world();
    let life = Life::new();
    let process = world.start_as(&life);
    let backups = a_day(&world).await;
    world.clear_audits();
    let berlin = world.worker("berlin");
    if restored != Restored::Worker {
        world.management.restore(&backups.management, revisions);
    }
    if restored != Restored::Management {
        berlin.restore(&backups.worker, revisions);
    }
    // Watches that resume from a version that is no more are silent until each has begun again
    // with a list, for profiles after eight hours. A config of a machine deployment that is gone
    // is found when those are listed.
    let wait = match (restored, revisions) {
        (Restored::Worker, Revisions::AreBumped) => Duration::from_mins(10),
        (Restored::Worker, Revisions::GoBack) | (_, Revisions::AreBumped) => {
            Duration::from_hours(1)
        }
        (_, Revisions::GoBack) => Duration::from_hours(8),
    };
    tokio::time::sleep(wait).await;
    world.settle().await;
    let found = snapshot::take(&world);
    let wanted = undisturbed(&world).await;
    let case = format!("{restored:?} {revisions:?}");
    let difference = snapshot::difference(&wanted, &found);
    assert_eq!(difference, None, "{case}");
    assert_eq!(rotated(berlin), BTreeSet::new(), "{case}: nothing changed");
    let of_lisbon: &[&str] = match restored {
        Restored::Worker => &[],
        // Its profile is that of a day ago.
        _ => &["lisboetas-kube-system-provisioning-config"],
    };
    let names = rotated(world.worker("lisbon"));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(names, of_lisbon, "{case}");
    next_process_finds_nothing_to_do(&world, process).await;
}

async fn next_process_finds_nothing_to_do(world: &World, process: Process) {
    process.stop().await;
    let life = Life::new();
    let process = world.start_settled_as(&life).await;
    process.stop().await;
    assert_eq!(life.lines(), [""; 0], "all was as it should be");
}

#[tokio::test(start_paused = true)]
async fn a_worker_cluster_restored_from_an_hour_ago_heals_and_rotates_nothing() {
    heals(Restored::Worker, Revisions::GoBack).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_cluster_restored_with_bumped_revisions_heals_and_rotates_nothing() {
    heals(Restored::Worker, Revisions::AreBumped).await;
}

#[tokio::test(start_paused = true)]
async fn a_management_cluster_restored_from_a_day_ago_rotates_what_has_another_profile() {
    heals(Restored::Management, Revisions::GoBack).await;
}

#[tokio::test(start_paused = true)]
async fn a_management_cluster_restored_with_bumped_revisions_rotates_what_has_another_profile() {
    heals(Restored::Management, Revisions::AreBumped).await;
}

#[tokio::test(start_paused = true)]
async fn both_clusters_restored_at_once_heal() {
    heals(Restored::Both, Revisions::GoBack).await;
}

#[tokio::test(start_paused = true)]
async fn both_clusters_restored_at_once_with_bumped_revisions_heal() {
    heals(Restored::Both, Revisions::AreBumped).await;
}

/// The backup shows one that has left since and not the one that has come: it ends, the other is
/// waited for, and the next that comes is seen.
async fn replicas_agree_again(revisions: Revisions) {
    let mut fleet = Fleet::new();
    let [a, b, leaving] = fleet.start_all(["a", "b", "c"]).await;
    let backup = fleet.world.management.backup();
    leaving.process.stop().await;
    let coming = fleet.start("d");
    fleet.agreed().await;
    assert!(!fleet.has_lease("c"));
    fleet.world.management.skip_revisions(OTHERS);
    fleet.world.management.restore(&backup, revisions);
    let ended = coming.process.ended().await.expect_err("its Lease is lost");
    assert!(ended.to_string().contains("Lease osm-d is lost"));
    let name = fleet.change();
    tokio::time::sleep(LEASE * 3).await;
    fleet.all_served(&[name]).await;
    fleet.check_order();
    assert!(!fleet.has_lease("c"), "its Lease was ended again");
    let e: Replica = fleet.start("e");
    fleet.agreed().await;
    let name = fleet.change();
    tokio::time::sleep(AGREED).await;
    fleet.all_served(&[name]).await;
    fleet.check_order();
    let taken = fleet.owned_by("e").len();
    assert!((1..=4).contains(&taken), "{taken} went to the new replica");
    stop_all([a, b, e]).await;
}

#[tokio::test(start_paused = true)]
async fn replicas_agree_again_when_the_versions_of_their_leases_went_back() {
    replicas_agree_again(Revisions::GoBack).await;
}

#[tokio::test(start_paused = true)]
async fn replicas_agree_again_when_the_versions_of_their_leases_were_bumped() {
    replicas_agree_again(Revisions::AreBumped).await;
}
