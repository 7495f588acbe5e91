//! Keeps the facts of an engaged cluster fresh.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Notify, watch};

use super::Attempt;
use crate::fleet::{
    claim, engagement::Shared, facts, jitter, prerequisites, retry_delay::RetryDelay,
};
use crate::telemetry::logs::chain;
use crate::tenant::facts::ClusterFacts;

/// Reads the facts again from time to time, jittered, and when the bell rings, until somebody else
/// holds the claim on the cluster, or the getter's token is good for nothing any more.
pub async fn keep_facts(
    shared: &Shared,
    attempt: &Attempt,
    sender: &watch::Sender<Arc<ClusterFacts>>,
    bell: &Notify,
) {
    let mut delay = RetryDelay::default();
    let mut wait = jittered(shared.facts_interval);
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = bell.notified() => {}
        }
        if !claim::is_ours(&attempt.worker, &attempt.claimant).await
            || prerequisites::is_getter_lost(&attempt.worker).await
        {
            return;
        }
        let before = sender.borrow().clone();
        match facts::read(
            &attempt.worker,
            &attempt.kubeconfig_ca,
            Some(&before.api_server),
        )
        .await
        {
            Ok(facts) => {
                delay = RetryDelay::default();
                wait = jittered(shared.facts_interval);
                if facts != *before {
                    sender.send_replace(Arc::new(facts));
                }
            }
            // What was read before stays good for now; the board tells how the cluster is doing.
            Err(error) => {
                tracing::debug!(error = %chain(&error), "cannot read the facts again");
                wait = delay.next().unwrap_or(wait);
            }
        }
    }
}

/// Between nine and eleven tenths.
fn jittered(interval: Duration) -> Duration {
    jitter::part(interval, 0.9, 1.1)
}
