//! Dials the server of a worker cluster: a connection, then TLS. Each step has its own timeout,
//! which is shorter than that of a call, so that the error shows in which step the server was
//! silent.
//!
//! hyper learns from the handshake that a server speaks HTTP/2. Before that, it would dial for
//! every call. Here, only one call dials at a time, and the others share the result: the connection
//! or the error.

use std::{
    error::Error,
    io, iter,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    net::TcpStream,
    sync::Mutex,
    time::{Instant, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service};

use crate::client::transport::route::Route;
use crate::telemetry::{
    chain::chain,
    metrics::{Attempted, Metrics},
};

/// The maximum interval between pings on a connection without traffic.
const PING_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// How long a server may be silent, by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// To resolve its name and to connect.
    pub dial: Duration,
    /// For the TLS handshake.
    pub handshake: Duration,
    /// On a connection, before it gets a ping.
    pub ping_interval: Duration,
    /// Before it answers a ping.
    pub ping_answer: Duration,
    /// Before it acknowledges data. After that, the kernel closes the connection. Without this
    /// limit, it would still try to deliver a write long after its caller has given up.
    pub acknowledgement: Duration,
}

impl Patience {
    /// Returns the timeouts for a request timeout: three tenths of it for the connection, three
    /// tenths for TLS, and the rest for the answer.
    pub fn of(request_timeout: Duration) -> Self {
        Self {
            dial: request_timeout.saturating_mul(3) / 10,
            handshake: request_timeout.saturating_mul(3) / 10,
            ping_interval: request_timeout.saturating_mul(3).min(PING_INTERVAL_MAX),
            ping_answer: request_timeout.min(PING_INTERVAL_MAX),
            acknowledgement: request_timeout,
        }
    }
}

