//! The TLS port of the webhooks. Connections are bounded in number and in what they may take of
//! time; who holds many open cannot keep others out for long.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{Router, extract::Request, response::Response};
use hyper::{body::Incoming, service::Service};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use rustls::{ServerConfig, crypto::ring};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt as _, util::Oneshot};

use super::identity::{Current, Identity};

/// An API server holds one connection or a few; a hundred of them are many.
pub(super) const CONNECTIONS_MAX: usize = 512;
/// How long the TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the head of a request may take, and how long a connection lives on which nobody asks.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const STREAMS_MAX: u32 = 64;
/// How long answers in flight may take after the process was told to end, or the connection was
/// found to be idle.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// A machine without descriptors is given a moment.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);

/// What is served, and to whom it is shown as whom.
#[derive(Debug)]
pub struct Params {
    /// Where it listens.
    pub listener: TcpListener,
    /// The certificate of the moment; without one no handshake succeeds.
    pub identity: watch::Receiver<Option<Identity>>,
    /// What is served.
    pub router: Router,
}

/// Serves until it is cancelled, and then for as long as answers in flight take, up to ten seconds.
pub async fn run(params: Params, cancelled: CancellationToken) -> Result<(), rustls::Error> {
    let connection = Connection {
        acceptor: acceptor(params.identity)?,
        router: params.router,
        cancelled: cancelled.clone(),
    };
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // Who is told to end takes nothing new; who ended makes room first.
            biased;
            () = cancelled.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = params.listener.accept(), if connections.len() < CONNECTIONS_MAX => {
                match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(connection.clone().serve(stream));
                    }
                    Err(_) => tokio::time::sleep(ACCEPT_DELAY).await,
                }
            }
        }
    }
    drop(params.listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(DRAIN_TIMEOUT, drained).await;
    connections.shutdown().await;
    Ok(())
}

fn acceptor(identity: watch::Receiver<Option<Identity>>) -> Result<TlsAcceptor, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Current(identity)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[derive(Clone)]
struct Connection {
    acceptor: TlsAcceptor,
    router: Router,
    cancelled: CancellationToken,
}

/// A service that tells when it was last asked.
#[derive(Clone)]
struct Asked {
    router: Router,
    last: Arc<watch::Sender<Instant>>,
}

impl Service<Request<Incoming>> for Asked {
    type Response = Response;
    type Error = Infallible;
    type Future = Oneshot<Router, Request<Incoming>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.last.send_replace(Instant::now());
        self.router.clone().oneshot(request)
    }
}

/// Ends when nobody has asked for as long as a connection lives.
async fn idle(mut last: watch::Receiver<Instant>) {
    loop {
        let until = *last.borrow_and_update() + IDLE_TIMEOUT;
        match timeout_at(until, last.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

impl Connection {
    /// What goes wrong on a connection is for its client to see.
    async fn serve(self, stream: TcpStream) {
        // Without this, small answers wait for the acknowledgement of the last one.
        let _ = stream.set_nodelay(true);
        let shaken = timeout(HANDSHAKE_TIMEOUT, self.acceptor.accept(stream)).await;
        let Ok(Ok(stream)) = shaken else {
            return;
        };
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE_TIMEOUT);
        builder.http2().max_concurrent_streams(STREAMS_MAX);
        let (last, asked) = watch::channel(Instant::now());
        let service = Asked {
            router: self.router,
            last: Arc::new(last),
        };
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = self.cancelled.cancelled() => {}
            () = idle(asked) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = timeout(DRAIN_TIMEOUT, connection).await;
    }
}
