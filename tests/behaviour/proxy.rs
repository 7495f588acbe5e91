//! A way to an API server that counts its connections and can be frozen: bytes are taken, and
//! nothing comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::server::ok;

/// Forwards connections to an API server.
pub struct Proxy {
    address: std::net::SocketAddr,
    frozen: watch::Sender<bool>,
    cuts: watch::Sender<u64>,
    connections: Arc<Connections>,
    _task: JoinSet<()>,
}

/// How many there are, and were.
#[derive(Debug, Default)]
struct Connections {
    accepted: AtomicUsize,
    ended: AtomicUsize,
}

impl Proxy {
    /// Listens on loopback, for the server behind a URL.
    pub async fn start(url: &str) -> Self {
        let target = url.trim_start_matches("https://").to_owned();
        let listener = ok(TcpListener::bind("127.0.0.1:0").await, "a port is free");
        let address = ok(listener.local_addr(), "it has an address");
        let (frozen, cuts) = (watch::Sender::new(false), watch::Sender::new(0));
        let connections = Arc::<Connections>::default();
        let mut task = JoinSet::new();
        let way = Way {
            target,
            frozen: frozen.subscribe(),
            cuts: cuts.subscribe(),
            connections: Arc::clone(&connections),
        };
        task.spawn(accept(listener, way));
        Self {
            address,
            frozen,
            cuts,
            connections,
            _task: task,
        }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Lets nothing through any more, on connections of now and of later.
    pub fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    /// Lets later connections through. Those that were frozen stay silent.
    pub fn thaw(&self) {
        self.frozen.send_replace(false);
    }

    /// Closes every connection.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// How many connections have ever been accepted.
    pub fn accepted(&self) -> usize {
        self.connections.accepted.load(Ordering::SeqCst)
    }

    /// How many connections are open that were not frozen.
    pub fn open(&self) -> usize {
        self.accepted() - self.connections.ended.load(Ordering::SeqCst)
    }
}

#[derive(Clone)]
struct Way {
    target: String,
    frozen: watch::Receiver<bool>,
    cuts: watch::Receiver<u64>,
    connections: Arc<Connections>,
}

async fn accept(listener: TcpListener, way: Way) {
    let mut connections = JoinSet::new();
    while let Ok((from, _)) = listener.accept().await {
        way.connections.accepted.fetch_add(1, Ordering::SeqCst);
        let mut way = way.clone();
        way.cuts.mark_unchanged();
        connections.spawn(forward(from, way));
    }
}

async fn forward(mut from: TcpStream, mut way: Way) {
    let is_frozen = match TcpStream::connect(&way.target).await {
        Err(_) => false,
        Ok(mut to) => tokio::select! {
            biased;
            _ = way.frozen.wait_for(|frozen| *frozen) => true,
            _ = way.cuts.changed() => false,
            _ = copy_bidirectional(&mut from, &mut to) => false,
        },
    };
    way.connections.ended.fetch_add(1, Ordering::SeqCst);
    if is_frozen {
        // The socket stays open, and nobody reads it.
        std::future::pending::<()>().await;
    }
}