/// The readers of a transport's errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// The operator who runs a command. Errors are exact.
    Operator,
    /// Readers of the tenant's conditions and Events. Errors that would show which ports are open
    /// or what a name resolves to are only logged.
    Tenant,
}

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
enum DialError {
    #[error("no connection to the server within {}", humantime::format_duration(*.0))]
    Connection(Duration),
    #[error("connected, but no TLS handshake within {}", humantime::format_duration(*.0))]
    Handshake(Duration),
    #[error("the TLS handshake failed")]
    Tls(#[source] io::Error),
    #[error("no TLS connection to the API server; the manager's log has the cause")]
    OnlyLogged {
        /// The exact cause.
        cause: Arc<str>,
    },
    #[error("the connection that was waited for is gone")]
    Gone,
    #[error("{error}")]
    AsTheOneBefore {
        error: Arc<str>,
        /// The exact cause, if `error` hides it.
        cause: Option<Arc<str>>,
    },
}

/// Returns the exact cause if the error hides it from its readers.
pub fn hidden_cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a str> {
    let mut causes = iter::successors(Some(error), |&error| error.source());
    causes.find_map(|error| match error.downcast_ref()? {
        DialError::OnlyLogged { cause }
        | DialError::AsTheOneBefore {
            cause: Some(cause), ..
        } => Some(&**cause),
        _ => None,
    })
}

/// Returns true if a call failed because its connection ended.
pub fn is_closed(error: &(dyn Error + 'static)) -> bool {
    let mut causes = iter::successors(Some(error), |&error| error.source());
    causes.any(|error| {
        let is_closed =
            |it: &hyper::Error| it.is_canceled() || it.is_closed() || it.is_incomplete_message();
        error.downcast_ref::<h2::Error>().is_some() || error.downcast_ref().is_some_and(is_closed)
    })
}

/// Returns true if the server's certificate was not issued for it by the expected certificate
/// authority.
pub fn is_certificate_refused(error: &(dyn Error + 'static)) -> bool {
    let mut causes = iter::successors(Some(error), |&error| error.source());
    causes.any(|error| match error.downcast_ref() {
        Some(DialError::Tls(error)) => matches!(
            error.get_ref().and_then(|it| it.downcast_ref()),
            Some(rustls::Error::InvalidCertificate(_))
        ),
        _ => false,
    })
}

impl Audience {
    /// Returns true if this audience may read the error. A tenant may read what is wrong with a
    /// certificate, because its own kubeconfig has to match it, but nothing about earlier steps.
    fn can_read(self, error: &BoxError) -> bool {
        let Some(DialError::Tls(error)) = error.downcast_ref() else {
            return self == Self::Operator;
        };
        let cause = error.get_ref().and_then(|it| it.downcast_ref());
        self == Self::Operator
            || matches!(
                cause,
                Some(rustls::Error::InvalidCertificate(_) | rustls::Error::AlertReceived(_))
            )
    }
}

/// Dials one server.
#[derive(Clone)]
pub(super) struct Dial {
    route: Route,
    tls: TlsConnector,
    name: ServerName<'static>,
    patience: Patience,
    audience: Audience,
    metrics: Metrics,
    shared: Arc<Shared>,
}

/// The state that all dials of one transport share.
#[derive(Default)]
struct Shared {
    /// The result of the last dial. Locked while a call dials.
    last: Mutex<Outcome>,
    /// The number of dials that have ended.
    ended: AtomicU64,
}

/// The result of a dial.
#[derive(Clone, Default)]
enum Outcome {
    /// A connection for one call at a time, or no result yet.
    #[default]
    Own,
    /// A connection that calls share. The token is cancelled when the connection ends.
    Shared(CancellationToken),
    /// There is no connection.
    Failed {
        /// The error for callers.
        error: Arc<str>,
        /// The exact cause, if callers must not read it.
        cause: Option<Arc<str>>,
    },
}

impl Dial {
    /// Creates a dialler that uses this route, and expects a certificate for this name.
    pub(super) fn new(
        route: Route,
        (tls, name): (ClientConfig, ServerName<'static>),
        patience: Patience,
        (audience, metrics): (Audience, Metrics),
    ) -> Self {
        Self {
            route,
            tls: TlsConnector::from(Arc::new(tls)),
            name,
            patience,
            audience,
            metrics,
            shared: Arc::default(),
        }
    }

    async fn dial(self, uri: Uri) -> Result<Link, BoxError> {
        let shared = Arc::clone(&self.shared);
        let before = shared.ended.load(Ordering::Acquire);
        let mut last = shared.last.lock().await;
        if shared.ended.load(Ordering::Acquire) != before {
            match last.clone() {
                Outcome::Own => {}
                Outcome::Failed { error, cause } => {
                    return Err(DialError::AsTheOneBefore { error, cause }.into());
                }
                Outcome::Shared(gone) => {
                    drop(last);
                    // The pool gives that connection to the call that made us dial. hyper lets this
                    // dial end in the background, and keeps the pool until then. Without a timeout,
                    // both would keep the connection open without end.
                    let _ = timeout(self.patience.handshake, gone.cancelled()).await;
                    return Err(DialError::Gone.into());
                }
            }
        }
        let (audience, metrics, begun) = (self.audience, self.metrics.clone(), Instant::now());
        let dialled = self.try_dial(uri.clone()).await;
        metrics.connected(Attempted::of(&dialled), begun.elapsed());
        let dialled = match dialled {
            Ok(link) => {
                *last = link.outcome();
                Ok(link)
            }
            Err(exact) => {
                let (error, cause) = if audience.can_read(&exact) {
                    (exact, None)
                } else {
                    let cause: Arc<str> = format!("{uri}: {}", chain(exact.as_ref())).into();
                    let hidden = Arc::clone(&cause);
                    (DialError::OnlyLogged { cause: hidden }.into(), Some(cause))
                };
                *last = Outcome::Failed {
                    error: chain(error.as_ref()).to_string().into(),
                    cause,
                };
                Err(error)
            }
        };
        shared.ended.fetch_add(1, Ordering::Release);
        dialled
    }

    async fn try_dial(self, uri: Uri) -> Result<Link, BoxError> {
        let Patience {
            dial, handshake, ..
        } = self.patience;
        let dialled = timeout(dial, self.route.connect(uri)).await;
        let dialled = dialled.map_err(|_| DialError::Connection(dial))??;
        let agreed = self.tls.connect(self.name, dialled);
        let agreed = timeout(handshake, agreed).await;
        let stream = agreed
            .map_err(|_| DialError::Handshake(handshake))?
            .map_err(DialError::Tls)?;
        let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Link {
            stream: TokioIo::new(stream),
            shared: speaks_http2.then(Gone::default),
        })
    }
}

/// Signals the end of a connection.
#[derive(Default)]
struct Gone {
    token: CancellationToken,
}

impl Drop for Gone {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

impl Service<Uri> for Dial {
    type Response = Link;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Link, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().dial(uri))
    }
}

/// A connection to the server.
pub(super) struct Link {
    stream: TokioIo<TlsStream<TcpStream>>,
    /// Signals the end of the connection if calls share it.
    shared: Option<Gone>,
}

impl Link {
    fn outcome(&self) -> Outcome {
        let gone = self.shared.as_ref();
        gone.map_or(Outcome::Own, |it| Outcome::Shared(it.token.clone()))
    }
}

/// Marks the answers of an HTTP/1.1 connection. Such a connection has no pings, so only the answer
/// to the next call shows whether its server is alive.
#[derive(Clone, Copy, Debug)]
pub struct OneCallAtATime;

impl Connection for Link {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        if self.shared.is_some() {
            return connected.negotiated_h2();
        }
        connected.extra(OneCallAtATime)
    }
}

impl Read for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl Write for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }
}
