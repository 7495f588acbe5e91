//! Takes over what changes in the registration of a cluster that is served, without engaging it
//! again: a renewed credential, and the settings of an inventory.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::{sync::watch, time::sleep};

use crate::client::{connect::Clients, retry_delay::RetryDelay};
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

    /// Waits until the registration is removed, or changes in another way than one that a cluster
    /// that is served can take over.
    pub(super) async fn until_another(
        &self,
        mut current: Arc<Registration>,
        registrations: &mut watch::Receiver<Option<Arc<Registration>>>,
    ) {
        while registrations.changed().await.is_ok() {
            let Some(new) = registrations.borrow_and_update().clone() else {
                return;
            };
            if self.registered.is_to_be_read(&new) {
                tokio::select! {
                    biased;
                    _ = registrations.changed() => {}
                    () = self.read(&new) => {}
                }
                // What was read is a change, too.
                registrations.mark_changed();
            } else if self.take_over(&current, &new).await {
                current = new;
            } else {
                return;
            }
        }
    }

    /// Reads the kubeconfig of a registration, as often as it takes: until then, the cluster is
    /// served as it was registered before.
    async fn read(&self, registration: &Registration) {
        for delay in RetryDelay::default() {
            let read = engage::read_kubeconfig(&self.management, &self.registered, registration);
            match read.await {
                Ok(_) => return,
                Err(error) => tracing::debug!(
                    registration = %registration.id, why = %error.message, "cannot be read"
                ),
            }
            sleep(delay).await;
        }
    }

    /// Takes over a changed registration, if nothing has changed that matters, or if the cluster is
    /// served and only its credential or settings have. Returns false if the cluster must be
    /// engaged again.
    async fn take_over(&self, before: &Registration, new: &Registration) -> bool {
        let is_the_same = Registration {
            version: before.version.clone(),
            kubeconfig: before.kubeconfig.clone(),
            settings: before.settings.clone(),
            ..new.clone()
        } == *before;
        let has_kubeconfig = before.kubeconfig == new.kubeconfig || new.is_read_of(before);
        if is_the_same && has_kubeconfig && before.settings == new.settings {
            return true;
        }
        let engaged = self.engaged.lock().clone();
        let Some((policy, attempt)) = engaged.filter(|_| is_the_same) else {
            return false;
        };
        if !has_kubeconfig && !self.renew((&policy, &attempt), new).await {
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
        if principal.is_none() || principal != attempt.principal {
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
