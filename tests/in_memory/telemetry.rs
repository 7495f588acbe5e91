//! Traces arrive at a collector, log lines carry their ids, and a dead collector holds nobody.

mod cost;
mod over_http;
mod over_tls;
mod webhook;

use std::convert::Infallible;
use std::time::{Duration, Instant};

use http::{Request, Response, StatusCode};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams, WatchParams};
use kube::client::Body;
use loadtest::collector::{Collector, Span};
use osm::telemetry::logs::{LogBuffer, LogFormat};
use osm::telemetry::metrics::{ClusterKind, Metrics};
use osm::telemetry::traces::ApiCallLayer;
use osm::telemetry::{self, Telemetry, TelemetryError, TelemetrySettings};
use tower::{ServiceBuilder, service_fn};
use tracing::dispatcher::DefaultGuard;
use tracing::{Instrument, info, info_span};

/// Spans leave at shutdown at the latest; this is for a machine that is busy with other tests.
const DEADLINE: Duration = Duration::from_secs(10);

/// Installs telemetry for this thread, which is the only one of these tests' runtimes.
fn installed(settings: &TelemetrySettings) -> (Telemetry, LogBuffer, DefaultGuard) {
    let logs = LogBuffer::default();
    let (dispatch, telemetry) =
        telemetry::prepare(settings, logs.clone()).expect("the settings are right");
    (telemetry, logs, tracing::dispatcher::set_default(&dispatch))
}

fn exporting_to(endpoint: String) -> TelemetrySettings {
    TelemetrySettings {
        otlp_endpoint: Some(endpoint),
        ..TelemetrySettings::default()
    }
}

/// A client of an API server that answers every request with this, behind the layer under test.
fn a_client(metrics: &Metrics, status: StatusCode, body: &'static str) -> kube::Client {
    let server = service_fn(move |request: Request<Body>| async move {
        let seen = request.headers().get("traceparent").cloned();
        let mut answer = Response::new(Body::from(body.as_bytes().to_vec()));
        *answer.status_mut() = status;
        if let Some(traceparent) = seen {
            answer.headers_mut().insert("x-seen", traceparent);
        }
        Ok::<_, Infallible>(answer)
    });
    let layer = ApiCallLayer::new(metrics.clone(), ClusterKind::Worker);
    kube::Client::new(
        ServiceBuilder::new().layer(layer).service(server),
        "default",
    )
}

/// What arrived, once it is this many spans.
async fn spans(collector: &Collector, count: usize) -> Vec<Span> {
    let arrived = collector.wait_for(|spans| spans.len() == count, DEADLINE);
    arrived.await.expect("they arrive in time")
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let found = spans.iter().find(|span| span.name == name);
    found.expect(name)
}

