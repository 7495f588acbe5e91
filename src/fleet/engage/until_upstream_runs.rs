//! Looks for the previous manager while a cluster is served: an installer may bring it back.

use std::time::Duration;

use tokio::sync::Notify;

use super::Attempt;
use crate::client::{jitter, retry_delay::RetryDelay};
use crate::fleet::{
    adoption::{self, Holder, Predecessor},
    engagement::Shared,
};
use crate::telemetry::chain::chain;

/// The minimum time between two checks. Each costs two requests, and another program may write the
/// namespace all the time.
const BETWEEN: Duration = Duration::from_secs(10);

/// Returns once the previous manager renews its Lease. In a cluster that it served before, this
/// checks periodically. In every cluster, it checks when `foreign_write` reports that another
/// program wrote an object that we write.
pub async fn until_upstream_runs(shared: &Shared, attempt: &Attempt, foreign_write: &Notify) {
    loop {
        tokio::select! {
            () = periodic(shared, attempt) => {}
            () = foreign_write.notified() => {}
        }
        if let Some(holder) = Box::pin(running(shared, attempt)).await {
            let Holder { lease, identity } = holder;
            let registration = attempt.health.registration();
            tracing::warn!(%registration, lease, identity, "the previous manager runs");
            return;
        }
        tokio::time::sleep(BETWEEN).await;
    }
}

async fn periodic(shared: &Shared, attempt: &Attempt) {
    if attempt.predecessor == Predecessor::None {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(jitter::part(shared.cluster_info_interval, 0.9, 1.1)).await;
}

/// Returns the holder of the Lease, if any. A failed check is retried.
async fn running(shared: &Shared, attempt: &Attempt) -> Option<Holder> {
    let mut delay = RetryDelay::default();
    loop {
        match adoption::running(&attempt.worker.client(), &shared.clock).await {
            Ok(found) => return found,
            Err(error) => {
                tracing::debug!(error = %chain(&error), "cannot read the Lease");
                tokio::time::sleep(delay.next().unwrap_or(BETWEEN)).await;
                attempt.health.well().await;
            }
        }
    }
}
