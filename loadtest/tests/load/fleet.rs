//! What the load test guards in CI: counts and ratios, never times. A small fleet and the `osm` of
//! the build; the reason for each bound stands beside it.
//!
//! The `osm` beside the load test is what `cargo test --workspace` builds; after a change of the
//! manager, `cargo test -p loadtest` alone would test the old one.

use std::path::Path;
use std::time::Duration;

use loadtest::load::{
    fleet::Fleet, measure::Sample, requests::Requests, stage::Params, stage::Stage,
};

/// Tenants of the small fleet, and of the larger one that it grows to.
const FEW: usize = 50;
const MANY: usize = 200;
/// What one more tenant with one machine deployment may take. A debug build on a busy machine took
/// 211 KiB; a copy of the default profiles for each tenant would be 400 KiB more, and their
/// compiled templates as much again.
const KIB_PER_TENANT_MAX: u64 = 500;
/// One connection for each worker cluster, and some that are between two states.
const DESCRIPTORS_PER_TENANT_MAX: u64 = 2;
/// Three gauges for each worker cluster, and no label with an open value beside them.
const SERIES_PER_TENANT_MAX: u64 = 3;
/// What it takes to serve a new tenant with one machine deployment: 17 to engage and prepare, 10
/// WorkerClusters and profiles, of which some are asked for twice, 10 for the machine deployment,
/// and four to find out whether another program serves the cluster, and which ServiceAccount the
/// fetcher's token is for.
/// Watches, Events and statuses are left out: of those there are more the slower a machine is.
const REQUESTS_PER_NEW_TENANT_MAX: u64 = 49;
/// What a raised revision takes: the annotations of a config and two Secrets, and one to spare.
const REQUESTS_PER_CHANGE_MAX: u64 = 4;
/// After a restart each tenant's status is applied once more, and found to be what it was.
const STATUSES_PER_RESTART_MAX: u64 = 1;
/// A busy machine must not make failures, nor so much time go by that a clock makes work.
const PATIENT: [&str; 10] = [
    "--request-timeout",
    "5m",
    "--lease-duration",
    "20m",
    "--instance",
    "osm-0",
    "--facts-interval",
    "1d",
    "--token-lifetime",
    "1d",
];

async fn a_stage(tenants: usize) -> Stage {
    let binary = Path::new(env!("CARGO_BIN_EXE_loadtest"));
    let params = Params {
        arguments: PATIENT.map(str::to_owned).to_vec(),
        ..Params::in_memory(binary.with_file_name("osm"), tenants)
    };
    Stage::new(params).await.expect("a fleet in memory starts")
}

/// Registers all, waits until all are served, and looks.
async fn served(stage: &mut Stage) -> Sample {
    let registered = stage.register_all().await;
    registered.expect("Secrets are stored");
    let served = stage.until_all_served(1).await;
    served.expect("all are served");
    stage.settle().await.expect("the manager runs");
    stage.sample().await.expect("the manager is looked at")
}

fn per_tenant(before: u64, after: u64, tenants: usize) -> u64 {
    after.saturating_sub(before) / u64::try_from(tenants).expect("a few")
}

/// Requests but for those of which a slow machine sees more.
fn needed(requests: &Requests) -> u64 {
    let depends_on_time = ["watch", "events", "workerclusters/status"];
    let kinds = requests.by_kind.iter();
    let needed = kinds.filter(|(kind, _)| !kind.split(' ').any(|it| depends_on_time.contains(&it)));
    needed.map(|(_, count)| count).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_tenant_costs_the_same_and_a_fleet_at_rest_costs_nothing() {
    let mut stage = a_stage(FEW).await;
    stage.start().await.expect("the manager starts");
    let few = served(&mut stage).await;
    Requests::take(&stage.fleet);
    stage.fleet.grow(MANY, 1).await.expect("it grows");
    let many = served(&mut stage).await;
    let requests = Requests::take(&stage.fleet);
    let more = MANY - FEW;
    let memory = per_tenant(few.resident_kib, many.resident_kib, more);
    let descriptors = per_tenant(few.descriptors, many.descriptors, more);
    let series = per_tenant(few.series, many.series, more);
    let asked = per_tenant(0, needed(&requests), more);
    println!("each tenant: {memory} KiB, {descriptors} fds, {series} series, {asked} requests");
    assert!(memory <= KIB_PER_TENANT_MAX, "{memory} KiB per tenant");
    assert!(
        descriptors <= DESCRIPTORS_PER_TENANT_MAX,
        "{descriptors} per tenant"
    );
    assert!(series <= SERIES_PER_TENANT_MAX, "{series} per tenant");
    assert!(
        asked <= REQUESTS_PER_NEW_TENANT_MAX,
        "{asked}: {requests:?}"
    );

    // Half a minute of nothing: a poll of any kind would show, and so would a write.
    stage.rest(Duration::from_secs(30)).await.expect("it runs");
    let requests = Requests::take(&stage.fleet);
    assert_eq!(
        requests.total(),
        0,
        "a fleet at rest is left alone: {requests:?}"
    );

    for worker in &stage.fleet.workers {
        let revisions = worker.revisions();
        let raised = revisions.raise("pool-0", 2).await;
        raised.expect("the revision is raised");
    }
    let served = stage.until_all_served(2).await;
    served.expect("all are served again");
    stage.settle().await.expect("it runs");
    let requests = Requests::take(&stage.fleet);
    let asked = per_tenant(0, needed(&requests), MANY);
    println!("each change: {asked} requests");
    assert!(asked <= REQUESTS_PER_CHANGE_MAX, "{asked}: {requests:?}");

    stage.stop().await.expect("it ends in order");
    stage.start().await.expect("it starts again");
    let watched = stage.until("all are watched again", Fleet::is_watched);
    watched.await.expect("all are watched again");
    stage.settle().await.expect("it runs");
    let requests = Requests::take(&stage.fleet);
    assert_eq!(requests.writes, 0, "nothing is written: {requests:?}");
    let applied = per_tenant(0, requests.mutating, MANY);
    assert!(applied <= STATUSES_PER_RESTART_MAX, "{requests:?}");
    stage.stop().await.expect("it ends in order");
}
