//! A transport that can be replaced while clients use it, because a credential was renewed.

use std::sync::Arc;

use parking_lot::Mutex;
use tower::{ServiceExt, service_fn};

use super::transport::Transport;

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
        let latest = Arc::clone(&self.0);
        Transport::new(service_fn(move |request| {
            let current = latest.lock().clone();
            current.oneshot(request)
        }))
    }
}
