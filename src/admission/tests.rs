mod connections;

use std::{path::Path, sync::Arc};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{net::TcpListener, net::TcpStream, sync::watch};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::{
    authority::{CertificateBundle, Trust, Wanted, next},
    file_watcher::FileWatcher,
    identity::{Identity, IdentityError},
    reviewer::{REVIEW_BYTES_MAX, Reviewer},
    server,
};
use crate::telemetry::{
    self, TelemetrySettings,
    logs::LogBuffer,
    metrics::{Metrics, Webhook},
};

const PROFILE: &str = "/operatingsystemprofile";

fn a_review(object: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "0c9a8d74", "operation": "CREATE", "object": object},
    })
}

fn a_machine_deployment() -> Value {
    let provider = json!({"operatingSystem": "ubuntu", "cloudProvider": "aws"});
    let spec = json!({"template": {"spec": {"providerSpec": {"value": provider}}}});
    json!({"metadata": {"name": "workers"}, "spec": spec})
}

async fn post(router: Router, path: &str, body: impl Into<Body>) -> (StatusCode, String) {
    let request = Request::post(path).body(body.into()).unwrap();
    let answer = router.oneshot(request).await.unwrap();
    let status = answer.status();
    let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn answered(path: &str, object: &Value) -> Value {
    let router = Reviewer::new(Metrics::new()).router();
    let (status, body) = post(router, path, a_review(object).to_string()).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let review: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(review["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(review["kind"], "AdmissionReview");
    assert_eq!(review["response"]["uid"], "0c9a8d74");
    review["response"].clone()
}

#[tokio::test]
async fn a_patch_and_a_refusal_go_back_as_the_api_server_reads_them() {
    let path = "/mutate-v1alpha1-machinedeployment";
    let patched = answered(path, &a_machine_deployment()).await;
    assert_eq!(patched["allowed"], true);
    assert_eq!(patched["patchType"], "JSONPatch");
    assert_eq!(patched["warnings"], Value::Null);
    let refused = answered(path, &json!({})).await;
    assert_eq!(refused["allowed"], false);
    assert_eq!(refused["status"]["code"], 422);
    assert_eq!(refused["status"]["reason"], "Invalid");
    let message = refused["status"]["message"].as_str().unwrap();
    assert!(
        message.ends_with("machine.spec.providerSpec.value is nil"),
        "{message}"
    );
}

#[tokio::test]
async fn a_machine_deployment_is_answered_with_a_warning_for_each_annotation_without_effect() {
    let key = "v1.kubelet-config.machine-controller.kubermatic.io/maxPods";
    let mut object = a_machine_deployment();
    object["apiVersion"] = json!("cluster.k8s.io/v1alpha1");
    object["kind"] = json!("MachineDeployment");
    object["metadata"]["annotations"] = json!({key: "5"});
    object["spec"]["template"]["metadata"] = json!({"annotations": {key: "5"}});
    let patched = answered("/mutate-v1alpha1-machinedeployment", &object).await;
    assert_eq!(patched["allowed"], true);
    let warnings = patched["warnings"].as_array().unwrap();
    let has = |text: &str| {
        warnings
            .iter()
            .any(|it| it.as_str().unwrap().ends_with(text))
    };
    assert!(has("did you mean `MaxPods`?"), "{warnings:?}");
    assert!(has("move it to metadata.annotations"), "{warnings:?}");
}

#[tokio::test]
async fn warnings_are_lines_that_are_not_too_long_and_not_too_many() {
    let path = |number: usize| format!("etc\n{number}/{}", "x".repeat(300));
    let file = |number| json!({"path": path(number), "content": {"inline": {"data": ""}}});
    // The second file has the path of the first, which the warning shows.
    let files: Vec<Value> = [0].into_iter().chain(0..20).map(file).collect();
    let profile = json!({"metadata": {"name": "osp-mine"}, "spec": {
        "osName": "ubuntu", "osVersion": "24.04", "version": "v1.2.3",
        "supportedCloudProviders": [],
        "bootstrapConfig": {}, "provisioningConfig": {"files": files},
    }});
    let allowed = answered(PROFILE, &profile).await;
    assert_eq!(allowed["allowed"], true);
    let warnings = allowed["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 11);
    for warning in warnings {
        let warning = warning.as_str().unwrap();
        assert!(warning.chars().count() <= 256, "{warning}");
        assert!(!warning.contains(char::is_control), "{warning:?}");
    }
    let last = warnings[10].as_str().unwrap();
    assert!(last.ends_with("more; `osm lint` lists them all"), "{last}");
}

#[tokio::test]
async fn a_verdict_does_not_wait_for_remarks_that_others_hold_up() {
    let reviewer = Reviewer::new(Metrics::new());
    let held = reviewer.hold_remarks();
    let file = json!({"path": "etc/x", "content": {"inline": {"data": ""}}});
    let profile = json!({"metadata": {"name": "osp-mine"}, "spec": {
        "osName": "ubuntu", "osVersion": "24.04", "version": "v1.2.3",
        "supportedCloudProviders": [{"name": "aws"}],
        "bootstrapConfig": {}, "provisioningConfig": {"files": [file]},
    }});
    let body = a_review(&profile).to_string();
    let (_, late) = post(reviewer.router(), PROFILE, body.clone()).await;
    assert!(late.contains("\"allowed\":true"), "{late}");
    assert!(late.contains("the profile was not test-rendered"), "{late}");
    drop(held);
    let (_, reported) = post(reviewer.router(), PROFILE, body).await;
    assert!(reported.contains("the path is not absolute"), "{reported}");
}

#[tokio::test]
async fn what_is_no_review_has_no_answer() {
    let metrics = Metrics::new();
    let router = || Reviewer::new(metrics.clone()).router();
    let beta = a_review(&json!({})).to_string().replace("/v1", "/v1beta1");
    for (body, expected) in [
        (String::new(), StatusCode::BAD_REQUEST),
        ("{}".to_owned(), StatusCode::BAD_REQUEST),
        ("[".repeat(100_000), StatusCode::BAD_REQUEST),
        (beta, StatusCode::BAD_REQUEST),
        (
            " ".repeat(REVIEW_BYTES_MAX + 1),
            StatusCode::PAYLOAD_TOO_LARGE,
        ),
    ] {
        let (status, _) = post(router(), PROFILE, body).await;
        assert_eq!(status, expected);
    }
    let (status, _) = post(router(), "/elsewhere", "{}").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let counted = "osm_admission_reviews_total{webhook=\"profile\",verdict=\"failed\"} 5";
    assert!(metrics.encode().contains(counted), "{}", metrics.encode());
}

#[tokio::test]
async fn what_would_take_too_much_memory_is_refused_before_it_is_decoded() {
    let router = || Reviewer::new(Metrics::new()).router();
    let zeros = |count: usize| format!("[0{}]", ",0".repeat(count - 1));
    let review = |object: &str| {
        a_review(&json!("OBJECT"))
            .to_string()
            .replace("\"OBJECT\"", object)
    };
    let (status, said) = post(router(), PROFILE, review(&zeros(1_000_000))).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(said, "the review would take more than 16 MiB of memory\n");
    // What an API server takes is let in, twice as an update holds it.
    let file = |number| {
        let content = json!({"inline": {"data": "x".repeat(5_000)}});
        json!({"path": format!("/etc/{number}"), "content": content})
    };
    let profile = json!({"metadata": {"name": "osp-mine"}, "spec": {
        "osName": "ubuntu", "osVersion": "24.04", "version": "v1.2.3",
        "supportedCloudProviders": [{"name": "aws"}], "bootstrapConfig": {},
        "provisioningConfig": {"files": (0..200).map(file).collect::<Vec<_>>()},
    }});
    let mut update = a_review(&profile);
    update["request"]["operation"] = json!("UPDATE");
    update["request"]["oldObject"] = profile;
    let (status, said) = post(router(), PROFILE, update.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{said}");
    assert!(said.contains("\"allowed\":true"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_is_given_up() {
    let endless = futures::stream::pending::<Result<Vec<u8>, std::io::Error>>();
    let router = Reviewer::new(Metrics::new()).router();
    let (status, _) = post(router, PROFILE, Body::from_stream(endless)).await;
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
}

#[tokio::test]
async fn a_panic_ends_one_review_and_no_other() {
    let reviewer = Reviewer::new(Metrics::new());
    let broken = reviewer.route("/broken", (Webhook::Config, |_| panic!("c4n4ry")));
    let body = a_review(&json!({})).to_string();
    for _ in 0..20 {
        let (status, text) = post(broken.clone(), "/broken", body.clone()).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!text.contains("c4n4ry"), "{text}");
    }
    let (status, _) = post(reviewer.router(), "/operatingsystemconfig", body).await;
    assert_eq!(status, StatusCode::OK, "its turn is free again");
}

#[tokio::test]
async fn nothing_of_a_review_is_logged_or_counted() {
    let logs = LogBuffer::default();
    let settings = TelemetrySettings {
        log_filter: "trace".to_owned(),
        ..TelemetrySettings::default()
    };
    let (dispatch, _telemetry) = telemetry::prepare(&settings, logs.clone()).unwrap();
    let _guard = tracing::dispatcher::set_default(&dispatch);
    let metrics = Metrics::new();
    let router = Reviewer::new(metrics.clone()).router();
    let mut object = a_machine_deployment();
    object["metadata"]["annotations"] = json!({"kubeconfig": "c4n4ry"});
    object["spec"]["template"]["spec"]["providerSpec"]["value"]["c4n4ry"] = json!("c4n4ry");
    for path in ["/mutate-v1alpha1-machinedeployment", PROFILE] {
        let body = a_review(&object).to_string();
        post(router.clone(), path, body).await;
        post(router.clone(), path, format!("{{\"c4n4ry\": {object}")).await;
    }
    assert!(
        logs.text().contains("a review has no answer"),
        "{}",
        logs.text()
    );
    assert!(!logs.text().contains("c4n4ry"), "{}", logs.text());
    assert!(!metrics.encode().contains("c4n4ry"), "{}", metrics.encode());
}

fn certificates() -> CertificateBundle {
    let wanted = Wanted {
        hosts: &["localhost".to_owned()],
        now: Timestamp::now(),
        trust: Trust::Pending,
    };
    next(None, &wanted).unwrap().unwrap()
}

fn write(folder: &Path, kept: &CertificateBundle) {
    std::fs::write(folder.join("tls.crt"), &kept.certificate).unwrap();
    std::fs::write(folder.join("tls.key"), &kept.key).unwrap();
}

/// Returns true if a client that trusts this authority connects.
async fn connects(address: std::net::SocketAddr, kept: &CertificateBundle) -> bool {
    use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
    let mut roots = rustls::RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(kept.authorities.as_bytes());
    roots.add(authority.unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.is_ok()
}

#[tokio::test]
async fn another_certificate_in_the_folder_is_shown_and_a_broken_one_is_not() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (shown, identity) = watch::channel(None);
    let cancel = CancellationToken::new();
    let params = server::Params {
        listener,
        identity,
        router: Router::new(),
    };
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(server::run(params, cancel.clone()));
    let path = tempfile::tempdir().unwrap();
    let metrics = Metrics::new();
    let mut folder = FileWatcher::new(path.path().to_owned(), shown, metrics.clone());
    let [first, second] = [certificates(), certificates()];
    assert!(folder.check().await.is_err(), "there is none");
    assert!(!connects(address, &first).await);
    write(path.path(), &first);
    folder.check().await.unwrap();
    assert!(connects(address, &first).await);
    std::fs::write(path.path().join("tls.crt"), &second.certificate).unwrap();
    let half = folder.check().await.unwrap_err();
    assert_eq!(
        half.to_string(),
        "tls.crt and tls.key of the certificate folder cannot be used"
    );
    assert!(connects(address, &first).await, "it is halfway there");
    write(path.path(), &second);
    folder.check().await.unwrap();
    assert!(connects(address, &second).await);
    assert!(!connects(address, &first).await);
    let reported = "osm_admission_certificate_end_timestamp_seconds";
    assert!(metrics.encode().contains(reported));
    cancel.cancel();
    tasks.join_next().await.unwrap().unwrap().unwrap();
}

#[test]
fn an_identity_is_a_certificate_with_its_own_key() {
    let [one, other] = [certificates(), certificates()];
    let of = |certificate: &str, key: &str| {
        Identity::from_pem(certificate.as_bytes(), key.as_bytes()).map(|_| ())
    };
    assert_eq!(of(&one.certificate, &one.key), Ok(()));
    assert_eq!(of("", &one.key), Err(IdentityError::Certificate));
    assert_eq!(of(&one.certificate, ""), Err(IdentityError::Key));
    assert_eq!(
        of(&one.certificate, &other.key),
        Err(IdentityError::Mismatch)
    );
}
