//! Keeps the cluster info of an engaged cluster current.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Notify, watch};

use super::{Attempt, show_api_server};
use crate::api::worker_cluster::Home;
use crate::client::{
    connect::Clients, jitter, recurring::Recurring, retry_delay::RetryDelay,
    tenant_status::TenantStatus,
};
use crate::fleet::{
    claim::{self, Claimant},
    cluster_info::{self, ClusterInfoError, InUse},
    engagement::Shared,
    prerequisites,
};
use crate::telemetry::chain::chain;
use crate::tenant::{cluster_info::ClusterInfo, id::RegistrationId};

/// Reads the cluster info again at an interval with jitter, and when `notify` is notified. Returns
/// when another manager holds the claim on the cluster, or when nodes can no longer use the
/// fetcher's token.
pub async fn keep_cluster_info(
    shared: &Shared,
    (attempt, tenant_status): (&Attempt, &TenantStatus),
    sender: &watch::Sender<Arc<ClusterInfo>>,
    notify: &Notify,
) {
    let reading = Reading {
        registration: attempt.health.registration(),
        worker: &attempt.worker,
        kubeconfig_ca: &attempt.kubeconfig_ca,
        interval: shared.cluster_info_interval,
        claimant: (attempt.home == Home::Management).then_some(&attempt.claimant),
        tenant_status,
    };
    reading.keep(sender, notify).await;
}

/// Where the cluster info is read, and how often.
#[derive(Clone, Copy)]
pub struct Reading<'a> {
    /// The registration of the worker cluster.
    pub registration: &'a RegistrationId,
    /// The worker cluster's API.
    pub worker: &'a Clients,
    /// The certificate authority of the kubeconfig, in PEM.
    pub kubeconfig_ca: &'a [u8],
    /// The interval between two reads.
    pub interval: Duration,
    /// The claimant of the cluster; `None` for one that is its tenant's home, where we neither set
    /// a claim nor create the fetcher.
    pub claimant: Option<&'a Claimant>,
    /// The tenant's status, which names the API server: after a restart, that is the one in use.
    pub tenant_status: &'a TenantStatus,
}

impl Reading<'_> {
    /// Reads the cluster info at an interval with jitter, and when `notify` is notified. Returns
    /// when the claim or the fetcher's token is lost.
    pub async fn keep(self, sender: &watch::Sender<Arc<ClusterInfo>>, notify: &Notify) {
        let (mut delay, mut failure) = (RetryDelay::default(), Recurring::default());
        let mut wait = jitter::around(self.interval);
        loop {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = notify.notified() => {}
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
            match Box::pin(cluster_info::read(&worker, self.kubeconfig_ca, in_use)).await {
                Ok(cluster_info) => {
                    delay = RetryDelay::default();
                    failure.is_over();
                    wait = jitter::around(self.interval);
                    if cluster_info != *before {
                        show_api_server(self.tenant_status, &cluster_info);
                        sender.send_replace(Arc::new(cluster_info));
                    }
                }
                // The previous cluster info stays in use. The calls report the cluster's health in
                // the tenant's status.
                Err(error) => {
                    let (registration, cause) = (self.registration, chain(&error).to_string());
                    match error {
                        ClusterInfoError::Announcement(_) if failure.is_news(&cause) => {
                            let server = &*before.api_server;
                            tracing::warn!(
                                %registration, error = cause, server,
                                "what was read before is kept"
                            );
                        }
                        _ => {
                            tracing::debug!(%registration, error = cause, "cannot read it again");
                        }
                    }
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
        claim::is_ours(&worker, claimant).await && !prerequisites::is_fetcher_lost(&worker).await
    }
}
