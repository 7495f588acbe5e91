//! Access to a worker cluster that no manager serves: as the manager, by the registration.

use anyhow::Context as _;
use kube::Client;

use super::TenantRemoval;
use crate::api::worker_cluster::WorkerCluster;
use crate::commands::{
    cluster_client::as_the_manager,
    managers::{Fleets, Serving},
    worker_access::WorkerAccess,
};
use crate::tenant::id::TenantId;

impl TenantRemoval {
    /// Returns why no manager serves the tenant. `None` if one does, or if that is not known.
    pub(super) async fn unserved(&self, own: &WorkerCluster) -> Option<String> {
        let namespace = &self.params.manager.namespace;
        let fleets = Fleets::read(&self.management.client, namespace)
            .await
            .ok()?;
        let fleet = own.status.as_ref().and_then(|it| it.fleet.as_deref());
        match fleets.serving(&TenantId::new(&self.params.namespace), fleet) {
            Serving::Nobody(_, why) => Some(why),
            Serving::By(_) | Serving::Unknown => None,
        }
    }

    /// Returns a client for the worker cluster: that of `--worker-kubeconfig`, or else one with the
    /// registered kubeconfig.
    pub(super) async fn worker_or_registered(&self, own: &WorkerCluster) -> anyhow::Result<Client> {
        if let Some(worker) = &self.worker {
            return Ok(worker.client.clone());
        }
        let found = self.secrets().get(&self.params.name).await;
        let secret = found.context("cannot read the registration")?;
        let keys: Vec<&str> = self.params.keys.iter().map(String::as_str).collect();
        let registered = WorkerAccess {
            secret: &secret,
            keys: &keys,
            credentials: own.spec.credentials,
        };
        let manager = (&self.management.client, &self.params.manager);
        let access = registered.access_of(manager, &self.params.rules).await;
        let access = access.context(
            "cannot use the registered kubeconfig; repeat this with --worker-kubeconfig",
        )?;
        as_the_manager(&access, &self.params.rules)
    }
}
