//! A registration that is considered, with what the task that serves it shares with others.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::known::Known;
use crate::api::worker_cluster::{OnRemoval, WorkerCluster};
use crate::client::tenant_status::TenantStatus;
use crate::fleet::{
    discovery::{Gone, KubeconfigText, Registration},
    sharding::suspicion::Suspicion,
};
use crate::tenant::{id::RegistrationId, report::Report};

/// States whether a registration owns its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// It is the oldest registration in its namespace.
    Owner,
    /// An older registration owns the namespace.
    Second {
        /// The owner.
        owner: RegistrationId,
    },
}

/// One registration of the fleet. The task that serves it follows the watches.
#[derive(Debug)]
pub struct RegisteredCluster {
    /// The registration's Secret.
    pub id: RegistrationId,
    /// The latest version of the registration; `None` after it was removed. If several inventories
    /// have the Secret, that of the first one.
    pub registration: watch::Sender<Option<Arc<Registration>>>,
    known: Mutex<Known>,
    /// Why the last inventory that had it has it no more.
    why_gone: Mutex<Option<String>>,
    /// The WorkerCluster that names the Secret; `None` until it exists.
    pub worker_cluster: watch::Sender<Option<Arc<WorkerCluster>>>,
    /// The latest version of the WorkerCluster, also after it was deleted: until the cluster is
    /// disengaged, it is served with the settings that it had.
    pub last: watch::Sender<Option<Arc<WorkerCluster>>>,
    /// States whether the registration owns its namespace.
    pub ownership: watch::Sender<Ownership>,
    /// The suspicion because of which its replica does not serve it yet; `None` for nearly all
    /// tenants.
    pub suspicion: watch::Sender<Option<Suspicion>>,
    /// The tenant's status.
    pub status: Arc<TenantStatus>,
    /// True if this replica serves it.
    is_here: AtomicBool,
}

/// The place where a tenant is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Another replica serves it, or none yet.
    Elsewhere,
    /// This replica serves it.
    Here,
}

impl RegisteredCluster {
    pub(super) fn new(id: RegistrationId, known: Known) -> Self {
        Self {
            id,
            registration: watch::Sender::new(known.first()),
            known: Mutex::new(known),
            why_gone: Mutex::default(),
            worker_cluster: watch::Sender::new(None),
            last: watch::Sender::new(None),
            ownership: watch::Sender::new(Ownership::Owner),
            suspicion: watch::Sender::new(None),
            status: Arc::default(),
            is_here: AtomicBool::new(false),
        }
    }

    /// Returns what to do with the machine deployments when the registration is removed: the
    /// WorkerCluster's latest value, or the default if it never existed.
    pub fn on_removal(&self) -> OnRemoval {
        let last = self.last.borrow();
        last.as_ref()
            .map(|own| own.spec.on_removal)
            .unwrap_or_default()
    }

    /// Returns true if it is registered, and this process has engaged the cluster with this uid for
    /// it.
    pub fn is_of(&self, cluster_uid: &str) -> bool {
        let engaged = |report: &Report| report.cluster_uid.as_deref() == Some(cluster_uid);
        self.registration.borrow().is_some() && self.status.read(engaged)
    }

    /// Returns true if the kubeconfig of a registration is needed and was not read.
    pub fn is_to_be_read(&self, registration: &Registration) -> bool {
        registration.kubeconfig == KubeconfigText::Unread
            && *self.ownership.borrow() == Ownership::Owner
    }

    /// Adds the kubeconfig that was read of a registration that came without.
    pub fn fill(&self, read: &Arc<Registration>) {
        self.change(|known| known.fill(read));
    }

    /// Records the registration in its inventory.
    pub(super) fn present(&self, registration: Arc<Registration>) {
        self.change(|known| known.present(registration));
    }

    /// Records that an inventory does not have it any more.
    pub(super) fn gone(&self, gone: &Gone) {
        self.why_gone.lock().clone_from(&gone.why);
        self.change(|known| known.gone(&gone.inventory));
    }

    /// Returns why it is not registered any more, for a sentence.
    pub fn why_gone(&self) -> String {
        match &*self.why_gone.lock() {
            Some(why) => format!("it is not registered any more: {why}"),
            None => "the registration is gone".to_owned(),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        let mut known = self.known.lock();
        change(&mut known);
        let first = known.first();
        self.registration.send_if_modified(|before| {
            let news = *before != first;
            *before = first;
            news
        });
    }

    /// Returns what the inventories say.
    pub(super) fn known(&self) -> Known {
        self.known.lock().clone()
    }

    /// Marks the cluster as served by this replica.
    pub fn take(&self) {
        self.is_here.store(true, Ordering::Relaxed);
    }

    /// Returns whether this replica serves it.
    pub fn place(&self) -> Place {
        if self.is_here.load(Ordering::Relaxed) {
            Place::Here
        } else {
            Place::Elsewhere
        }
    }
}
