//! An HTTP proxy on loopback that connects as it is asked to, as an operator has it between the
//! management cluster and worker clusters.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const HEAD_BYTES_MAX: usize = 16 * 1024;

/// What it answers to each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It connects.
    Connected,
    /// It wants a password.
    Unauthorized,
}

/// A proxy that runs for as long as it lives.
#[derive(Debug)]
pub struct EgressProxy {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    _task: JoinSet<()>,
}

impl EgressProxy {
    /// Starts one on a free port.
    ///
    /// # Errors
    ///
    /// When there is no free port.
    pub async fn start(answer: Answer) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("a port")?;
        let address = listener.local_addr().context("an address")?;
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (mut task, seen) = (JoinSet::new(), Arc::clone(&requests));
        task.spawn(async move {
            let mut tunnels = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                tunnels.spawn(tunnel(client, answer, Arc::clone(&seen)));
            }
        });
        Ok(Self {
            address,
            requests,
            _task: task,
        })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The heads of all requests so far.
    pub fn requests(&self) -> Vec<String> {
        let requests = self.requests.lock();
        requests.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Serves a client, which may go at any time.
async fn tunnel(
    mut client: TcpStream,
    answer: Answer,
    requests: Arc<Mutex<Vec<String>>>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let server = head.split(' ').nth(1).unwrap_or_default().to_owned();
    requests
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(head);
    if answer == Answer::Unauthorized {
        let unauthorized = b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
        return client.write_all(unauthorized).await;
    }
    let mut server = TcpStream::connect(server).await?;
    let connected = b"HTTP/1.1 200 Connection established\r\n\r\n";
    client.write_all(connected).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
