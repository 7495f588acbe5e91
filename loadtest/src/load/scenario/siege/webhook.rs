//! Attacks on the webhooks: somebody who reaches their port sends reviews that take much memory, or
//! holds connections. The API server's reviews must be answered meanwhile.

use std::{
    ffi::OsString,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use futures::future::{LocalBoxFuture, join_all};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpSocket,
    time::{Instant, sleep, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    demo::process::Manager,
    load::{latency::Latencies, stage::Params},
};

/// Where the API server's reviews come from, and where the attacker's come from.
const API_SERVER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// The name that the webhooks' certificate is for.
const HOST: &str = "localhost";
/// How often the API server asks for a review.
const REVIEW_INTERVAL: Duration = Duration::from_millis(100);
/// The timeout of the webhook configurations in the manifests.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
const START_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Clients that send the largest review that is read, of an array of zeros.
const HEAVY_CLIENTS: usize = 12;
const HEAVY_BYTES: usize = 7 << 20;
/// As many connections as the webhooks accept, each of which asks for something so often.
const CONNECTIONS: usize = 512;
const ASK_INTERVAL: Duration = Duration::from_secs(18);

/// An attack on the webhooks.
pub(super) struct Attack {
    /// Its name.
    pub name: &'static str,
    /// Never returns.
    noise: fn(Port) -> LocalBoxFuture<'static, ()>,
}

/// All attacks.
pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "heavy-reviews",
        noise: |port| Box::pin(heavy_reviews(port)),
    },
    Attack {
        name: "held-connections",
        noise: |port| Box::pin(held_connections(port)),
    },
];

/// The running webhooks.
pub(super) struct Webhooks {
    manager: Manager,
    port: Port,
    /// Where `/livez` is served.
    pub admin: String,
    /// The id of the process.
    pub id: u32,
}

/// How to reach the webhooks.
#[derive(Clone)]
struct Port {
    address: SocketAddr,
    connector: TlsConnector,
}

impl Webhooks {
    /// Starts the webhooks with a certificate of their own, and keeps all that they need in
    /// `folder`.
    pub(super) async fn start(params: &Params, folder: &Path) -> anyhow::Result<Self> {
        let certified = rcgen::generate_simple_self_signed([HOST.to_owned()])?;
        let certificate = certified.cert.pem();
        fs::write(folder.join("tls.crt"), &certificate)?;
        fs::write(
            folder.join("tls.key"),
            certified.signing_key.serialize_pem(),
        )?;
        let mut line: Vec<OsString> = vec![params.osm.clone().into(), "webhook".into()];
        line.extend(["--certificate-folder".into(), folder.into()]);
        for flag in ["--address", "--admin-address"] {
            line.extend([flag.into(), "127.0.0.1:0".into()]);
        }
        line.extend(["--log-format".into(), "text".into()]);
        let log = folder.join("webhooks.log");
        let manager = Manager::supervise(&line, log)?;
        let listens = timeout(START_TIMEOUT, addresses(&manager)).await;
        let (address, admin) = listens.with_context(|| manager.log_tail())??;
        let id = manager.pid().context("the webhooks have no process id")?;
        let port = Port {
            address: address.parse()?,
            connector: connector(&certificate)?,
        };
        Ok(Self {
            manager,
            port,
            admin,
            id,
        })
    }

    /// Asks for reviews as long as the window, beside an attack. Returns how long each took.
    ///
    /// # Errors
    ///
    /// If a review is not answered before the API server gives up.
    pub(super) async fn besieged(
        &self,
        attack: &Attack,
        window: Duration,
    ) -> anyhow::Result<Latencies> {
        tokio::select! {
            took = reviews(&self.port, window) => Latencies::of(took?),
            () = (attack.noise)(self.port.clone()) => anyhow::bail!("the attack ended by itself"),
        }
    }

    /// Ends the webhooks.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        let status = self.manager.stop().await?;
        anyhow::ensure!(status.success(), "the webhooks ended badly ({status})");
        Ok(())
    }
}

