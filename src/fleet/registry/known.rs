//! What the inventories say about one Secret.

use std::sync::Arc;

use crate::fleet::discovery::{KubeconfigText, Registration};
use crate::tenant::inventory::Inventory;

/// The registration in each inventory that has the Secret.
#[derive(Clone, Debug, Default)]
pub(super) struct Known(Vec<Arc<Registration>>);

impl Known {
    /// Records the registration in its inventory.
    pub fn present(&mut self, registration: Arc<Registration>) {
        self.gone(&registration.inventory);
        self.0.push(registration);
    }

    /// Records that an inventory does not have it any more.
    pub fn gone(&mut self, inventory: &Inventory) {
        self.0.retain(|it| it.inventory != *inventory);
    }

    /// Returns the registration that counts: that of the first inventory.
    pub fn first(&self) -> Option<Arc<Registration>> {
        let first = self.0.iter().min_by_key(|it| &it.inventory);
        first.cloned()
    }

    /// Returns true if an inventory has the Secret.
    pub fn is_in(&self, inventory: &Inventory) -> bool {
        self.0.iter().any(|it| it.inventory == *inventory)
    }

    /// Returns true if no inventory has the Secret.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops the kubeconfigs.
    pub fn without_kubeconfig(self) -> Self {
        let stripped = self.0.iter().map(|it| {
            Arc::new(Registration {
                id: it.id.clone(),
                uid: it.uid.clone(),
                created: it.created,
                kubeconfig: KubeconfigText::NotKept,
                inventory: it.inventory.clone(),
                settings: it.settings.clone(),
            })
        });
        Self(stripped.collect())
    }

    /// Adds a kubeconfig that was not kept to the registration with this uid.
    pub fn fill(&mut self, read: &Registration) {
        for it in &mut self.0 {
            let is_it = it.inventory == read.inventory && it.uid == read.uid;
            if is_it && it.kubeconfig == KubeconfigText::NotKept {
                *it = Arc::new(Registration {
                    kubeconfig: read.kubeconfig.clone(),
                    ..it.as_ref().clone()
                });
            }
        }
    }
}
