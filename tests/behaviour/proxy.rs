//! A way to an API server that can be frozen: bytes are taken, and nothing comes back.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::suite::server::ok;

/// Forwards connections to an API server.
pub struct Proxy {
    address: std::net::SocketAddr,
    frozen: watch::Sender<bool>,
    _task: JoinSet<()>,
}

impl Proxy {
    /// Listens on loopback, for the server behind a URL.
    pub async fn start(url: &str) -> Self {
        let target = url.trim_start_matches("https://").to_owned();
        let listener = ok(TcpListener::bind("127.0.0.1:0").await, "a port is free");
        let address = ok(listener.local_addr(), "it has an address");
        let frozen = watch::Sender::new(false);
        let mut task = JoinSet::new();
        task.spawn(accept(listener, target, frozen.subscribe()));
        Self {
            address,
            frozen,
            _task: task,
        }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Lets nothing through any more.
    pub fn freeze(&self) {
        self.frozen.send_replace(true);
    }
}

async fn accept(listener: TcpListener, target: String, frozen: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    while let Ok((mut from, _)) = listener.accept().await {
        let (target, mut frozen) = (target.clone(), frozen.clone());
        connections.spawn(async move {
            let Ok(mut to) = TcpStream::connect(target).await else {
                return;
            };
            let is_frozen = tokio::select! {
                biased;
                _ = frozen.wait_for(|frozen| *frozen) => true,
                _ = copy_bidirectional(&mut from, &mut to) => false,
            };
            if is_frozen {
                // Both sockets stay open, and nobody reads them.
                std::future::pending::<()>().await;
            }
        });
    }
}
