//! The writes that all machine deployments of a tenant share. Most are those of a cluster that has
//! not been served yet.

use kube::ResourceExt;

use super::tenant_state::Tenant;
use crate::api::{names::KUBE_SYSTEM, worker_cluster::Home};
use crate::fleet::{
    adoption::LEASE,
    prerequisites::{self, PrerequisiteError},
};

impl Tenant {
    /// Returns the writes, in order.
    pub(super) async fn shared_writes(&self) -> Result<Vec<String>, PrerequisiteError> {
        let mut writes = Vec::new();
        let is_taken_over = self.own.metadata.uid.is_none();
        if is_taken_over {
            let (namespace, name) = (&self.namespace, self.own.name_any());
            writes.push(format!("create WorkerCluster {namespace}/{name}"));
        }
        match self.own.spec.home {
            Home::Management => writes.extend(prerequisites::plan(&self.worker).await?),
            // The previous manager's installer creates the fetcher.
            Home::Worker if is_taken_over => {
                writes.push(format!("acquire Lease {KUBE_SYSTEM}/{LEASE}"));
            }
            Home::Worker => {}
        }
        if is_taken_over {
            let new = self.new_profiles.iter();
            writes.extend(new.map(|name| {
                let home = &self.home;
                format!("create OperatingSystemProfile {home}/{name}")
            }));
        }
        Ok(writes)
    }
}
