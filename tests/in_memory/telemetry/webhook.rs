//! The webhooks' traces: a review is a span of a server, below the one of who asked.

use std::process::Stdio;
use std::sync::Arc;

use axum::body::to_bytes;
use http::StatusCode;
use jiff::Timestamp;
use loadtest::collector::{Collector, Span};
use osm::admission::authority::{CertificateBundle, Trust, Wanted, next};
use osm::admission::certificate_rotator::{CertificateRotator, Params};
use osm::admission::reviewer::Reviewer;
use osm::telemetry::metrics::Metrics;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tower::ServiceExt;

use super::{DEADLINE, a_client, exporting_to, installed, named, spans};

const PROFILE: &str = "/operatingsystemprofile";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
/// Stands wherever a review may hold a secret.
const CANARY: &str = "c4n4ry";

fn a_review(operating_system: &str) -> Value {
    let file = json!({"path": "/etc/x", "content": {"inline": {"data": CANARY}}});
    let profile = json!({
        "metadata": {"name": "osp-mine", "annotations": {"note": CANARY}},
        "spec": {
            "osName": operating_system, "osVersion": "24.04", "version": "v1.2.3",
            "supportedCloudProviders": [{"name": "aws"}],
            "bootstrapConfig": {}, "provisioningConfig": {"files": [file]},
        },
    });
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "0c9a8d74", "operation": "UPDATE", "namespace": "tenant-a", "name": "osp-mine",
            "kind": {"kind": "OperatingSystemProfile"}, "userInfo": {"username": CANARY},
            "object": profile, "oldObject": {"metadata": {"name": CANARY}},
        },
    })
}

async fn post(path: &str, body: String) -> StatusCode {
    let request = http::Request::post(path)
        .header("traceparent", format!("00-{TRACE}-{CALLER}-01"))
        .header("authorization", CANARY)
        .body(axum::body::Body::from(body))
        .expect("it is well formed");
    let router = Reviewer::new(Metrics::new()).router();
    let answer = router.oneshot(request).await.expect("it answers");
    let status = answer.status();
    to_bytes(answer.into_body(), usize::MAX)
        .await
        .expect("it is well formed");
    status
}

#[tokio::test]
async fn a_review_is_a_span_below_the_one_of_who_asked_and_says_nothing_of_the_object() {
    let collector = Collector::start().await.unwrap();
    let (telemetry, _logs, _guard) = installed(&exporting_to(collector.endpoint()));
    assert_eq!(post(PROFILE, a_review("ubuntu").to_string()).await, 200);
    telemetry.shutdown().await;

    let spans = spans(&collector, 3).await;
    let review = named(&spans, "POST /operatingsystemprofile");
    assert_eq!(review.kind, "server");
    assert_eq!(review.trace_id, TRACE);
    assert_eq!(review.parent_span_id.as_deref(), Some(CALLER));
    let found = review.attributes.iter();
    let found: Vec<_> = found
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let expected = [
        ("http.request.method", "POST"),
        ("http.response.status_code", "200"),
        ("http.route", PROFILE),
        ("name", "osp-mine"),
        ("namespace", "tenant-a"),
        ("osm.request.kind", "OperatingSystemProfile"),
        ("osm.request.verb", "UPDATE"),
        ("outcome", "allowed"),
        ("webhook", "profile"),
    ];
    assert_eq!(found, expected);
    for step in ["evaluate", "remark"] {
        let parent = named(&spans, step).parent_span_id.as_ref();
        assert_eq!(parent, Some(&review.span_id), "{step}");
    }
    assert!(!format!("{spans:?}").contains(CANARY), "{spans:?}");
}

#[tokio::test]
async fn a_review_without_an_answer_is_an_error_and_a_refused_one_is_none() {
    let collector = Collector::start().await.unwrap();
    let (telemetry, logs, _guard) = installed(&exporting_to(collector.endpoint()));
    assert_eq!(post(PROFILE, format!("{{\"{CANARY}\": 1}}")).await, 400);
    let mut refused = a_review("ubuntu");
    refused["request"]["object"]["spec"]["version"] = json!("none");
    assert_eq!(post(PROFILE, refused.to_string()).await, 200);
    telemetry.shutdown().await;

    let spans = spans(&collector, 4).await;
    let of = |outcome: &str| -> &Span {
        let mut spans = spans.iter();
        let found = spans.find(|it| it.attributes.get("outcome").is_some_and(|it| it == outcome));
        found.expect(outcome)
    };
    let failed = of("failed");
    let why = "the body is no AdmissionReview of admission.k8s.io/v1";
    assert_eq!(failed.error.as_deref(), Some(why));
    assert_eq!(failed.attributes["http.response.status_code"], "400");
    assert_eq!(of("refused").error, None);
    assert!(logs.text().contains(&failed.span_id), "{}", logs.text());
    assert!(!format!("{spans:?}").contains(CANARY), "{spans:?}");
}

