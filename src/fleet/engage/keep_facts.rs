//! Keeps the facts of an engaged cluster fresh.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Notify, watch};

use super::Attempt;
use crate::fleet::{
    claim::{self, Claimant},
    connect::Clients,
    engagement::Shared,
    facts::{self, InUse},
    jitter, prerequisites,
    retry_delay::RetryDelay,
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
    let reading = Reading {
        worker: &attempt.worker,
        kubeconfig_ca: &attempt.kubeconfig_ca,
        interval: shared.facts_interval,
        claimant: Some(&attempt.claimant),
    };
    reading.keep(sender, bell).await;
}

/// Where facts are read, and how often.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// The worker cluster's API.
    pub worker: &'a Clients,
    /// The certificate authority of the kubeconfig, in PEM.
    pub kubeconfig_ca: &'a [u8],
    /// How often.
    pub interval: Duration,
    /// Who claimed the cluster and made the getter there, where somebody had to.
    pub claimant: Option<&'a Claimant>,
}

impl Reading<'_> {
    /// Reads again from time to time, jittered, and when the bell rings, for as long as it may.
    pub async fn keep(self, sender: &watch::Sender<Arc<ClusterFacts>>, bell: &Notify) {
        let mut delay = RetryDelay::default();
        let mut wait = jitter::around(self.interval);
        loop {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = bell.notified() => {}
            }
            if !Box::pin(self.may_go_on()).await {
                return;
            }
            let before = sender.borrow().clone();
            let in_use = InUse {
                api_server: Some(&before.api_server),
                certificate_authority_data: Some(&before.certificate_authority_data),
            };
            let worker = self.worker.client();
            match Box::pin(facts::read(&worker, self.kubeconfig_ca, in_use)).await {
                Ok(facts) => {
                    delay = RetryDelay::default();
                    wait = jitter::around(self.interval);
                    if facts != *before {
                        sender.send_replace(Arc::new(facts));
                    }
                }
                // What was read before stays good; the board tells how the cluster is doing.
                Err(error) => {
                    tracing::debug!(error = %chain(&error), "cannot read the facts again");
                    wait = delay.next().unwrap_or(wait);
                }
            }
        }
    }

    async fn may_go_on(&self) -> bool {
        let Some(claimant) = self.claimant else {
            return true;
        };
        let worker = self.worker.client();
        claim::is_ours(&worker, claimant).await && !prerequisites::is_getter_lost(&worker).await
    }
}
