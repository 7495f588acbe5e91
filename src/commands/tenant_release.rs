//! Releases a tenant's worker cluster to the program that served it before. No object that we
//! created changes, so no node and no Secret rotates.
//!
//! The manager stops serving the cluster first. Then the profiles in use are copied to the previous
//! program's side, together with the annotations by which it decides that everything is current.
//! Each step may be repeated.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, Client, Resource as _, ResourceExt,
    api::{ListParams, ObjectMeta, PartialObjectMeta, Patch, PatchParams, PostParams},
    core::DeserializeGuard,
    runtime::wait::await_condition,
};
use serde_json::json;

use super::cluster_client::{
    ClusterClient, KubeconfigSource, WorkerKubeconfigSource, worker_cluster,
};
use crate::api::{
    condition::ConditionType,
    config::OperatingSystemConfig,
    machine_deployment::MachineDeployment,
    names::{
        CLOUD_INIT_SETTINGS, DerivedNames, KUBE_SYSTEM, MADE_FOR_ANNOTATIONS,
        MADE_FOR_PROFILE_VERSION, MADE_FOR_REVISION, PROFILE,
    },
    profile::OperatingSystemProfile,
    reason::Reason,
    worker_cluster::{Home, WorkerCluster},
};
use crate::client::{clock::Clock, pages};
use crate::fleet::{
    adoption,
    claim::{self, Claimant},
    engage,
    removal::Held,
};
use crate::tenant::{id::TenantId, report::counted};

/// How long the manager may take to stop serving the cluster.
const LET_GO_TIMEOUT: Duration = Duration::from_mins(1);
/// The annotations by which the previous program decides what is current.
const STAMP: [&str; 3] = [
    MADE_FOR_REVISION,
    MADE_FOR_ANNOTATIONS,
    MADE_FOR_PROFILE_VERSION,
];

/// The tenant to release.
#[derive(Clone, Debug)]
pub struct Params {
    /// The name of the registration.
    pub name: String,
    /// The tenant's namespace in the management cluster.
    pub namespace: String,
    /// Access to the management cluster.
    pub management: KubeconfigSource,
    /// Access to the worker cluster with the right to write profiles there.
    pub worker: WorkerKubeconfigSource,
    /// States whether anything is written.
    pub mode: Mode,
}

/// States whether anything is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Objects are written.
    Write,
    /// Nothing is written. The output describes what would be.
    DryRun,
}

/// Releases the cluster, and reports each step with a call of `progress`.
///
/// # Errors
///
/// A call fails, or the manager does not let the cluster go in time.
pub async fn release(
    params: Params,
    progress: &mut (dyn FnMut(String) + Send),
) -> anyhow::Result<()> {
    let release = Release {
        management: ClusterClient::management(&params.management).await?.client,
        worker: ClusterClient::worker(&params.worker).await?.client,
        name: params.name,
        tenant: TenantId::new(&params.namespace),
        mode: params.mode,
    };
    let own = release.identify().await?;
    release.pause(&own, progress).await?;
    if own.spec.home == Home::Management {
        release.refuse_if_running().await?;
    }
    let mut pages = Held::of(&release.worker);
    let mut held = Vec::new();
    while let Some(page) = pages
        .next()
        .await
        .context("cannot list machine deployments")?
    {
        held.extend(page);
    }
    if own.spec.home == Home::Worker {
        progress("profiles and configs stay in the worker cluster, where they are".to_owned());
    } else if release.keeps_profiles_in_worker().await? {
        release.profiles(&held, progress).await?;
        for machine_deployment in &held {
            release.config(machine_deployment, progress).await?;
        }
    } else {
        progress("profiles and configs stay in the management cluster, where they are".to_owned());
    }
    release.give_claim_back(own.spec.home, progress).await?;
    progress(format!(
        "done: start the operating-system-manager of the worker cluster; {}. Then \
         remove the registration in namespace {}",
        counted(
            held.len(),
            "machine deployment stays as it is",
            "machine deployments stay as they are"
        ),
        params.namespace
    ));
    Ok(())
}

struct Release {
    management: Client,
    worker: Client,
    name: String,
    tenant: TenantId,
    mode: Mode,
}

impl Release {
    /// Returns the WorkerCluster of the registration, if the kubeconfig leads to its cluster.
    async fn identify(&self) -> anyhow::Result<WorkerCluster> {
        let namespace = self.tenant.namespace();
        let own = worker_cluster(&self.management, namespace, &self.name).await?;
        let found = engage::identity(&self.worker, own.spec.home)
            .await
            .context("the worker cluster does not answer")?;
        let known = own.status.as_ref().and_then(|it| it.cluster_uid.clone());
        ensure!(
            known.is_some() && found == known,
            "--worker-kubeconfig leads to another cluster than WorkerCluster {} is about",
            own.name_any()
        );
        Ok(own)
    }

