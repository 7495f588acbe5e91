//! Scenarios of the load test in a fleet of a few tenants: that each gets to its end, and that what
//! it counts is what it must be. Times depend on the machine, and are not checked.
//!
//! They run the `osm` beside the load test, as `load.rs` does.

use std::path::Path;
use std::time::Duration;

use loadtest::demo::cluster::Kind;
use loadtest::load::{outcome::Outcome, scenario::Scenario, stage::Params};

/// Every kind of tenant that a scenario tells apart is there twice or more.
const TENANTS: usize = 6;
/// Machine deployments appear for so long.
const WINDOW: Duration = Duration::from_secs(2);

async fn play(scenario: Scenario, management: Kind) -> Outcome {
    let binary = Path::new(env!("CARGO_BIN_EXE_loadtest"));
    let params = Params {
        window: WINDOW,
        management,
        // A busy machine must not make failures.
        arguments: vec![
            "--request-timeout=30s".to_owned(),
            "--lease-duration=40s".to_owned(),
        ],
        ..Params::in_memory(binary.with_file_name("osm"), TENANTS)
    };
    scenario.run(params).await.expect("it gets to its end")
}

/// Figures must be these.
fn check(outcome: &Outcome, expected: &[(&str, f64)]) {
    for (name, expected) in expected {
        let found = outcome.figure(name);
        let is_equal = found.is_some_and(|it| (it.value - expected).abs() < 1e-6);
        assert!(is_equal, "{name}: {found:?}, {:?}", outcome.requests);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_profiles_come_to_their_limits_beside_tenants_that_are_served() {
    // Its end says that every machine deployment of the others was served.
    let outcome = play(Scenario::Hostile, Kind::Fake).await;
    let limits = outcome.figure("renders that came to a limit");
    assert!(limits.is_some_and(|it| it.value > 0.0), "{limits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_is_served_renewed_and_given_back_without_a_write_to_its_user_clusters() {
    let outcome = play(Scenario::Kkp, Kind::Fake).await;
    check(
        &outcome,
        &[
            ("writes at rest", 0.0),
            ("writes to user clusters by a renewal", 0.0),
            ("writes to user clusters by a tenth back and forth", 0.0),
            ("writes to user clusters by all back and forth", 0.0),
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn default_profiles_take_little_of_etcd_in_each_tenant() {
    let outcome = play(Scenario::Idle, Kind::Fake).await;
    let kib = |what: &str| {
        let found = outcome.figure(&format!("etcd per tenant, {what}"));
        found.expect("it is measured").value
    };
    // Nine thin profiles of 1.3 KiB, and a sixth of nine contents of 45 KiB.
    let profiles = kib("operatingsystemprofiles");
    assert!((60.0..90.0).contains(&profiles), "{profiles}");
    let others = kib("workerclusters") + kib("secrets");
    assert!(others < 8.0, "{others}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_management_cluster_says_what_a_tenant_takes_in_etcd() {
    let outcome = play(Scenario::Idle, Kind::Real).await;
    check(&outcome, &[("writes at rest", 0.0)]);
    let bytes = outcome.figure("management etcd per tenant, by etcd");
    // Three configs of 25 KiB, a sixth of the default profiles' contents, and not many times that.
    assert!(
        bytes.is_some_and(|it| (100.0..1000.0).contains(&it.value)),
        "{bytes:?}"
    );
}
