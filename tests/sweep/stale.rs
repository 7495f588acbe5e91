//! Watches that lose events, break, expire or bring what cannot be read; lists that show the
//! past. In the end everything stands as it should, and nothing swings back and forth.

use std::{sync::Arc, time::Duration};

use fake_cluster::{Cluster, Fault, Matcher, Verb, object};
use serde_json::{Value, json};

use crate::{
    fixtures,
    scenarios::{BOOTSTRAP, PROVISIONING, Scenario, document, profile, set},
    snapshot::{self, boot_secret, text},
    wire::Life,
    world::{World, put},
};

/// What is promised, and not what the manager is set to: so a longer interval fails here. With time
/// to put right what was found.
const HOUR: Duration = Duration::from_secs(3600 + 30);
/// As above, for profiles.
const EIGHT_HOURS: Duration = Duration::from_secs(8 * 3600 + 30);

/// No watch of these resources brings anything.
pub fn deafen(cluster: &Cluster, resource: &str) {
    let lost = Fault::DropWatchEvents(Arc::new(|_| true));
    cluster.inject(Matcher::on(&[Verb::Watch], resource), lost);
}

/// The watches break, and cannot go on from where they were: everything is listed again.
pub fn expire(cluster: &Cluster) {
    cluster.clear_faults();
    cluster.skip_revisions(10);
    cluster.compact();
    cluster.close_watches();
}

#[tokio::test(start_paused = true)]
async fn a_default_profile_that_the_watch_shows_late_is_asked_for_once_and_then_once_more() {
    let world = World::with_berlin();
    let of_ubuntu = |event: &Value| event.pointer("/metadata/name") == Some(&json!("osp-ubuntu"));
    let lost = Fault::DropWatchEvents(Arc::new(of_ubuntu));
    let watches = Matcher::on(&[Verb::Watch], "operatingsystemprofiles");
    world.management.inject(watches, lost);
    let process = world.start();
    let asked = async |seconds| {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let mut all = world.management.audit();
        all.retain(|it| it.target.resource == "operatingsystemprofiles");
        all.retain(|it| it.verb == Verb::Create);
        all.retain(|it| it.target.namespace == "berlin");
        all.iter().map(|it| it.code).collect::<Vec<_>>()
    };
    let told = asked(5).await;
    assert_eq!(told, [201, 201], "the other's event says nothing of it");
    let told = asked(60).await;
    assert_eq!(told, [201, 201, 409], "it is there, and that is enough");
    process.stop().await;
}

/// No watch ever breaks or says that it is behind: each starts over with a list, in its own time.
#[tokio::test(start_paused = true)]
async fn changes_of_lost_events_are_found_within_the_hour() {
    let (world, process, _) = Scenario::Provisioning.settled_with_life().await;
    let before = snapshot::take(&world);
    let berlin = world.worker("berlin");
    for resource in ["secrets", "machinedeployments"] {
        deafen(berlin, resource);
    }
    for resource in ["operatingsystemconfigs", "workerclusters", "secrets"] {
        deafen(&world.management, resource);
    }
    assert!(berlin.delete_raw(object("secrets", "cloud-init-settings", PROVISIONING)));
    let config = "workers-kube-system-config";
    let config = object("operatingsystemconfigs", "berlin", config);
    assert!(world.management.delete_raw(config));
    put(berlin, fixtures::a_machine_deployment("more"));
    tokio::time::sleep(HOUR).await;
    assert!(boot_secret(berlin, "more-kube-system-bootstrap-config").is_some());
    assert!(berlin.delete_raw(object("machinedeployments", "kube-system", "more")));
    tokio::time::sleep(HOUR).await;
    process.stop().await;
    assert_eq!(snapshot::difference(&before, &snapshot::take(&world)), None);
}

#[tokio::test(start_paused = true)]
async fn a_profile_whose_event_was_lost_is_read_within_eight_hours() {
    let (world, process, _) = Scenario::Provisioning.settled_with_life().await;
    deafen(&world.management, "operatingsystemprofiles");
    profile(&world, "another text\n");
    tokio::time::sleep(EIGHT_HOURS).await;
    process.stop().await;
    assert!(document(world.worker("berlin"), PROVISIONING).contains("another text"));
}