    fn worker_clusters(&self) -> Api<WorkerCluster> {
        Api::namespaced(self.management.clone(), self.tenant.namespace())
    }

    /// Pauses the cluster, and waits until the manager reports that it has stopped serving it.
    async fn pause(
        &self,
        own: &WorkerCluster,
        progress: &mut (dyn FnMut(String) + Send),
    ) -> anyhow::Result<()> {
        let name = own.name_any();
        if own.spec.paused {
            progress(format!("WorkerCluster {name} is paused"));
        } else {
            progress(self.does(&format!("pause WorkerCluster {name}")));
        }
        if self.mode == Mode::DryRun {
            return Ok(());
        }
        let paused = Patch::Merge(json!({ "spec": { "paused": true } }));
        let api = self.worker_clusters();
        if !own.spec.paused {
            api.patch(&name, &PatchParams::default(), &paused)
                .await
                .context("cannot pause the WorkerCluster")?;
        }
        let let_go = |found: Option<&WorkerCluster>| found.is_some_and(has_let_go);
        let let_go = await_condition(api, &name, let_go);
        tokio::time::timeout(LET_GO_TIMEOUT, let_go)
            .await
            .context(
                "the manager does not say that it has let go (condition Registered, reason \
                      Paused); does it run?",
            )?
            .context("cannot watch the WorkerCluster")?;
        Ok(())
    }

    async fn refuse_if_running(&self) -> anyhow::Result<()> {
        match adoption::find_predecessor(&self.worker, &Clock::system()).await {
            Err(adoption::Obstacle::Running(holder)) => bail!(
                "{} holds Lease {KUBE_SYSTEM}/{}: the operating-system-manager of the worker \
                 cluster runs already; stop it until this is done",
                holder.identity,
                holder.lease
            ),
            Err(adoption::Obstacle::Call(error)) => {
                Err(error).context("cannot check whether it runs already")
            }
            _ => Ok(()),
        }
    }

    async fn keeps_profiles_in_worker(&self) -> anyhow::Result<bool> {
        let profiles: Api<OperatingSystemProfile> =
            Api::namespaced(self.worker.clone(), KUBE_SYSTEM);
        match profiles
            .list_metadata(&ListParams::default().limit(1))
            .await
        {
            Err(error) if pages::is_not_served(&error) => Ok(false),
            listed => Ok(listed.map(|_| true).context("cannot list profiles")?),
        }
    }

    /// Copies every profile in use to the previous program's side.
    async fn profiles(
        &self,
        held: &[PartialObjectMeta<MachineDeployment>],
        progress: &mut (dyn FnMut(String) + Send),
    ) -> anyhow::Result<()> {
        let names = held.iter().filter_map(|it| it.annotations().get(PROFILE));
        let names: BTreeSet<&String> = names.collect();
        for name in names {
            let line = self
                .profile(name)
                .await
                .with_context(|| format!("cannot hand profile {name} back"))?;
            progress(line);
        }
        Ok(())
    }

    async fn profile(&self, name: &str) -> anyhow::Result<String> {
        let here: Api<DeserializeGuard<OperatingSystemProfile>> =
            Api::namespaced(self.management.clone(), self.tenant.namespace());
        let there: Api<DeserializeGuard<OperatingSystemProfile>> =
            Api::namespaced(self.worker.clone(), KUBE_SYSTEM);
        let Some(ours) = here.get_opt(name).await? else {
            return Ok(format!(
                "profile {name} is not ours; it stays as it is there"
            ));
        };
        let Ok(ours) = ours.0 else {
            return Ok(format!(
                "profile {name} is NOT handed back: it cannot be read; it stays as it is there"
            ));
        };
        let theirs = there.get_opt(name).await?;
        let their_spec = theirs.as_ref().and_then(|it| it.0.as_ref().ok());
        if their_spec.is_some_and(|it| it.spec == ours.spec) {
            return Ok(format!("profile {name} is the same there"));
        }
        let ours_alone = serde_json::to_value(&ours.spec)?;
        let is_ours_alone = |key: &str| ours_alone.get(key).is_some();
        if is_ours_alone("extends") || is_ours_alone("templateLanguage") {
            return Ok(format!(
                "profile {name} is NOT handed back: the program before us cannot read what it is \
                 written in; its machine deployments rotate once that program renders another"
            ));
        }
        let version = ours.spec.version.clone();
        if self.mode == Mode::Write {
            let there: Api<OperatingSystemProfile> =
                Api::namespaced(self.worker.clone(), KUBE_SYSTEM);
            let mut profile = OperatingSystemProfile::new(name, ours.spec);
            match theirs {
                None => {
                    there.create(&PostParams::default(), &profile).await?;
                }
                Some(theirs) => {
                    profile.metadata = theirs.meta().clone();
                    profile.managed_fields_mut().clear();
                    there
                        .replace(name, &PostParams::default(), &profile)
                        .await?;
                }
            }
        }
        Ok(self.does(&format!("hand profile {name} {version} back")))
    }

