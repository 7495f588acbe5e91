//! The limits of connections: a slow client keeps nobody out for long.

use std::{io, net::SocketAddr, sync::mpsc, time::Duration};

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    task::{JoinHandle, JoinSet, yield_now},
    time::{Instant, advance},
};
use tokio_rustls::client::TlsStream;

use super::{super::server::CONNECTIONS_MAX, *};

/// Time that goes on by itself only where a test says so: while work of a blocking thread is under
/// way, a paused clock does not jump.
struct StoppedClock {
    _end: mpsc::Sender<()>,
    _held: JoinHandle<()>,
}

impl StoppedClock {
    fn new() -> Self {
        tokio::time::pause();
        let (end, ended) = mpsc::channel::<()>();
        let held = tokio::task::spawn_blocking(move || {
            let _ = ended.recv();
        });
        Self {
            _end: end,
            _held: held,
        }
    }
}

/// The port, with the webhooks behind it.
struct Port {
    address: SocketAddr,
    kept: CertificateBundle,
    _shown: watch::Sender<Option<Identity>>,
    _server: JoinSet<Result<(), rustls::Error>>,
}

impl Port {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let kept = certificates();
        let identity = Identity::from_pem(kept.certificate.as_bytes(), kept.key.as_bytes());
        let (shown, identity) = watch::channel(identity.ok());
        let params = server::Params {
            listener,
            identity,
            router: Reviewer::new(Metrics::new()).router(),
        };
        let mut server = JoinSet::new();
        server.spawn(server::run(params, CancellationToken::new()));
        Self {
            address,
            kept,
            _shown: shown,
            _server: server,
        }
    }

    /// A connection of a client that would speak these protocols.
    async fn client(&self, protocols: &[&str]) -> Client {
        client(self.address, (self.kept.clone(), protocols))
            .await
            .unwrap()
    }
}

type Client = TlsStream<TcpStream>;

async fn client(
    address: SocketAddr,
    (kept, protocols): (CertificateBundle, &[&str]),
) -> io::Result<Client> {
    let mut roots = rustls::RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(kept.authorities.as_bytes());
    roots.add(authority.unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await
}

/// Asks for a review over HTTP/1.1, and reads the answer.
async fn ask(client: &mut Client) -> String {
    let body = a_review(&json!({})).to_string();
    client.write_all(head(body.len()).as_bytes()).await.unwrap();
    client.write_all(body.as_bytes()).await.unwrap();
    let mut answer = String::new();
    while !is_whole(&answer) {
        let mut some = vec![0; 4096];
        let length = client.read(&mut some).await.unwrap();
        assert!(length > 0, "closed behind {answer:?}");
        answer.push_str(std::str::from_utf8(&some[..length]).unwrap());
    }
    answer
}

fn is_whole(answer: &str) -> bool {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return false;
    };
    let mut lines = head.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    length.is_some_and(|length| length.parse() == Ok(body.len()))
}

fn head(length: usize) -> String {
    let path = "/operatingsystemconfig";
    format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n")
}

/// Lets every task proceed that can, over sockets, too.
async fn settle() {
    for _ in 0..50 {
        yield_now().await;
    }
}

