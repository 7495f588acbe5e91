use std::{sync::Arc, time::Duration};

use http::{Request, Response};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;
use tower::{BoxError, ServiceExt as _};

use super::*;

/// Creates a kubeconfig with these fields of its cluster and of its user.
fn a_kubeconfig(cluster: &str, user: &str) -> Kubeconfig {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- name: a\n  context: \
         {{cluster: a, user: a}}\nclusters:\n- name: a\n  cluster: {{{cluster}}}\nusers:\n- name: \
         a\n  user: {{{user}}}\n"
    );
    Kubeconfig::from_yaml(&text).expect("it is one")
}

/// Requests the version from the server of a kubeconfig.
async fn ask(kubeconfig: Kubeconfig) -> Result<Response<()>, BoxError> {
    let config = load(kubeconfig).await.expect("it can be used");
    let agent = HeaderValue::from_static("osm");
    let transport = transport(&config, agent, Patience::of(Duration::from_mins(1)));
    let transport = transport.expect("it can be connected with");
    let request = Request::get("/version").body(Body::empty());
    let answer = transport.oneshot(request.expect("a request")).await?;
    Ok(answer.map(drop))
}

/// Answers one request, and returns its head in lower case.
async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a request has a head"));
    }
    let text = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    stream.write_all(text).await.expect("the client reads");
    String::from_utf8(head).expect("it is text").to_lowercase()
}

/// Returns the head of a request by a user with these fields.
async fn head_of(user: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let asked = ask(a_kubeconfig(
        &format!("server: 'http://{address}'"),
        &format!("token: t0ken, {user}"),
    ));
    let answered = async { answer(listener.accept().await.expect("one comes").0).await };
    let (head, asked) = tokio::join!(answered, asked);
    asked.expect("it is answered");
    assert!(head.contains("authorization: bearer t0ken\r\n"), "{head}");
    head
}

#[tokio::test]
async fn as_of_a_kubeconfig_is_who_the_request_impersonates() {
    let head = head_of("as: jane").await;
    assert!(head.contains("impersonate-user: jane\r\n"), "{head}");
}

#[tokio::test]
async fn as_groups_of_a_kubeconfig_are_groups_that_the_request_impersonates() {
    let head = head_of("as: jane, as-groups: [readers, auditors]").await;
    for group in ["readers", "auditors"] {
        let line = format!("impersonate-group: {group}\r\n");
        assert!(head.contains(&line), "{head}");
    }
}

#[tokio::test]
async fn as_uid_of_a_kubeconfig_is_the_uid_that_the_request_impersonates() {
    let head = head_of("as: jane, as-uid: '7'").await;
    assert!(head.contains("impersonate-uid: 7\r\n"), "{head}");
}

#[tokio::test]
async fn as_user_extra_of_a_kubeconfig_is_what_the_request_impersonates_besides() {
    let head = head_of("as: jane, as-user-extra: {scopes: [view]}").await;
    assert!(
        head.contains("impersonate-extra-scopes: view\r\n"),
        "{head}"
    );
}

#[tokio::test]
async fn tls_server_name_of_a_kubeconfig_is_the_name_that_the_certificate_is_checked_for() {
    let made = rcgen::generate_simple_self_signed(["api.example".to_owned()]);
    let made = made.expect("a certificate is made");
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the versions are known")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], PrivateKeyDer::Pkcs8(key))
        .expect("the key fits");
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let authority = STANDARD.encode(made.cert.pem());
    for (name, is_answered) in [("", false), (", tls-server-name: api.example", true)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let asked = ask(a_kubeconfig(
            &format!("server: 'https://{address}', certificate-authority-data: {authority}{name}"),
            "token: t0ken",
        ));
        let answered = async {
            let stream = listener.accept().await.expect("one comes").0;
            if let Ok(stream) = acceptor.accept(stream).await {
                answer(stream).await;
            }
        };
        let ((), asked) = tokio::join!(answered, asked);
        assert_eq!(asked.is_ok(), is_answered, "{name}: {asked:?}");
    }
}

#[tokio::test]
async fn the_kernel_gives_up_what_is_not_acknowledged_in_the_time_of_a_call() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = format!("http://{address}");
    let config = kube::Config::new(server.parse().expect("a URL"));
    let http = http(&config, Patience::of(Duration::from_secs(7)));
    let stream = http.oneshot(config.cluster_url).await.expect("it listens");
    let socket = socket2::SockRef::from(stream.inner());
    let bound = socket.tcp_user_timeout().expect("Linux has it");
    assert_eq!(bound, Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn proxy_url_of_a_kubeconfig_is_refused_without_its_value() {
    let cluster = "server: 'https://a.example', proxy-url: 'http://jane:s3cret@proxy.example'";
    let refused = load(a_kubeconfig(cluster, "token: t0ken")).await;
    let refused = refused.expect_err("no proxy is used").to_string();
    assert!(refused.contains("proxy-url"), "{refused}");
    assert!(!refused.contains("s3cret"), "{refused}");
}