#[tokio::test]
async fn an_api_call_is_a_client_span_that_the_server_can_join() {
    let collector = Collector::start().await.unwrap();
    let (telemetry, _logs, _guard) = installed(&exporting_to(collector.endpoint()));
    let metrics = Metrics::new();
    let client = a_client(&metrics, StatusCode::OK, r#"{"metadata":{"name":"a"}}"#);
    let request = Request::get("https://10.0.0.1:6443/api/v1/namespaces/n/secrets/a?token=hidden");
    let answer = client
        .send(
            request
                .header("authorization", "Bearer hidden")
                .body(Body::empty())
                .unwrap(),
        )
        .instrument(info_span!(target: "osm::test", "reconcile"))
        .await
        .unwrap();
    telemetry.shutdown().await;

    let spans = spans(&collector, 2).await;
    let call = named(&spans, "GET secrets");
    assert_eq!(call.kind, "client");
    assert_eq!(
        call.parent_span_id.as_ref(),
        Some(&named(&spans, "reconcile").span_id)
    );
    let expected = [
        ("http.request.method", "GET"),
        ("http.response.status_code", "200"),
        ("osm.cluster.kind", "worker"),
        ("osm.request.resource", "secrets"),
        ("osm.request.verb", "get"),
        ("server.address", "10.0.0.1"),
        ("server.port", "6443"),
        ("url.path", "/api/v1/namespaces/n/secrets/a"),
        (
            "url.template",
            "/api/v1/namespaces/{namespace}/secrets/{name}",
        ),
    ];
    let found: Vec<_> = call
        .attributes
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(
        answer.headers()["x-seen"],
        format!("00-{}-{}-01", call.trace_id, call.span_id).as_str()
    );
    assert!(
        metrics
            .encode()
            .contains(r#"osm_api_requests_total{cluster_kind="worker",verb="get",code="2xx"} 1"#)
    );
}

#[tokio::test]
async fn a_refused_and_an_abandoned_call_are_errors() {
    let collector = Collector::start().await.unwrap();
    let (telemetry, _logs, _guard) = installed(&exporting_to(collector.endpoint()));
    let metrics = Metrics::new();
    let refusing = a_client(&metrics, StatusCode::FORBIDDEN, "{}");
    let secrets: Api<Secret> = Api::namespaced(refusing, "n");
    secrets.list(&ListParams::default()).await.unwrap_err();

    let silent =
        service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
    let layer = ApiCallLayer::new(metrics.clone(), ClusterKind::Worker);
    let mut silent = ServiceBuilder::new().layer(layer).service(silent);
    let request = Request::delete("/api/v1/namespaces/n/secrets/a")
        .body(Body::empty())
        .unwrap();
    drop(tower::Service::call(&mut silent, request));
    telemetry.shutdown().await;

    let spans = spans(&collector, 2).await;
    let refused = named(&spans, "GET secrets");
    assert_eq!(refused.attributes["error.type"], "403");
    assert!(refused.error.is_some());
    let abandoned = named(&spans, "DELETE secrets");
    assert_eq!(abandoned.attributes["error.type"], "cancelled");
    assert_eq!(
        abandoned.error.as_deref(),
        Some("dropped before the server answered")
    );
    assert!(
        metrics.encode().contains(
            r#"osm_api_requests_total{cluster_kind="worker",verb="delete",code="none"} 1"#
        )
    );
}

#[tokio::test]
async fn a_call_that_cannot_connect_says_why() {
    let collector = Collector::start().await.unwrap();
    let (telemetry, _logs, _guard) = installed(&exporting_to(collector.endpoint()));
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let hyper = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .build_http::<Body>();
    let layer = ApiCallLayer::new(Metrics::new(), ClusterKind::Management);
    let mut service = ServiceBuilder::new().layer(layer).service(hyper);
    let request = Request::get(format!("http://{closed}/version"))
        .body(Body::empty())
        .unwrap();
    tower::Service::call(&mut service, request)
        .await
        .unwrap_err();
    telemetry.shutdown().await;

    let spans = spans(&collector, 1).await;
    let call = named(&spans, "GET /version");
    assert_eq!(call.attributes["error.type"], "transport");
    let error = call.error.as_deref().unwrap();
    assert!(error.contains("Connection refused"), "{error}");
}

#[tokio::test]
async fn what_kube_logs_is_in_no_span() {
    let collector = Collector::start().await.unwrap();
    let (telemetry, _logs, _guard) = installed(&exporting_to(collector.endpoint()));
    info_span!(target: "osm::test", "reconcile").in_scope(|| {
        tracing::warn!(target: "kube_client::client", "c4n4ry");
        tracing::info_span!(target: "kube_client::client", "HTTP", body = "c4n4ry").in_scope(
            || {
                info!(target: "osm::test", "read");
            },
        );
    });
    telemetry.shutdown().await;

    let spans = spans(&collector, 1).await;
    assert_eq!(spans[0].events, ["read"]);
    assert!(!format!("{spans:?}").contains("c4n4ry"));
}

#[tokio::test]
async fn a_watch_is_a_span_of_its_start_only() {
    let collector = Collector::start().await.unwrap();
    let (telemetry, _logs, _guard) = installed(&exporting_to(collector.endpoint()));
    let server = service_fn(|_: Request<Body>| async {
        // The head comes at once, the body never ends.
        Ok::<_, Infallible>(Response::new(never_ending()))
    });
    let layer = ApiCallLayer::new(Metrics::new(), ClusterKind::Worker);
    let client = kube::Client::new(
        ServiceBuilder::new().layer(layer).service(server),
        "default",
    );
    let secrets: Api<Secret> = Api::namespaced(client, "n");
    let open = secrets.watch(&WatchParams::default(), "1").await.unwrap();
    telemetry.shutdown().await;

    let spans = spans(&collector, 1).await;
    assert_eq!(
        named(&spans, "WATCH secrets").attributes["osm.request.verb"],
        "watch"
    );
    drop(open);
}

/// kube reads any body; this one never brings anything.
fn never_ending() -> impl http_body::Body<Data = axum::body::Bytes, Error = Infallible> {
    http_body_util::StreamBody::new(futures::stream::pending::<
        Result<http_body::Frame<axum::body::Bytes>, Infallible>,
    >())
}

#[tokio::test]
async fn log_lines_inside_of_a_sampled_span_carry_its_ids() {
    let collector = Collector::start().await.unwrap();
    // The span is not logged at this level, and is traced all the same.
    let settings = TelemetrySettings {
        instance_id: Some("osm-0".to_owned()),
        log_filter: "warn".to_owned(),
        ..exporting_to(collector.endpoint())
    };
    let (telemetry, logs, _guard) = installed(&settings);
    info_span!(target: "osm::test", "reconcile").in_scope(|| {
        tracing::warn!(target: "osm::test", tenant = "tenant-a", "inside");
    });
    tracing::warn!(target: "osm::test", "outside");
    telemetry.shutdown().await;

    let spans = spans(&collector, 1).await;
    let lines: Vec<serde_json::Value> = logs
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["message"], "inside");
    assert_eq!(lines[0]["tenant"], "tenant-a");
    assert_eq!(lines[0]["trace_id"], spans[0].trace_id);
    assert_eq!(lines[0]["span_id"], spans[0].span_id);
    assert_eq!(lines[1].get("trace_id"), None);
    let resource = |key| spans[0].resource.get(key).map(String::as_str);
    assert_eq!(resource("service.name"), Some("osm"));
    assert_eq!(resource("service.version"), Some(env!("CARGO_PKG_VERSION")));
    assert_eq!(resource("service.instance.id"), Some("osm-0"));
}

#[tokio::test]
async fn text_lines_carry_the_ids_at_their_end() {
    let collector = Collector::start().await.unwrap();
    let settings = TelemetrySettings {
        log_format: LogFormat::Text,
        ..exporting_to(collector.endpoint())
    };
    let (telemetry, logs, _guard) = installed(&settings);
    let trace_id = info_span!(target: "osm::test", "reconcile").in_scope(|| {
        info!(target: "osm::test", "inside");
        telemetry::trace_id().unwrap()
    });
    telemetry.shutdown().await;
    assert!(
        logs.text()
            .contains(&format!(" trace_id={trace_id} span_id=")),
        "{}",
        logs.text()
    );
}

#[tokio::test]
async fn nothing_is_traced_without_an_endpoint_or_outside_of_the_sample() {
    for settings in [
        TelemetrySettings::default(),
        exporting_to(String::new()),
        TelemetrySettings {
            sample_ratio: 0.0,
            ..exporting_to("http://127.0.0.1:1".to_owned())
        },
    ] {
        let (telemetry, logs, _guard) = installed(&settings);
        info_span!(target: "osm::test", "reconcile").in_scope(|| {
            info!(target: "osm::test", "inside");
            assert_eq!(telemetry::trace_id(), None);
        });
        assert!(!logs.text().contains("trace_id"));
        telemetry.shutdown().await;
    }
}

#[tokio::test]
async fn a_dead_collector_delays_the_end_by_a_bounded_time() {
    // A server that accepts and stays silent is the worst: nothing refuses, nothing answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let (telemetry, _logs, _guard) = installed(&exporting_to(endpoint));
    let started = Instant::now();
    for _ in 0..10_000 {
        info_span!(target: "osm::test", "reconcile").in_scope(|| {});
    }
    let recorded = started.elapsed();
    telemetry.shutdown().await;
    assert!(
        recorded < Duration::from_secs(5),
        "recording waited: {recorded:?}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(9),
        "the end waited: {:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn wrong_settings_are_refused_with_what_is_wrong() {
    let refused = |settings: TelemetrySettings| {
        telemetry::prepare(&settings, LogBuffer::default())
            .map(|_| ())
            .unwrap_err()
    };
    let default = TelemetrySettings::default;
    let filter = refused(TelemetrySettings {
        log_filter: "osm=loud".to_owned(),
        ..default()
    });
    assert!(matches!(filter, TelemetryError::Filter { .. }), "{filter}");
    for sample_ratio in [-0.1, 1.1, f64::NAN] {
        let ratio = refused(TelemetrySettings {
            sample_ratio,
            ..default()
        });
        assert!(matches!(ratio, TelemetryError::SampleRatio(_)), "{ratio}");
    }
    let endpoint = refused(exporting_to("http://[invalid".to_owned()));
    assert!(
        matches!(endpoint, TelemetryError::Exporter { .. }),
        "{endpoint}"
    );
}

#[test]
fn an_exporter_without_a_runtime_is_refused() {
    let settings = exporting_to("http://127.0.0.1:4317".to_owned());
    let refused = telemetry::prepare(&settings, LogBuffer::default())
        .map(|_| ())
        .unwrap_err();
    assert!(matches!(refused, TelemetryError::NoRuntime));
}

#[tokio::test]
async fn telemetry_starts_once() {
    let settings = TelemetrySettings {
        log_filter: "off".to_owned(),
        ..Default::default()
    };
    telemetry::start(&settings).unwrap().shutdown().await;
    let again = telemetry::start(&settings).map(|_| ()).unwrap_err();
    assert!(matches!(again, TelemetryError::AlreadyStarted));
}

/// The name of the variable that makes the next test the child that it starts.
const ENDPOINT: &str = "OSM_TEST_ENDPOINT";

async fn send_one_span(endpoint: String) {
    let telemetry = telemetry::start(&exporting_to(endpoint)).expect("telemetry starts once");
    info_span!(target: "osm::test", "reconcile", tenant = "tenant-a")
        .in_scope(|| info!(target: "osm::test", "inside"));
    telemetry.shutdown().await;
}

#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "stands for settings.rs in the child"
)]
async fn a_process_logs_on_stderr_and_takes_its_name_from_the_environment() {
    if let Ok(endpoint) = std::env::var(ENDPOINT) {
        return send_one_span(endpoint).await;
    }
    let collector = Collector::start().await.unwrap();
    let child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "telemetry::a_process_logs_on_stderr_and_takes_its_name_from_the_environment",
            "--nocapture",
        ])
        .env(ENDPOINT, collector.endpoint())
        .env("OTEL_SERVICE_NAME", "osm-blue")
        .env(
            "OTEL_RESOURCE_ATTRIBUTES",
            "service.version=9,k8s.cluster.name=m",
        )
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(DEADLINE, child)
        .await
        .unwrap()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");

    let spans = spans(&collector, 1).await;
    let resource = |key| spans[0].resource.get(key).map(String::as_str);
    assert_eq!(resource("service.name"), Some("osm-blue"));
    assert_eq!(resource("service.version"), Some("9"));
    assert_eq!(resource("k8s.cluster.name"), Some("m"));
    let line = stderr.lines().find(|line| line.starts_with('{')).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["trace_id"], spans[0].trace_id);
    assert_eq!(line["spans"][0]["tenant"], "tenant-a");
}
