//! Looks for the program before us while a cluster is served: an installer may bring it back.

use std::time::Duration;

use tokio::sync::Notify;

use super::Attempt;
use crate::fleet::{
    adoption::{self, Holder, Predecessor},
    engagement::Shared,
    jitter,
    retry_delay::RetryDelay,
};
use crate::telemetry::chain::chain;

/// Between two looks at least: a namespace that somebody else writes to all the time costs two
/// requests each.
const BETWEEN: Duration = Duration::from_secs(10);

/// Returns once the program before us renews its Lease. It is looked for as often as the claim
/// where it has served the cluster before, and everywhere when `foreign_write` tells that somebody
/// else has written what we write.
pub async fn until_upstream_runs(shared: &Shared, attempt: &Attempt, foreign_write: &Notify) {
    loop {
        tokio::select! {
            () = periodic(shared, attempt) => {}
            () = foreign_write.notified() => {}
        }
        if let Some(holder) = Box::pin(running(shared, attempt)).await {
            let Holder { lease, identity } = holder;
            tracing::warn!(server = %attempt.server, lease, identity, "the program before us runs");
            return;
        }
        tokio::time::sleep(BETWEEN).await;
    }
}

async fn periodic(shared: &Shared, attempt: &Attempt) {
    if attempt.predecessor == Predecessor::None {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(jitter::part(shared.facts_interval, 0.9, 1.1)).await;
}

/// A look that fails says nothing, and is repeated.
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
