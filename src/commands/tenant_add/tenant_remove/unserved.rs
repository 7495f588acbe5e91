//! Hands a worker cluster back that no manager serves: as the manager would, by the registration.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail, ensure};
use kube::Client;

use super::TenantRemoval;
use crate::api::worker_cluster::{Home, OnRemoval, WorkerCluster, WorkerClusterStatus};
use crate::commands::{
    cluster_client::{ClusterClient, KubeconfigSource, as_the_manager},
    managers::{Fleets, Serving, Unserved},
    worker_access::WorkerAccess,
};
use crate::fleet::{claim, engage};
use crate::tenant::{id::TenantId, report::Removal};

/// What is known about who serves tenants.
#[derive(Clone, Debug)]
pub enum Known {
    /// Their Leases, as they were observed.
    Observed(Arc<Fleets>),
    /// Nothing: the Leases cannot be listed.
    Unknown,
    /// No manager runs any more, whatever its Leases say.
    Gone,
}

/// Finds out who serves tenants. `namespace` is the manager's.
///
/// # Errors
///
/// The management cluster's kubeconfig cannot be used.
pub async fn observe(source: &KubeconfigSource, namespace: &str) -> anyhow::Result<Known> {
    let client = ClusterClient::management(source).await?.client;
    let observed = Fleets::observe(&client, namespace).await;
    Ok(observed.map_or(Known::Unknown, |it| Known::Observed(Arc::new(it))))
}

impl TenantRemoval {
    /// Returns why no manager serves the tenant. `None` if one does, or if that is not known.
    ///
    /// # Errors
    ///
    /// Nobody would hand the worker cluster back, and this command may not.
    pub(super) fn unserved(&self, own: &WorkerCluster) -> anyhow::Result<Option<String>> {
        let fleets = match &self.params.known {
            Known::Gone => return Ok(Some("no manager is waited for".to_owned())),
            Known::Unknown => return Ok(None),
            Known::Observed(fleets) => fleets,
        };
        let fleet = own.status.as_ref().and_then(WorkerClusterStatus::fleet);
        match fleets.serving(&TenantId::new(&self.params.namespace), fleet.as_ref()) {
            // Its manager may run in another namespace.
            Serving::By(_)
            | Serving::Elsewhere(_)
            | Serving::Unknown
            | Serving::Nobody(Unserved::NoLease, _) => Ok(None),
            Serving::Nobody(Unserved::NotWatched, why) => bail!(
                "{why}, so that it would not hand the worker cluster back: start a manager that \
                 watches the namespace"
            ),
            Serving::Nobody(Unserved::NoManager, why) => Ok(Some(why)),
        }
    }

    /// Hands the worker cluster back if it was ever engaged.
    pub(super) async fn give_back_unserved(
        &self,
        own: &WorkerCluster,
        policy: OnRemoval,
        progress: &mut (dyn FnMut(String) + Send),
    ) -> anyhow::Result<Removal> {
        let home = own.spec.home;
        let known = own.status.as_ref().and_then(|it| it.cluster_uid.clone());
        if let Some(known) = known {
            let worker = self.worker_or_registered(own).await?;
            let found = engage::identity(&worker, home).await;
            let found = found.context("cannot read which cluster this is")?;
            ensure!(
                found.as_ref() == Some(&known),
                "the kubeconfig leads to another cluster than the WorkerCluster is about, which \
                 has the uid {known}; nothing was changed in it"
            );
            // The Lease of a home says itself whose it is.
            let held = claim::is_held(&worker, &self.claimant().await?).await;
            let held = held.context("cannot read the claim on the worker cluster");
            if home == Home::Worker || held? {
                return self.give_back(&worker, (home, policy), progress).await;
            }
        }
        progress(
            "worker cluster: it is not claimed for this tenant, and stays as it is".to_owned(),
        );
        Ok(Removal::NeverEngaged)
    }

    /// Returns a client for the worker cluster: that of `--worker-kubeconfig`, or else one with the
    /// registered kubeconfig.
    async fn worker_or_registered(&self, own: &WorkerCluster) -> anyhow::Result<Client> {
        if let Some(worker) = &self.worker {
            return Ok(worker.client.clone());
        }
        let rules = self.params.rules.as_ref().map_err(|why| {
            anyhow!(
                "the manager's rules for kubeconfigs are not known, so that the registered one is \
                 not used: {why}. Repeat this with --worker-kubeconfig, or with --without-manager \
                 and the manager's flags"
            )
        })?;
        let found = self.secrets().get(&self.params.name).await;
        let secret = found.context("cannot read the registration")?;
        let keys: Vec<&str> = self.params.keys.iter().map(String::as_str).collect();
        let registered = WorkerAccess {
            secret: &secret,
            keys: &keys,
            credentials: own.spec.credentials,
        };
        let manager = (&self.management.client, &self.params.manager);
        let access = registered.access_of(manager, rules).await;
        let access = access.context(
            "cannot use the registered kubeconfig; repeat this with --worker-kubeconfig",
        )?;
        as_the_manager(&access, rules)
    }
}
