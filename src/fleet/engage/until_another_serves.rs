//! Looks for the previous manager while a cluster is served: an installer may bring it back. In a
//! cluster that is its tenant's home, that one waits for our Lease.

use std::time::Duration;

use tokio::sync::Notify;

use super::Attempt;
use crate::api::worker_cluster::Home;
use crate::client::{jitter, retry_delay::RetryDelay};
use crate::fleet::{
    adoption::{self, Holder, Predecessor},
    claim::lease,
    engagement::Shared,
};
use crate::telemetry::chain::chain;

/// The minimum time between two checks. Each costs two requests, and another program may write the
/// namespace all the time.
const BETWEEN: Duration = Duration::from_secs(10);

/// Returns once the cluster must not be served any more: the previous manager serves it, or may.
pub async fn until_another_serves(shared: &Shared, attempt: &Attempt, foreign_write: &Notify) {
    match attempt.home {
        Home::Management => until_upstream_runs(shared, attempt, foreign_write).await,
        Home::Worker => {
            let worker = || attempt.worker.client();
            let lost = Box::pin(lease::keep(worker, &attempt.claimant, &shared.clock)).await;
            let registration = attempt.health.registration();
            tracing::warn!(%registration, error = %chain(&lost), "the Lease is lost");
        }
    }
}

/// Releases the Lease of a cluster that is its tenant's home, so that the previous manager can
/// serve it. If that fails, it waits until the Lease ends.
pub async fn let_others_serve(attempt: &Attempt) {
    if attempt.home == Home::Management {
        return;
    }
    let worker = attempt.worker.client();
    if let Err(error) = Box::pin(lease::release(&worker, &attempt.claimant)).await {
        let registration = attempt.health.registration();
        tracing::warn!(%registration, error = %chain(&error), "the Lease was not released");
    }
}

/// Returns once the previous manager renews its Lease. In a cluster that it served before, this
/// checks periodically. In every cluster, it checks when `foreign_write` reports that another
/// program wrote an object that we write.
async fn until_upstream_runs(shared: &Shared, attempt: &Attempt, foreign_write: &Notify) {
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
