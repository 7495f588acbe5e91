//! Takes over what changes in the registration of a cluster that is served, without engaging it
//! again: a renewed credential, and the settings of an inventory.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::client::connect::Clients;
use crate::fleet::{
    discovery::Registration,
    engage::{self, Attempt, Following},
    engagement::Shared,
    registry::RegisteredCluster,
};
use crate::tenant::{access::ClusterAccess, policy::TenantPolicy};

/// A cluster while it is served, with what its registration can change.
pub(super) struct Served {
    shared: Arc<Shared>,
    registered: Arc<RegisteredCluster>,
    management: Clients,
    /// How it was engaged. `None` while it is not.
    engaged: Mutex<Option<(Arc<TenantPolicy>, Attempt)>>,
}

impl Served {
    /// Creates it for a cluster that is not served yet.
    pub(super) fn new(
        shared: &Arc<Shared>,
        registered: &Arc<RegisteredCluster>,
        management: &Clients,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            registered: Arc::clone(registered),
            management: management.clone(),
            engaged: Mutex::default(),
        }
    }

    /// Records that the cluster is served.
    pub(super) fn begin(&self, policy: &Arc<TenantPolicy>, attempt: &Attempt) {
        *self.engaged.lock() = Some((Arc::clone(policy), attempt.clone()));
    }

    /// Records that it is not.
    pub(super) fn end(&self) {
        *self.engaged.lock() = None;
    }

    /// Takes over a changed registration, if the cluster is served and nothing else has changed.
    /// Returns false if the cluster must be engaged again.
    pub(super) async fn take_over(&self, before: &Registration, new: &Registration) -> bool {
        let is_the_same = Registration {
            kubeconfig: before.kubeconfig.clone(),
            settings: before.settings.clone(),
            ..new.clone()
        } == *before;
        let engaged = self.engaged.lock().clone();
        let Some((policy, attempt)) = engaged.filter(|_| is_the_same) else {
            return false;
        };
        if before.kubeconfig != new.kubeconfig && !self.renew((&policy, &attempt), new).await {
            return false;
        }
        let following = Following {
            shared: &self.shared,
            registered: &self.registered,
            management: &self.management,
            settings: &new.settings,
        };
        before.settings == new.settings || engage::follow_settings(following).await.is_ok()
    }

    /// Uses the credential of a registration for all later requests, if it is of the same user, for
    /// the same server, and finds the same cluster.
    async fn renew(
        &self,
        (policy, attempt): (&TenantPolicy, &Attempt),
        new: &Registration,
    ) -> bool {
        let kubeconfig = new.kubeconfig.text();
        let access = kubeconfig.map(|it| ClusterAccess::parse(it.expose(), &policy.access));
        let Some(Ok(access)) = access else {
            return false;
        };
        let principal = access.principal();
        // A credential that fails already is replaced as one that is unknown.
        if principal.is_none() || principal != attempt.principal || attempt.health.is_wrong() {
            return false;
        }
        let Ok(transport) = (self.shared.connector)(&access, &policy.access) else {
            return false;
        };
        let renewed = attempt.worker.with_transport(transport.clone());
        let found = engage::identity(&renewed.client(), attempt.home).await;
        let status = &self.registered.status;
        let known = status.read(|report| report.cluster_uid.clone());
        if found.is_err() || found.is_ok_and(|found| found != known) {
            return false;
        }
        attempt.transport.renew(transport);
        // The task that watches for their end reports it.
        attempt.expiries.send_replace(access.expiries().into());
        status.set(|report| &mut report.kubeconfig, new.fingerprint());
        tracing::info!(registration = %self.registered.id, "took over a renewed credential");
        true
    }
}
