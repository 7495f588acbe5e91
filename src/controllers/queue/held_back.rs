//! Machine deployments whose calls were not sent because their worker cluster failed. They are
//! reconciled once it is healthy; those that failed by themselves keep their own delays.

use std::collections::HashSet;

use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::api::machine_deployment::MachineDeployment;

type Reference = ObjectRef<MachineDeployment>;

/// The machine deployments of one tenant that wait for their worker cluster.
#[derive(Debug, Default)]
pub struct HeldBack {
    waiting: Mutex<HashSet<Reference>>,
    notify: Notify,
}

impl HeldBack {
    /// Adds a machine deployment.
    pub fn add(&self, reference: Reference) {
        let mut waiting = self.waiting.lock();
        waiting.insert(reference);
        self.notify.notify_one();
    }

    /// Forgets machine deployments that do not exist any more.
    pub fn keep(&self, exists: impl Fn(&Reference) -> bool) {
        self.waiting.lock().retain(exists);
    }

    /// Waits until a machine deployment is added.
    pub async fn added(&self) {
        self.notify.notified().await;
    }

    /// Removes and returns all machine deployments.
    pub fn take(&self) -> HashSet<Reference> {
        std::mem::take(&mut *self.waiting.lock())
    }
}
