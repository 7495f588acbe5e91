//! The documents that the machines of one tenant's machine deployments were created from.

use std::collections::BTreeMap;

use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::api::machine_deployment::MachineDeployment;
use crate::plan::machine_rollout::Machines;

/// A machine deployment.
pub type Reference = ObjectRef<MachineDeployment>;

/// The documents that machines were created from, as reconciles report them.
#[derive(Debug, Default)]
pub struct KnownMachines {
    known: Mutex<BTreeMap<String, Machines>>,
    notify: Notify,
}

impl KnownMachines {
    /// Records the result of a reconcile. `machines` is `None` if the machine deployment is not
    /// served.
    pub fn observed(&self, reference: &Reference, machines: Option<Machines>) {
        let mut known = self.known.lock();
        match machines {
            Some(machines) => known.insert(full_name(reference), machines),
            None => known.remove(&full_name(reference)),
        };
        drop(known);
        self.notify.notify_one();
    }

    /// Forgets machine deployments that do not exist any more.
    pub fn keep(&self, exists: impl Fn(&str) -> bool) {
        self.known.lock().retain(|name, _| exists(name));
    }

    /// Returns what is known of a machine deployment, by `namespace/name`.
    pub fn get(&self, name: &str) -> Option<Machines> {
        self.known.lock().get(name).cloned()
    }

    /// Waits until a machine deployment has been reconciled.
    pub async fn changed(&self) {
        self.notify.notified().await;
    }
}

/// Returns `namespace/name`.
pub fn full_name(reference: &Reference) -> String {
    let namespace = reference.namespace.as_deref().unwrap_or_default();
    format!("{namespace}/{}", reference.name)
}