/// The initial sync shows the past; watches show the present.
#[tokio::test(start_paused = true)]
async fn a_stale_list_is_put_right_without_swinging() {
    let (world, process, _) = Scenario::Provisioning.settled_with_life().await;
    profile(&world, "another text\n");
    world.settle().await;
    let before = snapshot::take(&world);
    process.stop().await;
    for (_, cluster) in world.clusters() {
        for resource in ["secrets", "operatingsystemconfigs", "machinedeployments"] {
            let stale = Fault::StaleList { revisions: 8 };
            cluster.inject_times(Matcher::on(&[Verb::List], resource), stale, 2);
        }
    }
    world.clear_audits();
    let process = world.start_settled().await;
    process.stop().await;
    assert_eq!(snapshot::difference(&before, &snapshot::take(&world)), None);
    // What it takes for missing is refused as existing, and then seen.
    let mut written = world.writes();
    written.retain(|line| !line.contains("/status"));
    assert_eq!(written, [""; 0], "nothing had to be written");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_cannot_be_read_is_asked_for_with_care_and_in_the_end_read() {
    let world = Scenario::Provisioning.world();
    let berlin = world.worker("berlin");
    let matcher = Matcher::on(&[Verb::List, Verb::Watch], "machinedeployments");
    let bad = berlin.inject(matcher, Fault::BadObject);
    let life = Life::new();
    let process = world.start_as(&life);
    tokio::time::sleep(Duration::from_mins(10)).await;
    let mut lists = life.sent();
    lists.retain(|sent| sent.path.ends_with("/machinedeployments"));
    assert!(lists.len() < 90, "{} lists in ten minutes", lists.len());
    assert!(boot_secret(berlin, BOOTSTRAP).is_none());
    berlin.clear_fault(bad);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(boot_secret(berlin, BOOTSTRAP).is_some());
    process.stop().await;
}

/// Between two pages of a list its first page becomes too old.
async fn expire_between_pages(cluster: &Cluster, resource: &str) {
    let second = Matcher {
        nth: Some(2),
        ..Matcher::on(&[Verb::List], resource)
    };
    let delay = Fault::Delay(Duration::from_secs(3));
    let pause = cluster.inject(second, delay);
    cluster.skip_revisions(10);
    cluster.compact();
    cluster.close_watches();
    let tokens_before = expired_tokens(cluster);
    let is_listed = |cluster: &Cluster| lists(cluster, resource) > 0;
    cluster.wait_until(is_listed).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.skip_revisions(10);
    cluster.compact();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(
        expired_tokens(cluster) > tokens_before,
        "a page was refused"
    );
    cluster.clear_fault(pause);
}

fn lists(cluster: &Cluster, resource: &str) -> usize {
    cluster.count_requests(|it| it.verb == Verb::List && it.target.resource == resource)
}

/// Lists whose continue token was too old.
fn expired_tokens(cluster: &Cluster) -> usize {
    cluster.count_requests(|it| it.verb == Verb::List && it.code == 410)
}

#[tokio::test(start_paused = true)]
async fn a_list_that_expires_between_two_pages_starts_over_and_loses_nothing() {
    let (world, process, life) = Scenario::Provisioning.settled_with_life().await;
    let before = snapshot::take(&world);
    // `own`, which the machine deployment uses, stands on the second page.
    let profiles = (0..110).map(|number| {
        let mut profile = fixtures::a_profile("berlin", "v1.0.0", "text\n");
        let name = json!(format!("a{number:03}"));
        set(&mut profile, "/metadata/name", name);
        put(&world.management, profile)
    });
    let profiles: Vec<Value> = profiles.collect();
    // And more machine deployments than fit on one page, which nothing is made for.
    let berlin = world.worker("berlin");
    let machine_deployments = (0..110).map(|number| {
        let mut found = fixtures::a_machine_deployment(&format!("a{number:03}"));
        set(&mut found, "/spec/template", json!("unreadable"));
        put(berlin, found)
    });
    let machine_deployments: Vec<Value> = machine_deployments.collect();
    world.settle().await;
    world.clear_audits();
    life.forget();
    expire_between_pages(&world.management, "operatingsystemprofiles").await;
    expire_between_pages(berlin, "machinedeployments").await;
    world.settle().await;
    assert_eq!(life.lines(), [""; 0]);
    // It is whole: what stands on any page is known.
    for (cluster, found) in [(&world.management, profiles), (berlin, machine_deployments)] {
        for one in found {
            let name = text(&one, "/metadata/name");
            let namespace = text(&one, "/metadata/namespace");
            let resource = match text(&one, "/kind") {
                "MachineDeployment" => "machinedeployments",
                _ => "operatingsystemprofiles",
            };
            assert!(cluster.delete_raw(object(resource, namespace, name)));
        }
    }
    profile(&world, "another text\n");
    world.settle().await;
    assert!(document(berlin, PROVISIONING).contains("another text"));
    world.add_profile("berlin", "v1.0.0", "text\n");
    world.settle().await;
    process.stop().await;
    assert_eq!(snapshot::difference(&before, &snapshot::take(&world)), None);
}