/// Returns the addresses of the webhooks and of their admin port as soon as the log has them.
async fn addresses(manager: &Manager) -> anyhow::Result<(String, String)> {
    loop {
        let log = fs::read_to_string(manager.log())?;
        let line = log
            .lines()
            .find(|line| line.contains("the webhooks listen"));
        let mut words = line.unwrap_or_default().split_whitespace();
        let mut value = |key| words.find_map(|word| word.strip_prefix(key).map(str::to_owned));
        if let (Some(address), Some(admin)) = (value("address="), value("admin_address=")) {
            return Ok((address, admin));
        }
        sleep(POLL_INTERVAL).await;
    }
}

fn connector(certificate: &str) -> anyhow::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.as_bytes())?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

type Connection = TlsStream<tokio::net::TcpStream>;

impl Port {
    async fn connect(&self, from: Ipv4Addr) -> anyhow::Result<Connection> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((from, 0)))?;
        let stream = socket.connect(self.address).await?;
        let host = ServerName::try_from(HOST)?;
        Ok(self.connector.connect(host, stream).await?)
    }
}

/// Asks for one review after the other, as the API server does: over a connection that stays, or a
/// new one if that was closed.
async fn reviews(port: &Port, window: Duration) -> anyhow::Result<Vec<Duration>> {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": { "uid": "a", "operation": "CREATE", "object": { "metadata": { "name": "a" } } },
    });
    let review = request(&review.to_string());
    let (begun, mut took, mut connection) = (Instant::now(), Vec::new(), None);
    while begun.elapsed() < window {
        let asked = Instant::now();
        let answered = async {
            if let Some(connection) = &mut connection
                && exchange(connection, &review).await.is_ok_and(|it| it)
            {
                return Ok(());
            }
            let connection = connection.insert(port.connect(API_SERVER).await?);
            let is_answered = exchange(connection, &review).await?;
            anyhow::ensure!(is_answered, "a review is refused");
            Ok(())
        };
        let answered = timeout(REVIEW_TIMEOUT, answered).await;
        answered.context("a review is not answered")??;
        took.push(asked.elapsed());
        sleep(REVIEW_INTERVAL).await;
    }
    Ok(took)
}

fn request(body: &str) -> Vec<u8> {
    let head = format!(
        "POST /mutate-v1alpha1-machinedeployment HTTP/1.1\r\nhost: {HOST}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

/// Sends a request and reads the answer. Returns whether it is a success.
async fn exchange(connection: &mut Connection, request: &[u8]) -> anyhow::Result<bool> {
    connection.write_all(request).await?;
    connection.flush().await?;
    let mut answer = Vec::new();
    loop {
        let length = connection.read_buf(&mut answer).await?;
        anyhow::ensure!(length > 0, "the connection is closed");
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let expected = head.split("content-length: ").nth(1);
            let expected = expected.and_then(|it| it.lines().next()?.parse().ok());
            if body.len() >= expected.unwrap_or(0) {
                return Ok(head.starts_with("http/1.1 200"));
            }
        }
    }
}

async fn heavy_reviews(port: Port) {
    let zeros = "0,".repeat(HEAVY_BYTES / 2 - 100);
    let review = format!(
        "{{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":\
         {{\"uid\":\"a\",\"operation\":\"CREATE\",\"object\":[{zeros}0]}}}}"
    );
    let review = request(&review);
    let clients = (0..HEAVY_CLIENTS).map(|_| async {
        loop {
            if let Ok(mut connection) = port.connect(ATTACKER).await {
                while exchange(&mut connection, &review).await.is_ok() {}
            }
            sleep(POLL_INTERVAL).await;
        }
    });
    join_all(clients).await;
}

async fn held_connections(port: Port) {
    let ask = format!("GET / HTTP/1.1\r\nhost: {HOST}\r\n\r\n");
    let clients = (0..CONNECTIONS).map(|_| async {
        loop {
            if let Ok(mut connection) = port.connect(ATTACKER).await {
                while exchange(&mut connection, ask.as_bytes()).await.is_ok() {
                    sleep(ASK_INTERVAL).await;
                }
            }
            sleep(POLL_INTERVAL).await;
        }
    });
    join_all(clients).await;
}
