//! Sends requests to a cluster whose health is in doubt, while all other calls wait.

use super::{Attempt, identity};

/// Reads an object that the manager may always read, whenever a call is due.
pub async fn keep_probing(attempt: &Attempt) {
    loop {
        attempt.health.call_due().await;
        // The client observes the outcome.
        drop(Box::pin(identity(&attempt.worker.client(), attempt.home)).await);
    }
}
