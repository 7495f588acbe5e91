//! The missing default profiles that machine deployments of a tenant wait for.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The names of profiles that a machine deployment has waited for. They are installed before
/// others.
#[derive(Debug, Default)]
pub struct WantedProfiles {
    names: Mutex<BTreeSet<String>>,
    notify: Notify,
}

impl WantedProfiles {
    /// Records that a machine deployment waits for a default profile.
    pub fn add(&self, name: &str) {
        let mut names = self.names.lock();
        if names.insert(name.to_owned()) {
            self.notify.notify_one();
        }
    }

    /// Waits until a name is added.
    pub async fn added(&self) {
        self.notify.notified().await;
    }

    /// Returns true if a machine deployment has waited for this profile.
    pub fn contains(&self, name: &str) -> bool {
        self.names.lock().contains(name)
    }
}
