use super::*;

fn has(metrics: &Metrics, line: &str) {
    let text = metrics.encode();
    assert!(
        text.lines().any(|found| found == line),
        "{line} is not in\n{text}"
    );
}

#[test]
fn what_is_counted_is_encoded_with_its_labels() {
    let metrics = Metrics::new();
    metrics.reconciled(Outcome::Served, Duration::from_millis(40));
    metrics.queue_waited(Duration::from_millis(3));
    metrics.failed("profile_not_found");
    metrics.api_request(ClusterKind::Worker, Verb::List, CodeClass::of(429));
    metrics.throttled(ClusterKind::Worker, Duration::from_secs(2));
    metrics.fenced(Fence::LetGo);
    metrics.user_data_rendered(Document::Bootstrap, 5321);
    metrics.secret_written(SecretKind::Provisioning);
    metrics.token_renewed();
    metrics.set_tenants(TenantState::Engaged, 1000);
    has(&metrics, r#"osm_reconciles_total{outcome="served"} 1"#);
    has(
        &metrics,
        r#"osm_reconcile_duration_seconds_bucket{le="0.05",outcome="served"} 1"#,
    );
    has(&metrics, "osm_reconcile_queue_wait_seconds_count 1");
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
            r#""} 1"#
        ),
    );
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
    has(&metrics, r#"osm_cluster_up{cluster="tenant-b/prod"} 0"#);
    has(
        &metrics,
        r#"osm_cluster_last_success_timestamp_seconds{cluster="tenant-b/prod"} 1800000000.5"#,
    );
    has(
        &metrics,
        r#"osm_cluster_objects{cluster="tenant-b/prod"} 7"#,
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
