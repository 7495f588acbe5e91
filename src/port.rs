//! An HTTP port with bounds on what its clients may take: how many connections there are, how long
//! each lives, and how large a head of a request may be.
//!
//! A newcomer is always let in. Where there are as many connections as may be, the source address
//! that holds the most of them loses the one that is of the least use. So a client that opens many
//! shuts out itself, and nobody else.

mod connections;

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use axum::{Router, extract::Request, response::Response};
use futures::{FutureExt as _, TryFutureExt as _, future::BoxFuture};
use hyper::{body::Incoming, service::Service};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use self::connections::Connections;

/// How long the TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the head of a request may take, and how long a connection lives on which nothing is
/// answered but errors of its client.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection lives at most; API servers open the next one.
const LIFE_MAX: Duration = Duration::from_mins(10);
/// How large the head of a request may be, in bytes: API servers and scrapers send one or two KiB.
const HEAD_BYTES_MAX: u32 = 16 * 1024;
const STREAMS_MAX: u32 = 64;
/// The flow-control window of a connection: how much a client may send before it is read.
const WINDOW_BYTES: u32 = 1024 * 1024;
/// A machine without descriptors is given a moment.
const ACCEPT_DELAY: Duration = Duration::from_millis(100);

/// The parts of a port.
pub struct Params {
    /// The listening socket.
    pub listener: TcpListener,
    /// Without it, plain HTTP/1.1 is spoken.
    pub tls: Option<TlsAcceptor>,
    /// The routes.
    pub router: Router,
    /// How many connections there may be at once.
    pub connections_max: usize,
    /// How long answers in flight may take after the port was asked to end, or a connection was.
    pub drain: Duration,
}

/// The source of a request: an address, or for IPv6 the network of 64 bits that a machine has for
/// itself. An extension of each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source(IpAddr);

impl Source {
    /// The source of connections from an address.
    pub fn of(address: IpAddr) -> Self {
        let IpAddr::V6(address) = address.to_canonical() else {
            return Self(address.to_canonical());
        };
        let network = address.to_bits() >> 64 << 64;
        Self(Ipv6Addr::from_bits(network).into())
    }
}

/// Serves until it is cancelled, and then for as long as answers in flight may take.
pub async fn run(params: Params, cancelled: CancellationToken) {
    let connection = Connection {
        tls: params.tls,
        router: params.router,
        drain: params.drain,
        cancelled: cancelled.clone(),
    };
    let mut connections = Connections::new(params.connections_max);
    loop {
        tokio::select! {
            // Once asked to end, it takes nothing new; connections that ended make room first.
            biased;
            () = cancelled.cancelled() => break,
            () = connections.one_ended() => {}
            accepted = params.listener.accept() => match accepted {
                Ok((stream, address)) => {
                    let source = Source::of(address.ip());
                    let (useful, used) = watch::channel(Instant::now());
                    let served = connection.clone().serve(stream, (source, useful));
                    connections.admit((source, used), served);
                }
                Err(_) => sleep(ACCEPT_DELAY).await,
            }
        }
    }
    drop(params.listener);
    let _ = timeout(params.drain, connections.all_ended()).await;
}

#[derive(Clone)]
struct Connection {
    tls: Option<TlsAcceptor>,
    router: Router,
    drain: Duration,
    cancelled: CancellationToken,
}

/// A service that says where a request came from, and notes when one was answered.
#[derive(Clone)]
struct Asked {
    router: Router,
    source: Source,
    useful: Arc<watch::Sender<Instant>>,
}

impl Service<Request<Incoming>> for Asked {
    type Response = Response;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response, Infallible>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.source);
        let useful = Arc::clone(&self.useful);
        let answered = self.router.clone().oneshot(request);
        answered
            .inspect_ok(move |response| {
                // What nobody serves keeps no connection open.
                if !response.status().is_client_error() {
                    useful.send_replace(Instant::now());
                }
            })
            .boxed()
    }
}

/// Ends when a connection was of no use for as long as it may be idle.
async fn idle(mut useful: watch::Receiver<Instant>) {
    loop {
        let until = *useful.borrow_and_update() + IDLE_TIMEOUT;
        match timeout_at(until, useful.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

impl Connection {
    /// Serves one connection. Its errors are for its client to see.
    async fn serve(self, stream: TcpStream, whose: (Source, watch::Sender<Instant>)) {
        // Without this, small answers wait for the acknowledgement of the last one.
        let _ = stream.set_nodelay(true);
        let Some(tls) = self.tls.clone() else {
            return self.speak(stream, whose).await;
        };
        if let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
            self.speak(stream, whose).await;
        }
    }

    async fn speak(
        self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        (source, useful): (Source, watch::Sender<Instant>),
    ) {
        let builder = self.builder();
        let asked = useful.subscribe();
        let service = Asked {
            router: self.router,
            source,
            useful: Arc::new(useful),
        };
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = self.cancelled.cancelled() => {}
            () = idle(asked) => {}
            () = sleep(LIFE_MAX) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = timeout(self.drain, connection).await;
    }

    fn builder(&self) -> Builder<TokioExecutor> {
        let mut builder = Builder::new(TokioExecutor::new());
        if self.tls.is_none() {
            builder = builder.http1_only();
        }
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE_TIMEOUT)
            .max_buf_size(HEAD_BYTES_MAX as usize);
        builder
            .http2()
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX)
            .initial_connection_window_size(WINDOW_BYTES);
        builder
    }
}

#[cfg(test)]
mod tests;
