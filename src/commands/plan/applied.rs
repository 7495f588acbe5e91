//! Objects that a plan supposes to be applied, in place of those in the management cluster.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use kube::ResourceExt as _;
use parking_lot::Mutex;

use crate::api::{
    profile::{OperatingSystemProfile, OperatingSystemProfileSpec},
    worker_cluster::{WorkerCluster, WorkerClusterSpec},
};
use crate::rules::profile::check_update;

/// A namespace and a name.
pub type Key = (String, String);

/// The objects, and which of them a plan has looked at.
#[derive(Debug, Default)]
pub struct Applied {
    /// The settings of tenants.
    pub worker_clusters: BTreeMap<Key, WorkerClusterSpec>,
    /// The profiles.
    pub profiles: BTreeMap<Key, OperatingSystemProfileSpec>,
    used: Mutex<BTreeSet<String>>,
}

impl Applied {
    /// Replaces the settings of a tenant by those that are applied.
    pub(super) fn settle(&self, own: WorkerCluster) -> WorkerCluster {
        let key = (own.namespace().unwrap_or_default(), own.name_any());
        let Some(spec) = self.worker_clusters.get(&key).cloned() else {
            return own;
        };
        self.use_one("WorkerCluster", &key);
        WorkerCluster { spec, ..own }
    }

    /// Replaces those profiles that are applied.
    ///
    /// # Errors
    ///
    /// The API server would refuse one.
    pub(super) fn replace(&self, profiles: &mut [OperatingSystemProfile]) -> anyhow::Result<()> {
        for profile in profiles {
            let key = (profile.namespace().unwrap_or_default(), profile.name_any());
            if let Some(spec) = self.profiles.get(&key) {
                check_update(&profile.spec, spec).with_context(|| key.1.clone())?;
                profile.spec = spec.clone();
                self.use_one("OperatingSystemProfile", &key);
            }
        }
        Ok(())
    }

    /// Returns the profiles that are applied to a namespace.
    pub(super) fn of(&self, namespace: &str) -> Vec<(String, OperatingSystemProfileSpec)> {
        let of_namespace = self.profiles.iter().filter(|(key, _)| key.0 == namespace);
        let profiles = of_namespace.map(|(key, spec)| {
            self.use_one("OperatingSystemProfile", key);
            (key.1.clone(), spec.clone())
        });
        profiles.collect()
    }

    fn use_one(&self, kind: &str, (namespace, name): &Key) {
        let name = format!("{kind} {namespace}/{name}");
        self.used.lock().insert(name);
    }

    /// Returns the objects that belong to no tenant in the plan.
    pub fn unused(&self) -> Vec<String> {
        let used = self.used.lock();
        let named = |kind: &str, (namespace, name): &Key| format!("{kind} {namespace}/{name}");
        let own = self.worker_clusters.keys();
        let own = own.map(|key| named("WorkerCluster", key));
        let profiles = self.profiles.keys();
        let profiles = profiles.map(|key| named("OperatingSystemProfile", key));
        own.chain(profiles)
            .filter(|it| !used.contains(it))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_belongs_to_no_tenant_is_named_until_one_uses_it() {
        let spec = WorkerClusterSpec {
            paused: true,
            ..WorkerClusterSpec::default()
        };
        let key = ("berlin".to_owned(), "own".to_owned());
        let applied = Applied {
            worker_clusters: [(key, spec)].into(),
            ..Applied::default()
        };
        let settled = |namespace: &str| {
            let mut own = WorkerCluster::new("own", WorkerClusterSpec::default());
            own.metadata.namespace = Some(namespace.to_owned());
            applied.settle(own).spec.paused
        };
        assert!(!settled("lisbon"), "it is another one's");
        assert_eq!(applied.unused(), ["WorkerCluster berlin/own"]);
        assert!(settled("berlin"));
        assert_eq!(applied.unused(), [""; 0]);
    }
}
