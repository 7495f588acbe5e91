//! What tenants and operators read when there is no connection.

use super::*;
use jiff::Timestamp;
use osm::client::{clock::Clock, health::Health};
use osm::telemetry::logs::LogBuffer;
use osm::tenant::id::RegistrationId;

use crate::links::identity::{a_leaf_as_authority, an_authority, on_p521, signed};

/// What tenants read of everything that comes before a certificate.
const ONLY_LOGGED: &str = "no TLS connection to the API server; the manager's log has the cause";

/// Returns what a caller reads whose kubeconfig has another server.
async fn error_at(server: &str, audience: Audience) -> String {
    let mut hostile = Hostile::start("h2", || Response::new(whole("{}"))).await;
    hostile.kubeconfig = hostile.kubeconfig.replace(&hostile.address, server);
    let timeout = Duration::from_secs(3);
    let clock = Clock::tokio(Timestamp::UNIX_EPOCH);
    let registration = RegistrationId::new("berlin", "berlin");
    let health = Arc::new(Health::new(Arc::default(), clock, (registration, timeout)));
    let client = connect::client(ClientParts {
        health: Some(Arc::clone(&health)),
        ..parts(hostile.transport_for(audience, timeout), timeout)
    });
    let call = async || {
        let answer = client.request_text(get("/version")).await;
        chain(&answer.expect_err("nobody serves there")).to_string()
    };
    // One of two calls at once connects, and the other shares its error.
    let (first, second) = tokio::join!(call(), call());
    health.due().await;
    for other in [second, call().await] {
        assert_eq!(
            other.contains(ONLY_LOGGED),
            first.contains(ONLY_LOGGED),
            "{other}"
        );
    }
    first
}

/// An address where nobody listens.
async fn closed() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("an address").to_string()
}

/// An address where somebody listens who answers this, or nothing.
async fn not_tls(answer: &'static [u8]) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let sent = tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await;
            sent.expect("the caller has connected");
            open.push(stream);
        }
    });
    (address, task)
}

#[tokio::test]
async fn tenants_do_not_learn_which_ports_are_open() {
    let log = LogBuffer::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let (silent, _silent) = not_tls(b"").await;
    let (smtp, _smtp) = not_tls(b"220 mail ESMTP\r\n").await;
    let (name, closed) = ("no-such-name.invalid:6443".to_owned(), closed().await);
    // A resolver that is not reachable takes longer than a connection may.
    let attempts: [(&String, &[&str]); _] = [
        (&closed, &["Connection refused"]),
        (&silent, &["no TLS handshake within 900ms"]),
        (&smtp, &["the TLS handshake failed"]),
        (&name, &["lookup", "no connection to the server"]),
    ];
    for (server, causes) in attempts {
        let has_cause = |text: &str| causes.iter().any(|cause| text.contains(cause));
        let tenant = error_at(server, Audience::Tenant).await;
        assert!(tenant.ends_with(ONLY_LOGGED), "{server}: {tenant}");
        assert!(!has_cause(&tenant), "{server}: {tenant}");
        let logged = log.text();
        let lines = || logged.lines().filter(|line| line.contains(server));
        assert_eq!(lines().count(), 1, "{logged}");
        assert!(lines().all(&has_cause), "{causes:?}: {logged}");
        let operator = error_at(server, Audience::Operator).await;
        assert!(has_cause(&operator), "{server}: {operator}");
    }
}

#[tokio::test]
async fn tenants_learn_that_a_certificate_does_not_match() {
    let other = Hostile::start("h2", || Response::new(whole("{}"))).await;
    let error = error_at(&other.address, Audience::Tenant).await;
    assert!(error.contains("is it of another cluster?"), "{error}");
}

#[tokio::test]
async fn a_certificate_that_is_not_accepted_is_named_in_a_sentence() {
    let expired = signed(|it| it.not_after = rcgen::date_time_ymd(2026, 1, 31));
    for (identity, expected) in [
        (expired, "the server's certificate expired on 2026-01-31"),
        (
            an_authority(),
            "the certificate of an authority (CA:TRUE) as its own",
        ),
        (a_leaf_as_authority(), "not the server's own"),
        (
            on_p521(),
            "RSA of at least 2048 bits, ECDSA on P-256 or P-384, and Ed25519",
        ),
    ] {
        let terms = Terms {
            identity: Arc::new(identity),
            ..Terms::default()
        };
        let server = Hostile::start_on(terms, "h2", || Response::new(whole("{}"))).await;
        for audience in [Audience::Operator, Audience::Tenant] {
            let client = client(server.transport_for(audience, TIMEOUT), TIMEOUT);
            let answer = client.request_text(get("/version")).await;
            let error = chain(&answer.expect_err("it is not accepted")).to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("Error("), "{error}");
        }
    }
}
