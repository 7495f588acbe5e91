//! Permits for work that all tenants share: renders and reconciles under way at once.
//!
//! A tenant's own concurrency comes first, so that a noisy tenant queues behind itself.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Permits that all tenants share, first come, first served.
#[derive(Clone, Debug)]
pub struct Permits(Arc<Semaphore>);

impl Permits {
    /// So many at once.
    pub fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count)))
    }

    /// Waits for a permit; it is given back when dropped.
    pub async fn take(&self) -> OwnedSemaphorePermit {
        let semaphore = Arc::clone(&self.0);
        semaphore
            .acquire_owned()
            .await
            .expect("the semaphore is never closed")
    }
}