#[tokio::test]
async fn who_holds_all_connections_and_says_nothing_keeps_nobody_out() {
    rlimit::increase_nofile_limit(8_192).unwrap();
    let _clock = StoppedClock::new();
    let port = Port::open().await;
    let mut served = port.client(&[]).await;
    advance(Duration::from_millis(1)).await;
    assert!(ask(&mut served).await.starts_with("HTTP/1.1 200"));
    let mut silent = Vec::new();
    for _ in 0..2 * CONNECTIONS_MAX {
        silent.push(TcpStream::connect(port.address).await.unwrap());
        settle().await;
    }
    // Time is paused: a client that is let in has not waited until somebody was found to be idle.
    let mut late = port.client(&[]).await;
    for _ in 0..20 {
        for client in [&mut served, &mut late] {
            let answer = ask(client).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
    }
    drop(silent);
}

#[tokio::test]
async fn a_connection_on_which_nobody_asks_is_closed() {
    let _clock = StoppedClock::new();
    let port = Port::open().await;
    // An empty frame of settings follows the preface.
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0";
    let half = format!("{}{{", head(100));
    for (protocols, said, what) in [
        (&[][..], "", "a handshake alone"),
        (&["http/1.1"], "", "a handshake for HTTP/1.1"),
        (&["h2"], "", "a handshake for HTTP/2"),
        (&["h2"], "PRI", "a part of a preface"),
        (&["h2"], preface, "HTTP/2 without a request"),
        (&["http/1.1"], "POST / HT", "a part of a head"),
        (&["http/1.1"], &half, "a part of a body"),
        (
            &["http/1.1"],
            "GET / HTTP/1.1\r\n\r\n",
            "a request that was answered",
        ),
    ] {
        let mut client = port.client(protocols).await;
        client.write_all(said.as_bytes()).await.unwrap();
        let mut closed = JoinSet::new();
        closed.spawn(async move {
            let mut rest = Vec::new();
            // Whether it is answered or cut off is all the same.
            drop(client.read_to_end(&mut rest).await);
        });
        settle().await;
        let begun = Instant::now();
        while closed.try_join_next().is_none() {
            assert!(begun.elapsed() < Duration::from_mins(10), "{what} stays");
            advance(Duration::from_secs(1)).await;
            settle().await;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "{what}");
    }
}

#[tokio::test]
async fn a_connection_on_which_somebody_asks_now_and_then_stays() {
    let _clock = StoppedClock::new();
    let port = Port::open().await;
    let mut client = port.client(&[]).await;
    for _ in 0..10 {
        assert!(ask(&mut client).await.starts_with("HTTP/1.1 200"));
        advance(Duration::from_secs(25)).await;
        settle().await;
    }
}

/// Asks again and again until the connection is closed, and returns how long that took.
async fn until_closed(client: &mut Client, request: &str, every: Duration) -> Duration {
    let (begun, mut some) = (Instant::now(), vec![0; 4096]);
    while client.write_all(request.as_bytes()).await.is_ok() {
        let Ok(1..) = client.read(&mut some).await else {
            break;
        };
        assert!(begun.elapsed() < Duration::from_mins(11), "it stays");
        advance(every).await;
        settle().await;
    }
    begun.elapsed()
}

#[tokio::test]
async fn a_connection_on_which_nothing_is_asked_that_is_served_is_closed() {
    let _clock = StoppedClock::new();
    let port = Port::open().await;
    let mut client = port.client(&["http/1.1"]).await;
    let request = "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let lived = until_closed(&mut client, request, Duration::from_secs(18)).await;
    assert!(lived < Duration::from_mins(1), "{lived:?}");
}

#[tokio::test]
async fn a_connection_is_closed_after_ten_minutes_however_often_somebody_asks() {
    let _clock = StoppedClock::new();
    let port = Port::open().await;
    let mut client = port.client(&["http/1.1"]).await;
    let body = a_review(&json!({})).to_string();
    let request = head(body.len()) + &body;
    let lived = until_closed(&mut client, &request, Duration::from_secs(25)).await;
    assert!(lived >= Duration::from_mins(10), "{lived:?}");
}

#[tokio::test]
async fn a_verdict_is_given_without_a_remark_that_takes_too_long() {
    tokio::time::pause();
    let (begun, mut slow) = tokio::sync::mpsc::unbounded_channel();
    let (release, gate) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let reviewer = Reviewer::new(Metrics::new()).with_remarks(Arc::new(move |asked| {
        match asked.object["metadata"]["name"].as_str() {
            Some("osp-slow") => {
                begun.send(()).unwrap();
                let _ = gate.lock().unwrap().recv();
            }
            Some("osp-broken") => panic!("c4n4ry"),
            _ => {}
        }
        vec!["a remark".to_owned()]
    }));
    let review = |name: &str| {
        let profile = json!({"metadata": {"name": name}, "spec": {
            "osName": "ubuntu", "osVersion": "24.04", "version": "v1.2.3",
            "supportedCloudProviders": [{"name": "aws"}],
            "bootstrapConfig": {}, "provisioningConfig": {},
        }});
        let (router, body) = (reviewer.router(), a_review(&profile).to_string());
        async move { post(router, PROFILE, body).await.1 }
    };
    let mut asked = JoinSet::new();
    asked.spawn(review("osp-slow"));
    slow.recv().await.unwrap();
    advance(Duration::from_millis(1_900)).await;
    settle().await;
    assert!(asked.try_join_next().is_none(), "it may come yet");
    let other = review("osp-other").await;
    assert!(other.contains("a remark"), "{other}");
    advance(Duration::from_millis(200)).await;
    settle().await;
    let late = asked.try_join_next().expect("it waits no longer").unwrap();
    assert!(late.contains("\"allowed\":true"), "{late}");
    assert!(late.contains("the profile was not test-rendered"), "{late}");
    let broken = review("osp-broken").await;
    assert!(broken.contains("\"allowed\":true"), "{broken}");
    assert!(
        broken.contains("the profile was not test-rendered"),
        "{broken}"
    );
    assert!(!broken.contains("c4n4ry"), "{broken}");
    drop(release);
}
