//! What happens is measured: each metric moves when its thing happens, and what concerns one tenant
//! goes with it.

use std::{sync::Arc, time::Duration};

use fake_cluster::{Fault, Matcher, Verb, object};
use osm::{
    telemetry::metrics::Metrics,
    tenant::{
        policies::{Match, PolicyRule},
        policy::TenantPolicy,
    },
};
use serde_json::json;

use crate::{
    scenarios::{change, set},
    wire::Life,
    world::{Process, World},
};

/// A manager that counts, with the tenant `berlin`.
struct Measured {
    world: World,
    metrics: Metrics,
    process: Process,
}

impl Measured {
    async fn start() -> Self {
        let measured = Self::start_in(World::with_berlin());
        measured.world.settle().await;
        measured
    }

    fn start_in(world: World) -> Self {
        let metrics = Metrics::new();
        let process = world.start_measured(&Life::new(), &metrics);
        Self {
            world,
            metrics,
            process,
        }
    }

    /// The value of a series in whole numbers; none where there is no such series.
    fn find(&self, series: &str) -> Option<i64> {
        let page = self.metrics.encode();
        let mut lines = page.lines().filter_map(|line| line.rsplit_once(' '));
        let (_, value) = lines.find(|(name, _)| name.trim_end_matches("{}") == series)?;
        let whole = value.split('.').next().unwrap_or_default();
        Some(whole.parse().expect("a value is a number"))
    }

    fn value(&self, series: &str) -> i64 {
        let found = self.find(series);
        assert!(
            found.is_some(),
            "{series} is not in\n{}",
            self.metrics.encode()
        );
        found.unwrap_or_default()
    }

    async fn serve_workers(&self) {
        self.world.deploy("berlin", "workers");
        self.world.settle().await;
    }

    /// Another content of the tenant's profile.
    async fn change_profile(&self, version: &str, text: &str) {
        self.world.add_profile("berlin", version, text);
        self.world.settle().await;
    }

    /// Seconds from now until the first token ends.
    fn token_left(&self) -> i64 {
        let end = self.value("osm_bootstrap_token_first_end_timestamp_seconds");
        end - self.now()
    }

