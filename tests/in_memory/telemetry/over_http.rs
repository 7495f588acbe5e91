//! What goes over gRPC goes over HTTP as well, links and all.

use loadtest::collector::{Collector, Span};
use osm::telemetry::{self, OtlpProtocol, Parents, TelemetrySettings, traces};
use tracing::{info, info_span};

use super::{DEADLINE, exporting_to, installed, spans};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

fn over_http(collector: &Collector) -> TelemetrySettings {
    TelemetrySettings {
        otlp_protocol: OtlpProtocol::Http,
        ..exporting_to(format!("{}/v1/traces", collector.http_endpoint()))
    }
}

#[tokio::test]
async fn links_arrive_over_both_protocols_and_invalid_ones_are_ignored() {
    let collector = Collector::start().await.unwrap();
    for settings in [exporting_to(collector.endpoint()), over_http(&collector)] {
        let (telemetry, logs, _guard) = installed(&settings);
        let span = info_span!(target: "osm::test", "reconcile");
        for link in ["", "00-nothing", &format!("00-{TRACE}-{SPAN}-01")] {
            traces::link(&span, Some(link));
        }
        traces::link(&span, None);
        let child = info_span!(target: "osm::test", parent: &span, "child");
        child.in_scope(|| info!(target: "osm::test", "read"));
        drop((child, span));
        telemetry.shutdown().await;
        assert!(!logs.text().contains("traces are lost"), "{}", logs.text());
    }
    let spans = spans(&collector, 4).await;
    let named = |name: &str| -> Vec<&Span> { spans.iter().filter(|it| it.name == name).collect() };
    for (root, child) in named("reconcile").into_iter().zip(named("child")) {
        assert_eq!(root.links, [(TRACE.to_owned(), SPAN.to_owned())]);
        assert_ne!(root.trace_id, TRACE, "a link is no parent");
        assert_eq!(child.parent_span_id.as_ref(), Some(&root.span_id));
        assert_eq!(child.events, ["read"]);
        assert_eq!(child.links, []);
    }
}

#[tokio::test]
async fn a_collector_that_is_not_there_or_refuses_holds_nobody_over_http() {
    let collector = Collector::start().await.unwrap();
    for endpoint in [
        format!("{}/elsewhere", collector.http_endpoint()),
        "http://127.0.0.1:9/v1/traces".to_owned(),
    ] {
        let settings = TelemetrySettings {
            otlp_protocol: OtlpProtocol::Http,
            ..exporting_to(endpoint)
        };
        let (telemetry, _logs, _guard) = installed(&settings);
        info_span!(target: "osm::test", "reconcile").in_scope(|| {});
        let ended = tokio::time::timeout(DEADLINE, telemetry.shutdown());
        assert!(ended.await.is_ok(), "the process ends");
    }
    assert_eq!(collector.spans(), []);
}

#[tokio::test]
async fn callers_decide_what_is_recorded_unless_they_are_ignored() {
    for (parents, sample_ratio, expected) in [
        (Parents::Followed, 0.0, vec!["of a recorded trace"]),
        (Parents::Followed, 1.0, vec!["of a recorded trace", "root"]),
        (Parents::Ignored, 0.0, vec![]),
        (
            Parents::Ignored,
            1.0,
            vec!["of a recorded trace", "of another trace", "root"],
        ),
    ] {
        let collector = Collector::start().await.unwrap();
        let settings = TelemetrySettings {
            parents,
            sample_ratio,
            ..over_http(&collector)
        };
        let (telemetry, _logs, _guard) = installed(&settings);
        for (flags, name) in [("01", "of a recorded trace"), ("00", "of another trace")] {
            let span = info_span!(target: "osm::test", "review", otel.name = name);
            traces::follow(&span, Some(&format!("00-{TRACE}-{SPAN}-{flags}")));
            let recorded = span.in_scope(telemetry::trace_id);
            let is_recorded = expected.contains(&name);
            assert_eq!(recorded, is_recorded.then(|| TRACE.to_owned()));
        }
        info_span!(target: "osm::test", "root").in_scope(|| {});
        telemetry.shutdown().await;
        let mut came: Vec<_> = collector.spans().into_iter().map(|it| it.name).collect();
        came.sort();
        assert_eq!(came, expected);
    }
}
