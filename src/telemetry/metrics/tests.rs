use super::*;
use crate::telemetry::metrics::reference::{Declaration, Type, Values};

fn has(metrics: &Metrics, line: &str) {
    let text = metrics.encode();
    assert!(
        text.lines().any(|found| found == line),
        "{line} is not in\n{text}"
    );
}

const CLUSTER: &str = "tenant-a/prod";

/// Everything that can happen, once.
fn everything() -> Metrics {
    let metrics = Metrics::new();
    metrics.triggered(Trigger::Change);
    let took = Took {
        queue: Duration::from_millis(3),
        work: Duration::from_millis(40),
    };
    metrics.reconciled(Outcome::Served, took);
    metrics.time_to_served("gold", Duration::from_millis(43));
    metrics.time_to_engaged("gold", Duration::from_secs(31));
    metrics.permit_waited(Duration::from_millis(3));
    metrics.rendered(RenderResult::Rendered, Duration::from_millis(2));
    metrics.template_limit_hit(TemplateLimit::Work);
    metrics.failed("profile_not_found");
    let asked = Asked {
        cluster_kind: ClusterKind::Worker,
        verb: Verb::List,
    };
    metrics.api_request(asked, CodeClass::of(429), Duration::from_millis(7));
    metrics.throttled(ClusterKind::Worker, Duration::from_secs(2));
    metrics.fenced(Fence::LetGo);
    metrics.user_data_rendered(Document::Bootstrap, 5321);
    metrics.secret_written(SecretKind::Provisioning);
    metrics.token_renewed();
    let tokens = TokensKnown {
        count: 2,
        first_end: Some(Timestamp::constant(1_800_000_000, 0)),
    };
    metrics.set_tokens(CLUSTER, tokens);
    metrics.connected(Attempted::Failure, Duration::from_secs(3));
    metrics.engaged(Attempted::Success, Duration::from_millis(200));
    metrics.set_tenants(TenantState::Engaged, 1000);
    metrics.set_machine_deployments(Outcome::Served, 3000);
    metrics.set_expiring_kubeconfigs(CredentialState::Soon, 1);
    metrics.set_machine_rollout(MachineState::Outdated, 1);
    metrics.set_reporting(ReportState::Differ, 1);
    metrics.set_rollout(RolloutState::Settling, 1);
    metrics.set_rollout_paused(Paused::Yes);
    metrics.set_tasks(9);
    metrics.set_memory(1 << 20, Some(112 << 20));
    metrics.lease_written(Attempted::Success);
    metrics.set_lease_end(Timestamp::constant(1_800_000_000, 0));
    metrics.set_fleet_members(3);
    metrics.set_cluster(CLUSTER, Connection::Up);
    metrics.cluster_succeeded(CLUSTER, Timestamp::constant(1_800_000_000, 500_000_000));
    metrics.set_cluster_objects(CLUSTER, 7);
    metrics.reviewed(Webhook::Profile, Verdict::Allowed, Duration::from_millis(1));
    metrics.set_certificate_end(Timestamp::constant(1_800_000_000, 0));
    metrics
}

/// The name, the labels and the value of each series.
fn series(page: &str) -> Vec<(&str, Vec<(&str, &str)>)> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, rest) = line.split_once(['{', ' ']).unwrap();
            let labels = if line.as_bytes()[name.len()] == b'{' {
                rest.split_once('}').unwrap().0
            } else {
                ""
            };
            let pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
            let pairs = pairs.map(|(name, value)| (name, value.trim_matches('"')));
            (name, pairs.collect())
        })
        .collect()
}

fn declared(name: &str) -> &'static Declaration {
    let found = reference::ALL.iter().find(|declaration| {
        let ends = match declaration.kind {
            Type::Histogram => &["_bucket", "_sum", "_count"][..],
            _ => &[""],
        };
        let stem = declaration.name();
        ends.iter().any(|end| name == format!("{stem}{end}"))
    });
    found.unwrap_or_else(|| panic!("{name} is not declared"))
}

#[test]
fn what_is_declared_is_what_the_page_has() {
    let page = everything().encode();
    let mut found = std::collections::BTreeSet::new();
    for (name, labels) in series(&page) {
        let declaration = declared(name);
        found.insert(declaration.stem);
        let labels: Vec<_> = labels
            .into_iter()
            .filter(|(name, _)| *name != "le")
            .collect();
        assert_eq!(labels.len(), declaration.labels.len(), "{name}: {labels:?}");
        for (label, value) in labels {
            let known = declaration.labels.iter().find(|known| known.name == label);
            match known.expect(label).values {
                Values::Closed(values) => assert!(values.contains(&value), "{label}: {value}"),
                Values::Words(_) | Values::Configured(_) | Values::PerCluster(_) => {}
            }
        }
    }
    for declaration in reference::ALL {
        assert!(found.contains(declaration.stem), "{}", declaration.stem);
        let unit = declaration.unit.as_str();
        let family = declaration.name();
        let family = family.trim_end_matches("_total").trim_end_matches("_info");
        let mut lines = vec![
            format!("# HELP {family} {}.", declaration.help),
            format!("# TYPE {family} {}", declaration.kind.as_str()),
        ];
        if !unit.is_empty() {
            lines.push(format!("# UNIT {family} {unit}"));
        }
        for line in lines {
            assert!(page.lines().any(|found| found == line), "{line}: {page}");
        }
    }
}

