//! What a user cluster of KKP gets when it is handed over.

use kube::ResourceExt;

use super::tenant_state::Tenant;
use crate::api::names::KUBE_SYSTEM;
use crate::fleet::adoption::LEASE;

impl Tenant {
    /// Returns what is written when the cluster is handed over, besides what its machine
    /// deployments need. Nothing if the manager has created its WorkerCluster.
    pub(super) fn taking_over(&self) -> Vec<String> {
        let own = self.own.as_ref();
        let Some(own) = own.filter(|own| own.metadata.uid.is_none()) else {
            return Vec::new();
        };
        let mut writes = vec![
            format!("create WorkerCluster {}/{}", self.namespace, own.name_any()),
            format!("acquire Lease {KUBE_SYSTEM}/{LEASE}"),
        ];
        let new = self.new_profiles.iter();
        writes.extend(new.map(|name| {
            let home = &self.home;
            format!("create OperatingSystemProfile {home}/{name}")
        }));
        writes
    }
}