#[tokio::test]
async fn to_keep_certificates_is_a_trace_with_the_calls_that_it_takes() {
    let collector = Collector::start().await.unwrap();
    let (telemetry, _logs, _guard) = installed(&exporting_to(collector.endpoint()));
    let metrics = Metrics::new();
    let (shown, _identity) = tokio::sync::watch::channel(None);
    let rotator = CertificateRotator::new(Params {
        client: a_client(&metrics, StatusCode::NOT_FOUND, "{}"),
        namespace: "osm".to_owned(),
        secret: "webhook".to_owned(),
        configurations: "osm".to_owned(),
        hosts: vec!["localhost".to_owned()],
        now: Arc::new(Timestamp::now),
        shown,
        metrics: metrics.clone(),
    });
    let mut task = JoinSet::new();
    task.spawn(rotator.run());
    while !metrics.encode().contains("osm_api_requests_total{") {
        tokio::task::yield_now().await;
    }
    task.shutdown().await;
    telemetry.shutdown().await;

    let spans = spans(&collector, 2).await;
    let look = named(&spans, "keep certificates");
    assert_eq!(look.parent_span_id, None);
    let call = named(&spans, "GET secrets");
    assert_eq!(call.parent_span_id.as_ref(), Some(&look.span_id));
}

fn certificates() -> CertificateBundle {
    let wanted = Wanted {
        hosts: &["localhost".to_owned()],
        now: Timestamp::now(),
        trust: Trust::Pending,
    };
    next(None, &wanted)
        .expect("it is well formed")
        .expect("it is well formed")
}

/// Posts a review over TLS as an API server does, and returns the whole answer.
async fn ask(port: u16, bundle: &CertificateBundle) -> std::io::Result<String> {
    let mut roots = rustls::RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(bundle.authorities.as_bytes());
    roots
        .add(authority.expect("it is well formed"))
        .expect("it is well formed");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("it is well formed")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from("localhost").expect("it is well formed");
    let mut stream = connector.connect(name, stream).await?;
    let body = a_review("ubuntu").to_string();
    let head = format!(
        "POST {PROFILE} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         traceparent: 00-{TRACE}-{CALLER}-01\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// A port that is free now.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("it is well formed");
    listener.local_addr().expect("it is well formed").port()
}

#[tokio::test]
async fn the_process_sends_its_traces_over_http_as_the_standard_variables_say() {
    let collector = Collector::start().await.unwrap();
    let bundle = certificates();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tls.crt"), &bundle.certificate).unwrap();
    std::fs::write(folder.path().join("tls.key"), &bundle.key).unwrap();
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_osm"))
        .args(["webhook", "--address", &address])
        .args(["--admin-address", "127.0.0.1:0", "--certificate-folder"])
        .arg(folder.path())
        .env_clear()
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.http_endpoint())
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        .env(
            "OTEL_EXPORTER_OTLP_HEADERS",
            "x-tenant=blue,authorization=Basic%20c4n4ry",
        )
        .env("OTEL_SERVICE_NAME", "osm-webhook-blue")
        .env("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=m")
        .env("OTEL_TRACES_SAMPLER", "parentbased_always_off")
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let answered = async {
        loop {
            // Until it listens, and has read the certificate.
            match ask(port, &bundle).await {
                Ok(answer) => break answer,
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            }
        }
    };
    let answer = tokio::time::timeout(DEADLINE, answered).await.unwrap();
    assert!(answer.contains("\"allowed\":true"), "{answer}");
    let id = process.id().unwrap().to_string();
    let killed = tokio::process::Command::new("kill").arg(id).status().await;
    assert!(killed.unwrap().success());
    let mut log = String::new();
    let stderr = process.stderr.as_mut().unwrap();
    stderr.read_to_string(&mut log).await.unwrap();
    assert!(process.wait().await.unwrap().success(), "{log}");

    // Nobody else's trace is recorded: the one of who asked is.
    let spans = spans(&collector, 3).await;
    let review = named(&spans, "POST /operatingsystemprofile");
    assert_eq!(review.trace_id, TRACE);
    let resource = |key| review.resource.get(key).map(String::as_str);
    assert_eq!(resource("service.name"), Some("osm-webhook-blue"));
    assert_eq!(resource("k8s.cluster.name"), Some("m"));
    let headers = collector.headers();
    assert_eq!(headers["x-tenant"], "blue");
    assert_eq!(headers["authorization"], "Basic c4n4ry");
    assert!(!log.contains(CANARY), "{log}");
}
