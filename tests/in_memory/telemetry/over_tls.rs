//! A collector that proves who it is gets the traces, over both protocols.

use std::sync::Arc;

use loadtest::collector::Collector;
use osm::telemetry::{self, OtlpProtocol, TelemetrySettings};
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tracing::info_span;

use super::{DEADLINE, exporting_to};

/// The name of the variable that makes the test the child that it starts.
const PROTOCOL: &str = "OSM_TEST_TLS_PROTOCOL";
const ENDPOINT: &str = "OSM_TEST_TLS_ENDPOINT";

async fn send_one_span(protocol: &str, endpoint: String) {
    let settings = TelemetrySettings {
        otlp_protocol: match protocol {
            "grpc" => OtlpProtocol::Grpc,
            _ => OtlpProtocol::Http,
        },
        ..exporting_to(endpoint)
    };
    let telemetry = telemetry::start(&settings).expect("telemetry starts once");
    info_span!(target: "osm::test", "reconcile", tenant = protocol).in_scope(|| {});
    telemetry.shutdown().await;
}

/// Terminates TLS for every client, and forwards what they send.
async fn stand_before(plain: String, listener: TcpListener, acceptor: TlsAcceptor) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("it listens");
        let (plain, acceptor) = (plain.clone(), acceptor.clone());
        connections.spawn(async move {
            let mut outer = acceptor.accept(stream).await?;
            let mut inner = TcpStream::connect(plain).await?;
            tokio::io::copy_bidirectional(&mut outer, &mut inner).await
        });
    }
}

#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "stands for settings.rs in the child"
)]
async fn a_collector_proves_itself_by_an_authority_of_the_machine() {
    if let (Ok(protocol), Ok(endpoint)) = (std::env::var(PROTOCOL), std::env::var(ENDPOINT)) {
        return send_one_span(&protocol, endpoint).await;
    }
    let collector = Collector::start().await.unwrap();
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("ca.pem");
    std::fs::write(&authority, own.cert.pem()).unwrap();
    let mut tasks = JoinSet::new();
    for (protocol, plain, path) in [
        ("grpc", collector.endpoint(), ""),
        ("http", collector.http_endpoint(), "/v1/traces"),
    ] {
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)
            .unwrap();
        let spoken = if protocol == "grpc" { "h2" } else { "http/1.1" };
        config.alpn_protocols = vec![spoken.into()];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let plain = plain.trim_start_matches("http://").to_owned();
        tasks.spawn(stand_before(plain, listener, Arc::new(config).into()));
        let output = tokio::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("telemetry::over_tls::a_collector_proves_itself_by_an_authority_of_the_machine")
            .env(PROTOCOL, protocol)
            .env(ENDPOINT, format!("https://localhost:{port}{path}"))
            .env("SSL_CERT_FILE", &authority)
            .env_remove("SSL_CERT_DIR")
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(DEADLINE, output).await.unwrap();
        let log = String::from_utf8(output.unwrap().stderr).unwrap();
        let came = collector.wait_for(
            |spans| spans.iter().any(|it| it.attributes["tenant"] == protocol),
            DEADLINE,
        );
        came.await.expect(&log);
    }
}