    fn now(&self) -> i64 {
        self.world.clock().now().as_second()
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_machine_deployment_brings_about_is_counted() {
    let measured = Measured::start().await;
    assert_eq!(measured.value("osm_bootstrap_tokens"), 0);
    let change = r#"osm_reconcile_triggers_total{trigger="change"}"#;
    assert_eq!(measured.value(change), 0);
    measured.serve_workers().await;
    assert!(measured.value(change) >= 1);
    for (series, least) in [
        (r#"osm_renders_total{result="rendered"}"#, 1),
        ("osm_render_duration_seconds_count", 1),
        ("osm_render_permit_wait_seconds_count", 1),
        (
            r#"osm_reconcile_queue_wait_seconds_count{outcome="served"}"#,
            1,
        ),
        (r#"osm_engage_duration_seconds_count{result="success"}"#, 1),
        (
            r#"osm_api_request_duration_seconds_count{cluster_kind="worker"}"#,
            5,
        ),
        (
            r#"osm_api_throttle_wait_seconds_count{cluster_kind="worker"}"#,
            5,
        ),
        (r#"osm_user_data_bytes_count{document="bootstrap"}"#, 1),
        (r#"osm_secrets_written_total{kind="provisioning"}"#, 1),
    ] {
        assert!(measured.value(series) >= least, "{series}");
    }
    assert_eq!(measured.value("osm_bootstrap_tokens"), 1);
    let (left, hour) = (measured.token_left(), 3_600);
    assert!(left > 0 && left <= hour, "{left}");
    // A day later it was renewed over and over, each time because it was time.
    tokio::time::sleep(Duration::from_hours(24)).await;
    let time = measured.value(r#"osm_reconcile_triggers_total{trigger="time"}"#);
    assert!(time >= 24, "{time}");
    assert!(measured.value("osm_bootstrap_tokens_renewed_total") >= 24);
    assert!(measured.token_left() > 0);
    measured.process.stop().await;
}

/// A world in which the label of its namespace puts the tenant `berlin` into the class `gold`.
fn world_with_a_class() -> World {
    let mut world = World::with_berlin();
    let tier = json!({"tier": "gold"});
    change(
        &world.management,
        ("namespaces", "", "berlin"),
        |namespace| set(namespace, "/metadata/labels", tier),
    );
    let policies = Arc::make_mut(&mut world.settings.policies);
    policies.rules.push(PolicyRule {
        applies_to: Match::NamespaceLabels([("tier".to_owned(), "gold".to_owned())].into()),
        policy: Arc::new(TenantPolicy {
            class: "gold".parse().expect("it is a class"),
            ..(*policies.default).clone()
        }),
    });
    world
}

#[tokio::test(start_paused = true)]
async fn what_objectives_limit_is_measured_by_class_and_counted_once() {
    let measured = Measured::start_in(world_with_a_class());
    measured.world.settle().await;
    let engaged = r#"osm_time_to_engaged_seconds_count{class="gold"}"#;
    let served = r#"osm_time_to_served_seconds_count{class="gold"}"#;
    let sum = r#"osm_time_to_served_seconds_sum{class="gold"}"#;
    assert_eq!(measured.value(engaged), 1);
    assert_eq!(measured.value(served), 0);
    measured.serve_workers().await;
    assert_eq!(measured.value(served), 1);
    assert_eq!(measured.value(sum), 0);
    // A change that cannot be written for longer than any objective allows counts while it fails,
    // and its success does not count again.
    let worker = measured.world.worker("berlin");
    let writes = Matcher::on(&[Verb::Create, Verb::Update, Verb::Patch], "secrets");
    worker.inject(writes, Fault::status(422));
    measured.world.deploy("berlin", "others");
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(measured.value(served), 2);
    // A whole number of seconds, rounded down.
    assert!(measured.value(sum) >= 30, "{}", measured.value(sum));
    worker.clear_faults();
    measured.world.settle().await;
    assert_eq!(measured.value(served), 2);
    for other in [engaged, served].map(|series| series.replace("gold", "default")) {
        assert_eq!(measured.value(&other), 0, "{other}");
    }
    measured.process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_reconcile_is_for_and_how_its_render_ends_is_counted() {
    let measured = Measured::start().await;
    measured.serve_workers().await;
    let profile = r#"osm_reconcile_triggers_total{trigger="profile"}"#;
    let before = measured.value(profile);
    let endless =
        "{% for a in range(900) %}{% for b in range(900) %}{{ b }}{% endfor %}{% endfor %}";
    measured.change_profile("v1.0.1", endless).await;
    assert!(measured.value(profile) > before);
    let limit = r#"osm_template_limits_hit_total{limit="instructions"}"#;
    assert_eq!(measured.value(limit), 1);
    assert_eq!(measured.value(r#"osm_renders_total{result="refused"}"#), 1);
    // Random enough that no compression makes it fit.
    let large: Vec<String> = (0..90_000_u64)
        .map(|number| format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    measured.change_profile("v1.0.2", &large.concat()).await;
    let ended = ["refused", "too_large"]
        .map(|result| measured.value(&format!("osm_renders_total{{result=\"{result}\"}}")));
    assert_eq!(ended.iter().sum::<i64>(), 2, "{ended:?}");
    measured.process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_known_of_a_tenant_goes_with_it() {
    let measured = Measured::start().await;
    measured.serve_workers().await;
    let last_success = "osm_cluster_last_success_timestamp_seconds\
                        {worker_cluster=\"berlin/berlin\",cluster=\"berlin/berlin\"}";
    assert!(measured.find(last_success).is_some());
    assert_eq!(measured.value("osm_bootstrap_tokens"), 1);
    let registration = object("secrets", "berlin", "berlin");
    assert!(measured.world.management.delete_raw(registration));
    measured.world.settle().await;
    assert!(!measured.metrics.encode().contains("berlin"));
    assert_eq!(measured.value("osm_bootstrap_tokens"), 0);
    let end = "osm_bootstrap_token_first_end_timestamp_seconds";
    assert_eq!(measured.find(end), None);
    measured.process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn tokens_that_nobody_can_renew_are_seen_to_end() {
    let measured = Measured::start().await;
    measured.serve_workers().await;
    let worker = measured.world.worker("berlin");
    worker.inject(Matcher::any(), Fault::ConnectionRefused);
    tokio::time::sleep(Duration::from_hours(3)).await;
    assert!(measured.token_left() < -3_600);
    worker.clear_faults();
    measured.world.settle().await;
    assert!(measured.token_left() > 0);
    measured.process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_not_renewed_is_seen_to_end() {
    let mut world = World::with_berlin();
    world.settings.replica.lease_duration = Duration::from_secs(15);
    let measured = Measured::start_in(world);
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(measured.value("osm_fleet_members"), 1);
    let left = || measured.value("osm_lease_end_timestamp_seconds") - measured.now();
    assert!(left() > 10, "{}", left());
    let failed = r#"osm_lease_renewals_total{result="failure"}"#;
    assert_eq!(measured.value(failed), 0);
    let writes = Matcher::on(&[Verb::Patch], "leases");
    let fault = Fault::status(500);
    measured.world.management.inject(writes, fault);
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert!(measured.value(failed) >= 2);
    assert!(left() < 5, "{}", left());
    measured.process.kill().await;
}
