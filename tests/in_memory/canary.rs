//! No setting makes the log tell what a server answered, and nothing stored or said of a render
//! holds a secret.

mod renders;

use std::convert::Infallible;

use http::{Request, Response};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams, Patch, PatchParams, WatchParams};
use kube::client::Body;
use kube::runtime::watcher;
use osm::telemetry::logs::{LogBuffer, LogFormat};
use osm::telemetry::{self, TelemetrySettings, chain};
use tower::service_fn;
use tracing::dispatcher::DefaultGuard;

/// What must not be found.
const CANARY: &str = "c4n4ry-b00tstrap-t0ken";

/// Everything that a user could ask for, with our own directives overruled by longer ones.
const ALL: &str = "trace,kube_client=trace,kube_client::client=trace,kube_runtime=trace,\
                   kube_runtime::watcher=trace,hyper=trace,h2=trace,tower=trace,rustls=trace";

fn capture(log_format: LogFormat) -> (LogBuffer, DefaultGuard) {
    let logs = LogBuffer::default();
    let settings = TelemetrySettings {
        log_format,
        log_filter: ALL.to_owned(),
        ..TelemetrySettings::default()
    };
    let (dispatch, _telemetry) =
        telemetry::prepare(&settings, logs.clone()).expect("the settings are right");
    (logs, tracing::dispatcher::set_default(&dispatch))
}

fn a_client(answer: String) -> kube::Client {
    let server = service_fn(move |_: Request<Body>| {
        let answer = answer.clone();
        async move {
            let answer = Response::builder()
                .header("x-canary", CANARY)
                .body(Body::from(answer.into_bytes()))
                .expect("the answer is well formed");
            Ok::<_, Infallible>(answer)
        }
    });
    kube::Client::new(server, "default")
}

#[test]
fn other_crates_cannot_log_an_answer_at_any_level() {
    for format in [LogFormat::Json, LogFormat::Text] {
        let (logs, _guard) = capture(format);
        tracing::warn!(target: "kube_client::client", "{}, {:?}", CANARY, "not a Secret");
        tracing::debug!(target: "kube_client::client", "Unsuccessful data error parse: {CANARY}");
        tracing::trace!(target: "kube_client::client", "headers: {CANARY}");
        tracing::debug!(target: "kube_runtime::watcher", "watcher error: {CANARY}");
        tracing::debug!(target: "hyper::proto::h1", "authorization: Bearer {CANARY}");
        tracing::trace!(target: "h2::codec", body = CANARY, "received frame");
        tracing::debug_span!(target: "kube_client::client::builder", "HTTP", http.url = CANARY)
            .in_scope(|| tracing::info!(target: "kube_client", "the sink works"));
        assert!(logs.text().contains("the sink works"));
        assert!(!logs.text().contains(CANARY), "{}", logs.text());
    }
}

#[tokio::test]
async fn an_answer_that_is_no_secret_is_not_logged() {
    let answers = [
        // Each makes serde stumble at another place; the first is quoted by its error.
        format!(r#"{{"metadata":{{"name":"a"}},"data":"{CANARY}"}}"#),
        format!(r#"{{"metadata":{{"name":"a"}},"data":{{"token":"{CANARY}"}}}}"#),
        format!(r#"{{"kind":"Status","code":"{CANARY}"}}"#),
        CANARY.to_owned(),
    ];
    for answer in answers {
        let (logs, _guard) = capture(LogFormat::Json);
        let secrets: Api<Secret> = Api::namespaced(a_client(answer), "n");
        let patch = Patch::Merge(serde_json::json!({ "stringData": { "token": CANARY } }));
        let errors = [
            secrets.get("a").await.unwrap_err(),
            secrets.list(&ListParams::default()).await.unwrap_err(),
            secrets
                .patch("a", &PatchParams::default(), &patch)
                .await
                .unwrap_err(),
            secrets
                .delete("a", &kube::api::DeleteParams::default())
                .await
                .unwrap_err(),
        ];
        for error in errors {
            tracing::warn!(target: "osm::test", error = %chain::chain(&error), "cannot read");
        }
        assert_eq!(logs.text().matches("cannot read").count(), 4);
        assert!(!logs.text().contains(CANARY), "{}", logs.text());
    }
}

#[tokio::test]
async fn a_watch_that_brings_no_secret_is_not_logged() {
    use futures::{StreamExt, TryStreamExt};

    let (logs, _guard) = capture(LogFormat::Json);
    let event = format!(r#"{{"type":"ADDED","object":{{"data":"{CANARY}"}}}}"#);
    let secrets: Api<Secret> = Api::namespaced(a_client(event), "n");
    let events = secrets.watch(&WatchParams::default(), "1").await.unwrap();
    let error = events.boxed().try_next().await.unwrap_err();
    tracing::warn!(target: "osm::test", error = %chain::chain(&error), "cannot watch");

    let list = format!(r#"{{"metadata":{{}},"items":[{{"data":"{CANARY}"}}]}}"#);
    let secrets: Api<Secret> = Api::namespaced(a_client(list), "n");
    let mut watched = watcher(secrets, watcher::Config::default()).boxed();
    let error = loop {
        if let Err(error) = watched.try_next().await {
            break error;
        }
    };
    assert!(
        error.to_string().contains(CANARY),
        "kube repeats what serde quotes: {error}"
    );
    tracing::warn!(target: "osm::test", error = %chain::chain(&error), "cannot watch");
    assert_eq!(logs.text().matches("cannot watch").count(), 2);
    assert!(!logs.text().contains(CANARY), "{}", logs.text());
}

#[test]
fn an_error_is_reported_with_its_causes_and_without_values() {
    let unread = serde_json::from_str::<u8>(&format!("\n  {CANARY:?}")).unwrap_err();
    assert!(
        unread.to_string().contains(CANARY),
        "serde quotes values: {unread}"
    );
    assert_eq!(
        chain::chain(&kube::Error::SerdeError(unread)).to_string(),
        "Error deserializing response: not the JSON that was expected, at line 2 column 26"
    );
    let long = std::io::Error::other("é".repeat(5_000));
    assert_eq!(chain::chain(&long).to_string().chars().count(), 1_025);
}

#[test]
fn a_value_with_a_line_break_stays_on_its_line() {
    for format in [LogFormat::Json, LogFormat::Text] {
        let (logs, _guard) = capture(format);
        let forged = "x\n2026-01-01T00:00:00Z  INFO osm: all is well\r\u{1b}[2K";
        tracing::warn!(target: "osm::test", name = %forged, other = forged, "odd name {forged}");
        assert_eq!(logs.text().lines().count(), 1, "{}", logs.text());
        assert!(
            !logs.text().trim_end().contains(char::is_control),
            "{}",
            logs.text()
        );
    }
}
