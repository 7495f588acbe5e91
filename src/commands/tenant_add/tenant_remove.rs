//! Removes a tenant: describes what will happen, deletes the registration, waits until the manager
//! has released the cluster, and deletes what [`super::tenant_add`] created.

mod registration;
mod remove_prerequisites;
mod status;
mod unserved;

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

pub use self::unserved::{Known, observe};
use self::{
    registration::Registration, remove_prerequisites::remove_prerequisites, status::removed,
};
use crate::api::{
    names::CLOUD_INIT_SETTINGS,
    worker_cluster::{Home, OnRemoval, WorkerCluster},
};
use crate::commands::cluster_client::{
    self, ClusterClient, KubeconfigSource, WorkerKubeconfigSource,
};
use crate::fleet::{
    claim::{self, Claimant},
    engage,
    give_back::GiveBack,
};
use crate::tenant::{
    access::{AccessRules, renewal::ServiceAccountName},
    id::TenantId,
    report::Removal,
};

/// The interval between two checks.
const INTERVAL: Duration = Duration::from_millis(500);

/// The tenant to remove, and how.
#[derive(Clone, Debug)]
pub struct RemoveParams {
    /// The registration's name.
    pub name: String,
    /// The tenant's namespace.
    pub namespace: String,
    /// Access to the management cluster.
    pub management: KubeconfigSource,
    /// Access to the worker cluster as an administrator, to delete objects there, too.
    pub worker: Option<WorkerKubeconfigSource>,
    /// What happens to the machine deployments, instead of what the WorkerCluster specifies.
    pub on_removal: Option<OnRemoval>,
    /// How long to wait for the manager.
    pub patience: Duration,
    /// The manager's ServiceAccount. Its Leases say whether it runs.
    pub manager: ServiceAccountName,
    /// What is known about who serves tenants.
    pub known: Known,
    /// The manager's rules for kubeconfigs, or why they are not known.
    pub rules: Result<AccessRules, String>,
    /// The keys under which the registration may have its kubeconfig.
    pub keys: Vec<String>,
}

/// The answer of a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Continue.
    Yes,
    /// Do nothing.
    No,
}

/// Removes the tenant after `ask` has confirmed it, and reports each step to `progress`.
///
/// # Errors
///
/// The tenant does not exist, a call fails, or the manager cannot release the cluster.
pub async fn remove(
    params: RemoveParams,
    ask: &mut (dyn FnMut(&[String]) -> Answer + Send),
    progress: &mut (dyn FnMut(String) + Send),
) -> anyhow::Result<Answer> {
    let management = ClusterClient::management(&params.management).await?;
    let worker = match &params.worker {
        Some(source) => Some(ClusterClient::worker(source).await?),
        None => None,
    };
    let removal = TenantRemoval {
        params,
        management,
        worker,
    };
    removal.run(ask, progress).await
}

struct TenantRemoval {
    params: RemoveParams,
    management: ClusterClient,
    worker: Option<ClusterClient>,
}