/// Three series per cluster, and a fixed part that no fleet makes larger.
#[test]
fn a_thousand_clusters_have_at_most_3500_series() {
    // About as many kinds of errors as the source has.
    const WORDS: usize = 60;
    let metrics = everything();
    for number in 1..1_000 {
        let cluster = format!("tenant-{number}/prod");
        metrics.set_cluster(&cluster, Connection::Up);
        metrics.cluster_succeeded(&cluster, Timestamp::constant(1_800_000_000, 0));
        metrics.set_cluster_objects(&cluster, 12);
        let tokens = TokensKnown {
            count: 3,
            first_end: Some(Timestamp::constant(1_800_000_000, 0)),
        };
        metrics.set_tokens(&cluster, tokens);
    }
    let page = metrics.encode();
    let found = series(&page);
    let of_clusters = found
        .iter()
        .filter(|(_, labels)| labels.iter().any(|it| it.0 == "worker_cluster"));
    assert_eq!(of_clusters.count(), 3_000);
    has(&metrics, "osm_bootstrap_tokens 2999");
    // A histogram has more than one line for each set of values that its labels may have.
    let most: usize = reference::ALL
        .iter()
        .filter(|it| !it.stem.starts_with("osm_admission"))
        .map(|declaration| {
            let sets = declaration.labels.iter().map(|label| match label.values {
                Values::Closed(values) => values.len(),
                // A build has one, and so has the default class. The next test has what each other
                // class adds.
                Values::Words("the release" | "the commit, or `unknown`")
                | Values::Configured(_) => 1,
                Values::Words(_) => WORDS,
                Values::PerCluster(_) => 0,
            });
            sets.product::<usize>() * lines_of_one(&found, declaration)
        })
        .sum();
    assert!(most <= 500, "{most}");
}

/// How many lines one series of a metric has.
fn lines_of_one(found: &[(&str, Vec<(&str, &str)>)], declaration: &Declaration) -> usize {
    if declaration.kind != Type::Histogram {
        return 1;
    }
    let name = declaration.name();
    let count = |end: &str| {
        let name = format!("{name}{end}");
        found.iter().filter(|(found, _)| **found == name).count()
    };
    count("_bucket") / count("_count") + 2
}

#[test]
fn tokens_are_summed_up_and_a_cluster_that_goes_takes_its_own_along() {
    let metrics = Metrics::new();
    let line = "osm_bootstrap_token_first_end_timestamp_seconds";
    assert!(
        !metrics
            .encode()
            .lines()
            .any(|found| found.starts_with(line))
    );
    for (cluster, count, end) in [("a/a", 2, 1_800_000_000), ("b/b", 1, 1_700_000_000)] {
        let first_end = Some(Timestamp::constant(end, 0));
        metrics.set_tokens(cluster, TokensKnown { count, first_end });
    }
    has(&metrics, "osm_bootstrap_tokens 3");
    has(&metrics, &format!("{line} 1700000000.0"));
    metrics.remove_cluster("b/b");
    has(&metrics, "osm_bootstrap_tokens 2");
    has(&metrics, &format!("{line} 1800000000.0"));
    metrics.forget_tokens("a/a");
    assert!(
        !metrics
            .encode()
            .lines()
            .any(|found| found.starts_with(line))
    );
}

