//! Documents that another client has deleted or changed, until their machine deployment is
//! reconciled.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::api::names::DerivedNames;

/// The maximum number of documents that are remembered. Each has an Event, and nobody reads more.
const REMEMBERED_MAX: usize = 100;

/// What another client has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignWrite {
    /// It has deleted the Secret.
    Deleted,
    /// It has changed the Secret.
    Changed,
}

/// Documents of one tenant that another client has deleted or changed.
#[derive(Debug, Default)]
pub struct ForeignWrites(Mutex<BTreeMap<String, ForeignWrite>>);

impl ForeignWrites {
    /// Records what a watch has shown of a document.
    pub fn record(&self, secret: &str, what: ForeignWrite) {
        let mut remembered = self.0.lock();
        if remembered.len() < REMEMBERED_MAX {
            remembered.insert(secret.to_owned(), what);
        }
    }

    /// Forgets documents that were just written.
    pub fn forget(&self, secrets: &[String]) {
        let mut remembered = self.0.lock();
        remembered.retain(|name, _| !secrets.contains(name));
    }

    /// Returns and forgets what is known of a machine deployment's documents.
    pub fn take(&self, names: &DerivedNames) -> Vec<(String, ForeignWrite)> {
        let mut remembered = self.0.lock();
        let secrets = [
            &names.provisioning,
            &names.bootstrap,
            &names.kubelet_kubeconfig,
            &names.edge_script,
        ];
        let taken = secrets
            .into_iter()
            .map(|name| remembered.remove_entry(name));
        taken.flatten().collect()
    }
}