impl TenantRemoval {
    async fn run(
        &self,
        ask: &mut (dyn FnMut(&[String]) -> Answer + Send),
        progress: &mut (dyn FnMut(String) + Send),
    ) -> anyhow::Result<Answer> {
        let RemoveParams {
            name, namespace, ..
        } = &self.params;
        let own = self.own().await?;
        let registration = self.registration().await?;
        ensure!(
            own.is_some() || registration.is_some(),
            "namespace {namespace} has neither a registration nor a WorkerCluster {name}; \
             osm tenants lists those that there are"
        );
        self.refuse_another_cluster(own.as_ref()).await?;
        let policy = self.policy(own.as_ref());
        let mut unserved = None;
        if let (Some(own), Some(registration)) = (&own, &registration) {
            unserved = self.unserved(own)?;
            if unserved.is_none() {
                self.refuse_silent_cluster(own, policy)?;
                ensure!(registration.is_ours, "{}", self.anothers());
            }
        }
        let mut question = self.describe(own.as_ref(), policy).to_vec();
        if let Some(why) = &unserved {
            question.push(format!(
                "{why}: this command hands the worker cluster back itself."
            ));
        }
        if ask(&question) == Answer::No {
            return Ok(Answer::No);
        }
        let found = (registration.as_ref(), own.as_ref());
        let mut removal = self
            .unregister(found, (policy, unserved.is_some()), progress)
            .await?;
        if policy == OnRemoval::Keep {
            progress("the worker cluster and the WorkerCluster stay as they are".to_owned());
            return Ok(Answer::Yes);
        }
        if let Some(own) = &own {
            if !removal.is_some_and(Removal::is_released) {
                let worker = self.worker.as_ref().map(|it| &it.client).context(
                    "the manager has not given the worker cluster back, and has no kubeconfig of it \
                     any more: machine deployments there may still have our finalizer, so that \
                     deleting one hangs. Repeat this with --worker-kubeconfig, and the command \
                     gives it back itself",
                )?;
                removal = Some(
                    self.give_back(worker, (own.spec.home, policy), progress)
                        .await?,
                );
            }
            self.delete_worker_cluster(own, progress).await?;
        }
        if Home::of(own.as_ref()) == Home::Worker {
            progress("the worker cluster is the tenant's home: what is in it stays".to_owned());
            return Ok(Answer::Yes);
        }
        if let Some(worker) = &self.worker {
            remove_prerequisites(worker, progress).await?;
        }
        if removal == Some(Removal::Released) {
            progress(format!(
                "worker cluster: what was made for machines stays in {CLOUD_INIT_SETTINGS}, so \
                 that they can still join; `kubectl delete namespace {CLOUD_INIT_SETTINGS}` there \
                 deletes it"
            ));
        }
        Ok(Answer::Yes)
    }

    /// Deletes the registration, and returns what happened to the worker cluster.
    async fn unregister(
        &self,
        found: (Option<&Registration>, Option<&WorkerCluster>),
        (policy, is_unserved): (OnRemoval, bool),
        progress: &mut (dyn FnMut(String) + Send),
    ) -> anyhow::Result<Option<Removal>> {
        let (registration, own) = match found {
            (Some(registration), Some(own)) => (registration, own),
            (Some(registration), None) => {
                self.delete_registration(registration, progress).await?;
                return Ok(None);
            }
            (None, own) => {
                progress("the registration is gone already".to_owned());
                return Ok(own.and_then(removed).map(|(removal, _)| removal));
            }
        };
        if !is_unserved {
            self.set_policy(own, policy).await?;
            self.delete_registration(registration, progress).await?;
            return self.wait(own, progress).await;
        }
        // A manager that starts now does the same.
        self.patch_policy(own, policy).await?;
        let removal = match policy {
            OnRemoval::Keep => None,
            policy => Some(self.give_back_unserved(own, policy, progress).await?),
        };
        self.delete_registration(registration, progress).await?;
        Ok(removal)
    }

    /// Returns what happens to the machine deployments. `Keep` protects them where somebody deletes
    /// a Secret by mistake, and nobody removes a tenant by mistake: it must be asked for.
    fn policy(&self, own: Option<&WorkerCluster>) -> OnRemoval {
        let policy = own.map(|own| own.spec.on_removal);
        self.params.on_removal.unwrap_or(match policy {
            None | Some(OnRemoval::Keep) => OnRemoval::Release,
            Some(policy) => policy,
        })
    }

    /// Gives the worker cluster back where the manager did not.
    async fn give_back(
        &self,
        worker: &Client,
        (home, policy): (Home, OnRemoval),
        progress: &mut (dyn FnMut(String) + Send),
    ) -> anyhow::Result<Removal> {
        let claimant = self.claimant().await?;
        // Finalizers do not say for whom they are.
        let is_anothers = claim::is_anothers(worker, &claimant).await;
        ensure!(
            !is_anothers.context("cannot read the claim on the worker cluster")?,
            "the worker cluster is claimed for another tenant, to which what has our finalizer \
             there belongs; nothing was changed in it"
        );
        let cluster = GiveBack {
            worker: worker.clone(),
            management: self.management.client.clone(),
            claimant: &claimant,
            home,
            registration: &self.params.name,
            gone: "the registration is gone",
            policy,
        };
        let done = cluster.attempt(&mut BTreeSet::new()).await;
        let (removal, message) = done.context("cannot give the worker cluster back")?;
        progress(format!("worker cluster: {message}"));
        Ok(removal)
    }