    /// Copies annotations from the Secrets to the previous program's config. It compares three
    /// annotations of the config with the machine deployment.
    async fn config(
        &self,
        machine_deployment: &PartialObjectMeta<MachineDeployment>,
        progress: &mut (dyn FnMut(String) + Send),
    ) -> anyhow::Result<()> {
        let namespace = machine_deployment.namespace().unwrap_or_default();
        let names = DerivedNames::new(&namespace, &machine_deployment.name_any());
        let line = self
            .config_of(&names)
            .await
            .with_context(|| format!("cannot hand config {} back", names.config))?;
        progress(line);
        Ok(())
    }

    async fn config_of(&self, names: &DerivedNames) -> anyhow::Result<String> {
        let name = &names.config;
        let secrets: Api<Secret> = Api::namespaced(self.worker.clone(), CLOUD_INIT_SETTINGS);
        let Some(secret) = secrets.get_metadata_opt(&names.provisioning).await? else {
            return Ok(format!("config {name} is left: nothing was made from it"));
        };
        let made = secret.annotations();
        let provenance = STAMP.map(|key| (key, made.get(key).cloned().unwrap_or_default()));
        let there: Api<OperatingSystemConfig> = Api::namespaced(self.worker.clone(), KUBE_SYSTEM);
        let patch = json!({
            "metadata": { "annotations": std::collections::BTreeMap::from(provenance.clone()) }
        });
        if let Some(theirs) = there.get_metadata_opt(name).await? {
            let same =
                |(key, value): &(&str, String)| theirs.annotations().get(*key) == Some(value);
            if provenance.iter().all(same) {
                return Ok(format!("config {name} is current there"));
            }
            if self.mode == Mode::Write {
                let params = PatchParams::default();
                there
                    .patch_metadata(name, &params, &Patch::Merge(&patch))
                    .await?;
            }
            return Ok(self.does(&format!("annotate config {name} there")));
        }
        let here: Api<DeserializeGuard<OperatingSystemConfig>> =
            Api::namespaced(self.management.clone(), self.tenant.namespace());
        let Some(ours) = here.get_opt(name).await? else {
            return Ok(format!("config {name} is missing on both sides"));
        };
        let Ok(ours) = ours.0 else {
            return Ok(format!(
                "config {name} cannot be read, and is not handed back"
            ));
        };
        if self.mode == Mode::Write {
            let mut fresh = OperatingSystemConfig::new(name, ours.spec);
            fresh.metadata = ObjectMeta {
                annotations: Some(
                    provenance
                        .map(|(key, value)| (key.to_owned(), value))
                        .into(),
                ),
                ..fresh.metadata
            };
            there.create(&PostParams::default(), &fresh).await?;
        }
        Ok(self.does(&format!("make config {name} there, without its secrets")))
    }

    async fn give_claim_back(
        &self,
        home: Home,
        progress: &mut (dyn FnMut(String) + Send),
    ) -> anyhow::Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.management.clone());
        let management_uid = namespaces.get_metadata(KUBE_SYSTEM).await?.uid();
        let claimant = Claimant {
            management_uid: management_uid.unwrap_or_default(),
            tenant: self.tenant.clone(),
        };
        if self.mode == Mode::Write {
            let released = match home {
                Home::Management => claim::release(&self.worker, &claimant).await,
                Home::Worker => claim::lease::release(&self.worker, &claimant).await,
            };
            released.context("cannot give the claim back")?;
        }
        progress(self.does(match home {
            Home::Management => "give the claim on the worker cluster back",
            Home::Worker => "release the Lease of the worker cluster",
        }));
        Ok(())
    }

    fn does(&self, what: &str) -> String {
        match self.mode {
            Mode::Write => what.to_owned(),
            Mode::DryRun => format!("would {what}"),
        }
    }
}

/// Returns true if the status is about the spec that pauses, and reports that the cluster is
/// paused.
fn has_let_go(found: &WorkerCluster) -> bool {
    let Some(status) = &found.status else {
        return false;
    };
    let is_about_it = status.observed_generation == found.metadata.generation;
    let registered = found.condition(ConditionType::Registered);
    is_about_it && registered.is_some_and(|it| it.reason == Reason::Paused)
}
