//! What traces leave in the metrics and in memory.

use std::time::Duration;

use osm::telemetry::metrics::{Metrics, Outcome, Took};
use osm::telemetry::{self, TelemetrySettings};
use tracing::info_span;

use super::{exporting_to, installed};

/// The bucket that an observation of 40 ms falls into.
const BUCKET: &str = r#"osm_reconcile_duration_seconds_bucket{le="0.05",outcome="served"} "#;

fn observe(metrics: &Metrics) -> String {
    let took = Took {
        queue: Duration::ZERO,
        work: Duration::from_millis(40),
    };
    metrics.reconciled(Outcome::Served, took);
    let page = metrics.encode();
    let line = page.lines().find_map(|line| line.strip_prefix(BUCKET));
    line.expect("the bucket is there").to_owned()
}

#[tokio::test]
async fn a_bucket_names_the_last_trace_that_was_recorded_and_no_other() {
    let metrics = Metrics::new();
    assert_eq!(observe(&metrics), "1");
    let (telemetry, _logs, guard) = installed(&exporting_to("http://127.0.0.1:1".to_owned()));
    assert_eq!(observe(&metrics), "2", "no span is around it");
    for count in [3, 4] {
        let span = info_span!(target: "osm::test", "reconcile");
        let (trace_id, line) =
            span.in_scope(|| (telemetry::trace_id().unwrap(), observe(&metrics)));
        let expected = format!("{count} # {{trace_id=\"{trace_id}\"}} 0.04");
        assert_eq!(line, expected);
    }
    let named = metrics.encode().matches("trace_id").count();
    assert_eq!(
        named, 2,
        "one for the duration's bucket, and one for the wait's"
    );
    drop(guard);
    telemetry.shutdown().await;
    let unsampled = TelemetrySettings {
        sample_ratio: 0.0,
        ..exporting_to("http://127.0.0.1:1".to_owned())
    };
    let (telemetry, _logs, _guard) = installed(&unsampled);
    let metrics = Metrics::new();
    let span = info_span!(target: "osm::test", "reconcile");
    assert_eq!(span.in_scope(|| observe(&metrics)), "1");
    telemetry.shutdown().await;
}

/// What this process has in memory, in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse().ok()).expect("in KiB")
}

#[tokio::test]
async fn a_dead_collector_costs_a_bounded_memory() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let (telemetry, _logs, _guard) = installed(&exporting_to(endpoint));
    let text = "a".repeat(1_000);
    let record = |count: usize| {
        for _ in 0..count {
            info_span!(target: "osm::test", "reconcile", text).in_scope(|| {});
        }
    };
    record(10_000);
    let before = resident_kib();
    // Without a bound this would be 100 MiB and more.
    record(100_000);
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 32 * 1024, "{grown} KiB");
    telemetry.shutdown().await;
}
