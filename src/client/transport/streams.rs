//! Limits the number of streams on every connection to less than servers allow, and checks each
//! write once more when it is sent.
//!
//! Beyond a server's limit, hyper holds a request back. When a stream becomes free, it sends one
//! such request even if its caller has given up in the meantime. So a call reserves a stream before
//! hyper sees it, and keeps the stream until its answer is dropped. The limit of a server may still
//! be lower, and hyper dials before it sends. So the body of a write checks, when its first byte is
//! read, that a caller still waits for the answer and that the fence is still open. A body that
//! fails resets the stream, and the server drops the request that it has not read.

use std::{
    pin::Pin,
    sync::{Arc, OnceLock, Weak},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, connect::Connect};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{BoxError, Service};

use crate::client::{
    fence::{Fence, Fenced},
    transport::ResponseBody,
};

/// The maximum number of streams on a connection. `kube-apiserver`, `HAProxy` and Envoy allow 100
/// by default, nginx 128. The rest is for streams that were abandoned here and are not yet closed
/// there.
const STREAMS_MAX: usize = 80;

/// The error for a write whose caller gave up before it was sent.
#[derive(Debug, thiserror::Error)]
#[error("not sent: its caller has given up")]
struct GivenUp;

/// The error if no client of a pool has a free stream, not even a new one.
#[derive(Debug, thiserror::Error)]
#[error("no stream is free")]
struct NoStream;

/// A client of one server, with one connection if the server speaks HTTP/2. Calls beyond the
/// streams of one connection wait.
#[derive(Clone)]
pub struct LimitedClient<C> {
    client: Client<C, Box<RequestBody>>,
    streams: Arc<Semaphore>,
}

impl<C> LimitedClient<C>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    /// Limits the streams of a client that keeps at most one connection.
    pub fn new(client: Client<C, Box<RequestBody>>) -> Self {
        Self {
            client,
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
        }
    }

    fn reserve(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.streams).try_acquire_owned().ok()
    }

    fn is_idle(&self) -> bool {
        self.streams.available_permits() == STREAMS_MAX
    }

    async fn send(
        self,
        mut request: Request<Body>,
        stream: OwnedSemaphorePermit,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let fence = request.extensions_mut().remove::<Fence>();
        let caller = Arc::<Caller>::default();
        let method = request.method().clone();
        let check = (!matches!(method, Method::GET | Method::HEAD)).then(|| Check {
            fence,
            method,
            caller: Arc::downgrade(&caller),
        });
        let request = request.map(|body| Box::new(RequestBody { body, check }));
        match self.client.request(request).await {
            Ok(response) => Ok(response.map(|body| {
                let held = Held {
                    body,
                    _stream: stream,
                    _caller: caller,
                };
                held.map_err(std::io::Error::other).boxed_unsync()
            })),
            // hyper knows only that the body ended with an error.
            Err(error) => match caller.fenced.get() {
                Some(&fenced) => Err(fenced.into()),
                None => Err(error.into()),
            },
        }
    }
}

impl<C> Service<Request<Body>> for LimitedClient<C>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.clone();
        Box::pin(async move {
            let stream = Arc::clone(&client.streams).acquire_owned().await?;
            client.send(request, stream).await
        })
    }
}

/// A pool with enough connections to one server for the streams of all calls. A watch holds a
/// stream for as long as it lasts.
pub struct ConnectionPool<C> {
    connect: Arc<dyn Fn() -> LimitedClient<C> + Send + Sync>,
    clients: Arc<Mutex<Vec<LimitedClient<C>>>>,
}

impl<C> Clone for ConnectionPool<C> {
    fn clone(&self) -> Self {
        Self {
            connect: Arc::clone(&self.connect),
            clients: Arc::clone(&self.clients),
        }
    }
}

impl<C> ConnectionPool<C>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    /// Creates a pool of clients that this function creates.
    pub fn new(connect: impl Fn() -> LimitedClient<C> + Send + Sync + 'static) -> Self {
        Self {
            connect: Arc::new(connect),
            clients: Arc::default(),
        }
    }

    /// Returns the first client that has a free stream, or a new one. Later clients without
    /// requests are dropped, and their connections with them.
    fn reserve(&self) -> Option<(LimitedClient<C>, OwnedSemaphorePermit)> {
        let mut clients = self.clients.lock();
        while clients.len() > 1 && clients.last().is_some_and(LimitedClient::is_idle) {
            clients.pop();
        }
        let reserved = |client: &LimitedClient<C>| Some((client.clone(), client.reserve()?));
        if let Some(found) = clients.iter().find_map(reserved) {
            return Some(found);
        }
        let client = (self.connect)();
        let made = reserved(&client);
        clients.push(client);
        made
    }
}

impl<C> Service<Request<Body>> for ConnectionPool<C>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let reserved = self.reserve();
        Box::pin(async move {
            let (client, stream) = reserved.ok_or(NoStream)?;
            client.send(request, stream).await
        })
    }
}

/// The caller that waits for an answer.
#[derive(Default)]
struct Caller {
    /// The reason why the request was not sent.
    fenced: OnceLock<Fenced>,
}

/// The check of a write when its body is about to be sent.
struct Check {
    fence: Option<Fence>,
    method: Method,
    caller: Weak<Caller>,
}

impl Check {
    fn pass(self) -> Result<(), BoxError> {
        let caller = self.caller.upgrade().ok_or(GivenUp)?;
        let Some(fence) = self.fence else {
            return Ok(());
        };
        fence.check(&self.method).map_err(|fenced| {
            let fenced = caller.fenced.get_or_init(|| fenced);
            BoxError::from(*fenced)
        })
    }
}

/// The body of a request, which is checked before its first byte is sent.
///
/// It is boxed, because hyper's queue keeps two blocks of 32 requests per connection: 10 KiB each
/// with a box in place of the body, and 12 KiB without.
pub struct RequestBody {
    body: Body,
    /// `None` after it has passed.
    check: Option<Check>,
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(Err(stopped)) = self.check.take().map(Check::pass) {
            return Poll::Ready(Some(Err(stopped)));
        }
        Pin::new(&mut self.body)
            .poll_frame(context)
            .map_err(Into::into)
    }

    /// A write without a body is checked, too, because its end is not sent with its head.
    fn is_end_stream(&self) -> bool {
        self.check.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer, which holds its stream.
struct Held {
    body: Incoming,
    _stream: OwnedSemaphorePermit,
    _caller: Arc<Caller>,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