    async fn claimant(&self) -> anyhow::Result<Claimant> {
        Ok(Claimant {
            management_uid: self.management.cluster_uid().await?,
            tenant: TenantId::new(&self.params.namespace),
        })
    }

    fn describe(&self, own: Option<&WorkerCluster>, policy: OnRemoval) -> [String; 3] {
        let RemoveParams {
            name, namespace, ..
        } = &self.params;
        let status = own.and_then(|own| own.status.as_ref());
        let served = status.and_then(|it| it.served.as_deref()).unwrap_or("0/0");
        let what = match policy {
            _ if Home::of(own) == Home::Worker => {
                "The Lease of the worker cluster is released, and everything in it stays. The \
                 WorkerCluster is deleted, unless it is kept (--on-removal keep)"
            }
            OnRemoval::Keep => {
                "Machine deployments keep the finalizer, so that deleting one hangs until the \
                 cluster is registered again. The WorkerCluster stays (keep)"
            }
            OnRemoval::Release => {
                "Machine deployments lose the finalizer, and what was made for them stays. The \
                 WorkerCluster is deleted (release)"
            }
            OnRemoval::Purge => {
                "Machine deployments lose the finalizer, and the configs, Secrets and tokens that \
                 were made for them are deleted, so that no new machine can join. The \
                 WorkerCluster is deleted (purge)"
            }
        };
        let worker = match (&self.worker, policy) {
            _ if Home::of(own) == Home::Worker => "stay as they are",
            (_, OnRemoval::Keep) => "stay as they are",
            (None, _) => "stay as they are (give --worker-kubeconfig to remove them)",
            (Some(_), _) => "made by osm tenant add are removed, and its token with them",
        };
        [
            format!(
                "Tenant {namespace}, registration {name}, {served} machine deployments served."
            ),
            format!("{what}."),
            format!("ServiceAccount and roles in the worker cluster {worker}."),
        ]
    }

    /// Returns the WorkerCluster of the registration.
    async fn own(&self) -> anyhow::Result<Option<WorkerCluster>> {
        let RemoveParams {
            name, namespace, ..
        } = &self.params;
        let all = cluster_client::worker_clusters(&self.management.client, namespace).await?;
        let mut all = all.into_iter();
        Ok(all.find(|it| it.spec.kubeconfig_secret_ref.name == *name))
    }

    /// Refuses to delete objects in a cluster that is not the tenant's.
    async fn refuse_another_cluster(&self, own: Option<&WorkerCluster>) -> anyhow::Result<()> {
        let (Some(worker), Some(own)) = (&self.worker, own) else {
            return Ok(());
        };
        let known = own.status.as_ref().and_then(|it| it.cluster_uid.clone());
        let found = engage::identity(&worker.client, own.spec.home).await;
        let found = found.context("--worker-kubeconfig")?;
        ensure!(
            known.is_none() || known == found,
            "--worker-kubeconfig leads to another cluster than WorkerCluster {} is about",
            own.name_any()
        );
        Ok(())
    }

    /// Refuses to delete the only kubeconfig of a cluster that the manager cannot give back now.
    fn refuse_silent_cluster(&self, own: &WorkerCluster, policy: OnRemoval) -> anyhow::Result<()> {
        let is_needed = policy != OnRemoval::Keep && self.worker.is_none();
        let Some(silent) = status::silent(own).filter(|_| is_needed) else {
            return Ok(());
        };
        let name = own.name_any();
        bail!(
            "the worker cluster does not answer, so the manager cannot give it back: {}: {}. \
             Repeat this once it answers, or with --worker-kubeconfig. If the cluster is gone for \
             good, give --on-removal keep, and then `kubectl -n {} delete workercluster {name}`",
            silent.reason,
            silent.message,
            self.params.namespace
        )
    }

