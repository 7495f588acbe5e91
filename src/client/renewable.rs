//! A transport that can be replaced while clients use it, because a credential was renewed.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use tower::{BoxError, Service, ServiceExt};

use super::transport::{ResponseBody, Transport};

/// A transport that can be replaced. A request, or a watch, ends with the one that it began with.
#[derive(Clone)]
pub struct Renewable(Arc<Mutex<Transport>>);

impl Renewable {
    /// Creates it with its first transport.
    pub fn new(transport: Transport) -> Self {
        Self(Arc::new(Mutex::new(transport)))
    }

    /// Replaces the transport for all later requests.
    pub fn renew(&self, transport: Transport) {
        *self.0.lock() = transport;
    }

    /// Returns a transport that always uses the latest one.
    pub fn transport(&self) -> Transport {
        Transport::new(self.clone())
    }
}

impl Service<Request<Body>> for Renewable {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The transport of this moment is asked once it is called.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let current = self.0.lock().clone();
        Box::pin(current.oneshot(request))
    }
}