#[test]
fn what_is_counted_is_encoded_with_its_labels() {
    let metrics = everything();
    has(&metrics, r#"osm_reconciles_total{outcome="served"} 1"#);
    has(
        &metrics,
        r#"osm_reconcile_duration_seconds_bucket{le="0.05",outcome="served"} 1"#,
    );
    has(
        &metrics,
        r#"osm_reconcile_queue_wait_seconds_count{outcome="served"} 1"#,
    );
    has(
        &metrics,
        r#"osm_time_to_served_seconds_bucket{le="0.05",class="gold"} 1"#,
    );
    has(
        &metrics,
        r#"osm_time_to_engaged_seconds_bucket{le="30.0",class="gold"} 0"#,
    );
    has(&metrics, r#"osm_template_limits_hit_total{limit="work"} 1"#);
    has(
        &metrics,
        r#"osm_connect_duration_seconds_count{result="failure"} 1"#,
    );
    has(
        &metrics,
        r#"osm_failures_total{category="profile_not_found"} 1"#,
    );
    has(
        &metrics,
        r#"osm_api_requests_total{cluster_kind="worker",verb="list",code="429"} 1"#,
    );
    has(
        &metrics,
        r#"osm_api_throttle_wait_seconds_sum{cluster_kind="worker"} 2.0"#,
    );
    has(&metrics, r#"osm_fenced_writes_total{reason="let_go"} 1"#);
    has(&metrics, r#"osm_fenced_writes_total{reason="lease"} 0"#);
    has(
        &metrics,
        r#"osm_user_data_bytes_bucket{le="8192.0",document="bootstrap"} 1"#,
    );
    has(
        &metrics,
        r#"osm_secrets_written_total{kind="provisioning"} 1"#,
    );
    has(&metrics, "osm_bootstrap_tokens_renewed_total 1");
    has(&metrics, r#"osm_tenants{state="engaged"} 1000"#);
    has(
        &metrics,
        concat!(
            r#"osm_build_info{version=""#,
            env!("CARGO_PKG_VERSION"),
            r#"",commit="unknown",component="manager"} 1"#
        ),
    );
}

#[test]
fn each_series_of_a_fleet_names_it() {
    let metrics = Metrics::of(Component::Manager, Some("canary"));
    metrics.set_cluster("tenant-b/prod", Connection::Up);
    let page = metrics.encode();
    for (name, labels) in series(&page) {
        assert!(labels.contains(&("fleet", "canary")), "{name}");
    }
}

#[test]
fn counters_start_at_zero_before_anything_happens() {
    let metrics = Metrics::new();
    for outcome in Outcome::ALL {
        has(
            &metrics,
            &format!(
                r#"osm_reconciles_total{{outcome="{}"}} 0"#,
                outcome.as_str()
            ),
        );
    }
    has(
        &metrics,
        r#"osm_secrets_written_total{kind="bootstrap-token"} 0"#,
    );
    assert!(metrics.encode().ends_with("# EOF\n"));
}

/// Each class adds 16 series, which [`Metrics::begin_class`] creates.
#[test]
fn a_class_has_sixteen_series_from_its_beginning() {
    let metrics = Metrics::new();
    let count = || series(&metrics.encode()).len();
    let before = count();
    metrics.begin_class("gold");
    assert_eq!(count() - before, 16);
    has(
        &metrics,
        r#"osm_time_to_served_seconds_count{class="gold"} 0"#,
    );
    metrics.time_to_served("gold", Duration::from_secs(1));
    assert_eq!(count() - before, 16);
}

/// The last boundary is what a wait has to exceed to be counted although it has not ended.
#[test]
fn a_late_wait_is_in_no_bucket_but_the_last() {
    let metrics = everything();
    let boundary = pending::LATE.as_secs_f64();
    let last =
        format!("osm_time_to_engaged_seconds_bucket{{le=\"{boundary:.1}\",class=\"gold\"}} 0");
    has(&metrics, &last);
    let page = metrics.encode();
    let buckets = series(&page);
    let buckets = buckets
        .iter()
        .filter(|(name, _)| *name == "osm_time_to_engaged_seconds_bucket");
    let boundaries = buckets.filter_map(|(_, labels)| labels[0].1.parse::<f64>().ok());
    let last = boundaries
        .filter(|it| it.is_finite())
        .max_by(f64::total_cmp);
    assert_eq!(last, Some(boundary));
}

#[test]
fn a_removed_cluster_leaves_no_series_and_its_neighbour_keeps_its_own() {
    let metrics = Metrics::new();
    for cluster in ["tenant-a/prod", "tenant-b/prod"] {
        metrics.set_cluster(cluster, Connection::Up);
        metrics.cluster_succeeded(cluster, Timestamp::constant(1_800_000_000, 500_000_000));
        metrics.set_cluster_objects(cluster, 7);
    }
    metrics.remove_cluster("tenant-a/prod");
    metrics.set_cluster("tenant-b/prod", Connection::Down);
    assert!(!metrics.encode().contains("tenant-a"));
    has(
        &metrics,
        r#"osm_cluster_up{worker_cluster="tenant-b/prod",cluster="tenant-b/prod"} 0"#,
    );
    has(
        &metrics,
        r#"osm_cluster_last_success_timestamp_seconds{worker_cluster="tenant-b/prod",cluster="tenant-b/prod"} 1800000000.5"#,
    );
    has(
        &metrics,
        r#"osm_cluster_objects{worker_cluster="tenant-b/prod",cluster="tenant-b/prod"} 7"#,
    );
}

#[test]
fn every_metric_has_our_prefix_and_a_help() {
    let text = Metrics::new().encode();
    for line in text.lines().filter_map(|line| line.strip_prefix("# ")) {
        assert!(
            line == "EOF" || line.split(' ').nth(1).unwrap().starts_with("osm_"),
            "{line}"
        );
    }
    let kinds = |kind| {
        text.lines()
            .filter(move |line| line.starts_with(kind))
            .count()
    };
    assert_eq!(kinds("# HELP "), kinds("# TYPE "));
}

#[test]
fn a_clone_is_the_same_metrics() {
    let metrics = Metrics::new();
    metrics.clone().token_renewed();
    has(&metrics, "osm_bootstrap_tokens_renewed_total 1");
}

#[test]
fn codes_fall_into_their_class() {
    let of = |status| CodeClass::of(status).as_str();
    assert_eq!(
        [200, 304, 404, 429, 503].map(of),
        ["2xx", "3xx", "4xx", "429", "5xx"]
    );
}