    async fn set_policy(&self, own: &WorkerCluster, policy: OnRemoval) -> anyhow::Result<()> {
        if own.spec.on_removal == policy {
            return Ok(());
        }
        let patched = self.patch_policy(own, policy).await?;
        // The manager has read the field once the status has its generation.
        let generation = patched.metadata.generation;
        let has_read = |found: &WorkerCluster| {
            let status = found.status.as_ref();
            status.is_some_and(|it| it.observed_generation >= generation)
        };
        self.until(own, has_read, "has not read spec.onRemoval")
            .await
            .map(drop)
    }

    async fn patch_policy(
        &self,
        own: &WorkerCluster,
        policy: OnRemoval,
    ) -> anyhow::Result<WorkerCluster> {
        let patch = Patch::Merge(json!({ "spec": { "onRemoval": policy } }));
        let (api, params) = (self.worker_clusters(), PatchParams::default());
        let patched = api.patch(&own.name_any(), &params, &patch).await;
        patched.context("cannot set spec.onRemoval of the WorkerCluster")
    }

    async fn delete_registration(
        &self,
        registration: &Registration,
        progress: &mut (dyn FnMut(String) + Send),
    ) -> anyhow::Result<()> {
        if !registration.is_ours {
            progress(format!(
                "management cluster: Secret {} stays; another program has made it",
                self.params.name
            ));
            return Ok(());
        }
        let params = by_uid(registration.uid.clone());
        let deleted = self.secrets().delete(&self.params.name, &params).await;
        deleted.context("cannot delete the registration")?;
        progress(format!(
            "management cluster: deleted Secret {}",
            self.params.name
        ));
        Ok(())
    }

    /// Waits until the manager has handled the machine deployments. Returns what it did.
    async fn wait(
        &self,
        own: &WorkerCluster,
        progress: &mut (dyn FnMut(String) + Send),
    ) -> anyhow::Result<Option<Removal>> {
        let mut said = String::new();
        let is_over = |found: &WorkerCluster| {
            let Some((removal, message)) = removed(found) else {
                return false;
            };
            if !removal.is_final() && said != message {
                message.clone_into(&mut said);
                progress(format!("waiting: {message}"));
            }
            removal.is_final()
        };
        let found = self.until(own, is_over, "has not given it back").await?;
        Ok(removed(&found).map(|(removal, message)| {
            progress(format!("the manager: {message}"));
            removal
        }))
    }

    async fn until(
        &self,
        own: &WorkerCluster,
        mut is_so: impl FnMut(&WorkerCluster) -> bool,
        not_yet: &str,
    ) -> anyhow::Result<WorkerCluster> {
        let name = own.name_any();
        let deadline = Instant::now() + self.params.patience;
        loop {
            let found = self.worker_clusters().get(&name).await;
            let found = found.with_context(|| format!("cannot read WorkerCluster {name}"))?;
            if is_so(&found) {
                return Ok(found);
            }
            if Instant::now() >= deadline {
                bail!(
                    "the manager {not_yet} after {} s; does it run? osm tenants shows its state, \
                     and this command may be repeated, with --without-manager if it is gone",
                    self.params.patience.as_secs()
                );
            }
            sleep(INTERVAL).await;
        }
    }

    /// Deletes the WorkerCluster. The cluster has been given back.
    async fn delete_worker_cluster(
        &self,
        own: &WorkerCluster,
        progress: &mut (dyn FnMut(String) + Send),
    ) -> anyhow::Result<()> {
        let name = own.name_any();
        let found = self.worker_clusters().get_opt(&name).await;
        let Some(found) = found.context("cannot read the WorkerCluster")? else {
            return Ok(());
        };
        let deleted = self
            .worker_clusters()
            .delete(&name, &by_uid(found.uid()))
            .await;
        deleted.context("cannot delete the WorkerCluster")?;
        progress(format!("management cluster: deleted WorkerCluster {name}"));
        Ok(())
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.management.client.clone(), &self.params.namespace)
    }

    fn worker_clusters(&self) -> Api<WorkerCluster> {
        Api::namespaced(self.management.client.clone(), &self.params.namespace)
    }
}

fn by_uid(uid: Option<String>) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid,
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}
