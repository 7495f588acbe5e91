//! Takes over a renewed credential of a cluster that is served, without engaging it again.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::fleet::{
    discovery::Registration,
    engage::{self, Attempt},
    engagement::Shared,
    registry::RegisteredCluster,
};
use crate::tenant::{access::ClusterAccess, policy::TenantPolicy};

/// A cluster while it is served, with what its credential depends on.
#[derive(Default)]
pub(super) struct Served(Mutex<Option<(Arc<TenantPolicy>, Attempt)>>);

impl Served {
    /// Records that the cluster is served.
    pub(super) fn begin(&self, policy: &Arc<TenantPolicy>, attempt: &Attempt) {
        *self.0.lock() = Some((Arc::clone(policy), attempt.clone()));
    }

    /// Records that it is not.
    pub(super) fn end(&self) {
        *self.0.lock() = None;
    }

    /// Uses the credential of a changed registration for all later requests, if the cluster is
    /// served and nothing else has changed: the same user, at the same server. Returns false if the
    /// cluster must be engaged again.
    pub(super) async fn renew(
        &self,
        (shared, registered): (&Shared, &RegisteredCluster),
        (before, new): (&Registration, &Registration),
    ) -> bool {
        let is_the_same = Registration {
            kubeconfig: before.kubeconfig.clone(),
            ..new.clone()
        } == *before;
        let served = self.0.lock().clone();
        let Some((policy, attempt)) = served.filter(|_| is_the_same) else {
            return false;
        };
        let kubeconfig = new.kubeconfig.as_ref();
        let access = kubeconfig.map(|it| ClusterAccess::parse(it.expose(), &policy.access));
        let Some(Ok(access)) = access else {
            return false;
        };
        let principal = access.principal();
        // A credential that fails already is replaced as one that is unknown.
        if principal.is_none() || principal != attempt.principal || attempt.health.is_wrong() {
            return false;
        }
        let Ok(transport) = (shared.connector)(&access, &policy.access) else {
            return false;
        };
        let renewed = attempt.worker.with_transport(transport.clone());
        let found = engage::identity(&renewed.client(), attempt.home).await;
        let known = registered.status.read(|report| report.cluster_uid.clone());
        if found.is_err() || found.is_ok_and(|found| found != known) {
            return false;
        }
        attempt.transport.renew(transport);
        // The task that watches for their end reports it.
        attempt.expiries.send_replace(access.expiries().into());
        let fingerprint = new.fingerprint();
        registered
            .status
            .set(|report| &mut report.kubeconfig, fingerprint);
        tracing::info!(registration = %registered.id, "took over a renewed credential");
        true
    }
}
