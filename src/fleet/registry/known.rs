//! What the inventories say about one Secret.

use std::sync::Arc;

use crate::fleet::discovery::{KubeconfigText, Registration};
use crate::tenant::inventory::Inventory;

/// The registration in each inventory that has the Secret.
#[derive(Clone, Debug, Default)]
pub(super) struct Known(Vec<Arc<Registration>>);

impl Known {
    /// Records the registration in its inventory. A kubeconfig that was read of the same version
    /// stays.
    pub fn present(&mut self, registration: Arc<Registration>) {
        if self.0.iter().any(|known| known.is_read_of(&registration)) {
            return;
        }
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
                version: it.version.clone(),
                kubeconfig: KubeconfigText::Unread,
                inventory: it.inventory.clone(),
                settings: it.settings.clone(),
            })
        });
        Self(stripped.collect())
    }

    /// Replaces a registration by the same with its kubeconfig. One that has changed since it was
    /// read stays.
    pub fn fill(&mut self, read: &Arc<Registration>) {
        for it in &mut self.0 {
            if read.is_read_of(it) {
                *it = Arc::clone(read);
            }
        }
    }
}
