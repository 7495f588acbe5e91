//! What a reconcile would write, asked of live clusters and written nowhere: the manager may run or
//! not. Only reads are sent; what is missing is a refusal, not a write.

pub mod explain;
mod look;
mod profiles;

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Context as _;
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde::Serialize;

use self::look::Tenant;
pub(super) use self::look::kubeconfig_of;
use super::cluster_client::{ClusterClient, KubeconfigSource};
use crate::api::{
    machine_deployment::MachineDeployment,
    names::{DerivedNames, FINALIZER, PROFILE, PROFILE_NAMESPACE},
    profile::OperatingSystemProfileSpec,
    worker_cluster::{NodeCredentials, ProfileAnnotation},
};
use crate::controllers::adoption;
use crate::fleet::{
    pages::{self, Listed},
    prerequisites,
};
use crate::plan::{
    bootstrap::Randomness,
    changes::{Change, changes},
    desired::{desired, is_current},
    machine_rollout::{Machines, Standing, machines, standing},
    observed::Observed,
    provenance::Provenance,
    validate::{Deployment, Found, NameConflict, Policy, ProfileFound, Quota, created, validate},
};
use crate::render::{Limits, input::ProviderConfig, overlay, render, template::CompiledProfile};
use crate::rules::{
    diff::{Names, differences},
    machine_deployment::default_profile,
    user_data::fit,
};
use crate::settings::Settings;
use crate::telemetry::chain::whole;

const PAUSED: &str = "the WorkerCluster is paused: nothing is written until it is not";

/// What is asked.
#[derive(Debug)]
pub struct Question {
    /// As `osm run` has them.
    pub settings: Settings,
    /// The way into the management cluster.
    pub management: KubeconfigSource,
    /// The tenants; none means all.
    pub tenants: Vec<String>,
    /// Profiles in place of those that are installed, by name.
    pub profiles: BTreeMap<String, OperatingSystemProfileSpec>,
    /// Our default profiles.
    pub defaults: Supposed,
}

/// Whether something is supposed that may not be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supposed {
    /// It is as if each tenant had them, as far as its settings, edits and pins let them in.
    Installed,
    /// Everything is as it stands there.
    Nothing,
}

/// What would become of one machine deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The tenant's namespace.
    pub tenant: String,
    /// The machine deployment, as `namespace/name`; nothing where the tenant cannot be looked at,
    /// and for what is written for all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_deployment: Option<String>,
    /// What it would come to.
    pub verdict: Verdict,
    /// Why it cannot be told, or would be refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Which inputs differ from those of what stands there.
    pub inputs: Vec<&'static str>,
    /// What would become of machines that were made from another document, where they are replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<MachinesFate>,
    /// What would be written, in order.
    pub writes: Vec<String>,
    /// The config's differences, as unified diffs; secrets are marked.
    pub diff: String,
}

/// What a machine deployment would come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// Nothing would be written.
    Unchanged,
    /// Objects would be made or annotated; no document would change.
    Written,
    /// Its documents would be recreated with other bytes.
    Rotated,
    /// It would be refused.
    Refused,
    /// It cannot be told.
    Unknown,
}

/// What would become of outdated machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MachinesFate {
    /// They would be replaced, when their machine deployment's turn has come.
    Replaced,
    /// They are being replaced already.
    BeingReplaced,
    /// They would be replaced, were their machine deployment at rest and not paused.
    HeldBack,
}

/// Asks.
pub async fn plan(question: &Question) -> anyhow::Result<Vec<Answer>> {
    let client = ClusterClient::management(&question.management)
        .await?
        .client;
    let registrations = look::registrations(&client, question).await?;
    let mut answers = Vec::new();
    for registration in registrations {
        let tenant = registration.namespace().unwrap_or_default();
        match Box::pin(of_tenant(&client, question, &registration)).await {
            Ok(found) => answers.extend(found),
            Err(error) => answers.push(Answer {
                message: Some(whole(error.as_ref()).to_string()),
                ..Answer::new(&tenant, None, Verdict::Unknown)
            }),
        }
    }
    Ok(answers)
}

async fn of_tenant(
    client: &Client,
    question: &Question,
    registration: &k8s_openapi::api::core::v1::Secret,
) -> anyhow::Result<Vec<Answer>> {
    let tenant = Tenant::read(client, question, registration).await?;
    let living = living(&tenant).await?;
    let served = living.iter().filter(|it| tenant.serves(it));
    let mut answers: Vec<Answer> = served.map(|it| tenant.answer(it, &living)).collect();
    let writes = prerequisites::plan_fetcher(&tenant.worker).await?;
    if !writes.is_empty() {
        let of_all = Answer {
            message: tenant.is_paused.then(|| PAUSED.to_owned()),
            writes,
            ..Answer::new(&tenant.namespace, None, Verdict::Written)
        };
        answers.insert(0, of_all);
    }
    if answers.is_empty() {
        return Ok(vec![Answer {
            message: Some("it has no machine deployment to serve".to_owned()),
            ..Answer::new(&tenant.namespace, None, Verdict::Unchanged)
        }]);
    }
    Ok(answers)
}

/// The machine deployments of the worker cluster that are not being deleted.
async fn living(tenant: &Tenant) -> anyhow::Result<Vec<Arc<MachineDeployment>>> {
    let all = Api::all(tenant.worker.clone());
    let all: Listed<MachineDeployment> = pages::all(&all, ListParams::default())
        .await
        .context("cannot list machine deployments")?;
    let living = all
        .into_all(MachineDeployment::from)
        .into_iter()
        .filter(|it| it.metadata.deletion_timestamp.is_none());
    Ok(living.map(Arc::new).collect())
}

impl Answer {
    fn new(tenant: &str, machine_deployment: Option<String>, verdict: Verdict) -> Self {
        Self {
            tenant: tenant.to_owned(),
            machine_deployment,
            verdict,
            message: None,
            inputs: Vec::new(),
            machines: None,
            writes: Vec::new(),
            diff: String::new(),
        }
    }
}

fn full_name(machine_deployment: &MachineDeployment) -> String {
    let namespace = machine_deployment.namespace().unwrap_or_default();
    format!("{namespace}/{}", machine_deployment.name_any())
}

impl Tenant {
    /// Whether a machine deployment is one that the manager serves.
    fn serves(&self, found: &MachineDeployment) -> bool {
        let is_named = found
            .annotations()
            .get(PROFILE)
            .is_some_and(|it| !it.is_empty());
        let is_ours = found.finalizers().iter().any(|name| name == FINALIZER);
        is_named || is_ours || self.unnamed == ProfileAnnotation::Default
    }

    fn answer(&self, found: &Arc<MachineDeployment>, all: &[Arc<MachineDeployment>]) -> Answer {
        let answer = Answer::new(&self.namespace, Some(full_name(found)), Verdict::Unchanged);
        let answer = Answer {
            message: self.is_paused.then(|| PAUSED.to_owned()),
            ..answer
        };
        let decided = adopted(found).and_then(|(adopted, writes)| {
            let mut answer = answer.clone();
            answer.writes = writes;
            self.decide(&adopted, all, answer)
        });
        decided.unwrap_or_else(|refusal| Answer {
            verdict: Verdict::Refused,
            message: Some(refusal),
            ..answer
        })
    }

    fn decide(
        &self,
        machine_deployment: &Arc<MachineDeployment>,
        all: &[Arc<MachineDeployment>],
        mut answer: Answer,
    ) -> Result<Answer, String> {
        let found = self.inputs(machine_deployment, all);
        let policy = Policy {
            token_lifetime: self.token_lifetime,
            machine_deployments_max: self.policy.machine_deployments_max,
        };
        let deployment = validate(&found, &policy).map_err(|error| error.to_string())?;
        let deployment = self.equip(deployment, &mut answer);
        answer.inputs = differing(&deployment.provenance, &found.observed);
        let documents = if is_current(&deployment, &found.observed) {
            None
        } else {
            Some(self.render(&deployment, &mut answer)?)
        };
        let desired = desired(&deployment, documents);
        let machines = machines(&desired, &found.observed);
        if let Some(machines) = machines.filter(Machines::are_outdated) {
            answer.machines = match standing(machine_deployment, Some(&machines)) {
                Standing::Outdated => Some(MachinesFate::Replaced),
                Standing::Replacing => Some(MachinesFate::BeingReplaced),
                _ => Some(MachinesFate::HeldBack),
            };
        }
        for change in changes(desired, &found.observed) {
            if matches!(
                change,
                Change::RecreateSecret(..) | Change::DeleteSecret(..)
            ) {
                answer.verdict = Verdict::Rotated;
            } else if answer.verdict == Verdict::Unchanged {
                answer.verdict = Verdict::Written;
            }
            answer.writes.push(describe(&change));
        }
        if answer.machines == Some(MachinesFate::Replaced) {
            answer.writes.push(
                "annotate the template of the machine deployment, when its turn has come"
                    .to_owned(),
            );
        }
        if answer.verdict == Verdict::Unchanged && !answer.writes.is_empty() {
            answer.verdict = Verdict::Written;
        }
        Ok(answer)
    }

    /// The deployment with the token of its own that its machines have, or would get.
    fn equip(&self, deployment: Deployment, answer: &mut Answer) -> Deployment {
        if deployment.settings.node_credentials == NodeCredentials::Shared {
            return deployment;
        }
        let name = &deployment.names.fetcher_token;
        if let Some(token) = self.fetch_tokens.get(name) {
            let token = token.clone();
            return deployment.with_own_fetch_token(token);
        }
        answer.writes.push(format!(
            "create credentials {name}, if the rights are there; the documents get that token"
        ));
        deployment
    }

    fn render(
        &self,
        deployment: &Deployment,
        answer: &mut Answer,
    ) -> Result<crate::rules::user_data::SizeChecked, String> {
        let machine_deployment = &deployment.machine_deployment;
        let namespace = machine_deployment.namespace().unwrap_or_default();
        let name = machine_deployment.name_any();
        let input = deployment.render_input(&name, &namespace);
        let rendered = render(&input, &Limits::default()).map_err(|error| error.to_string())?;
        let documents = fit(rendered).map_err(|error| error.to_string())?;
        if let Some(before) = self.configs.get(&deployment.names.config) {
            let names = Names {
                old: "live",
                new: "planned",
            };
            answer.diff = differences(names, &before.spec, &documents.rendered.stored_config);
        }
        Ok(documents)
    }

    fn inputs(
        &self,
        machine_deployment: &Arc<MachineDeployment>,
        all: &[Arc<MachineDeployment>],
    ) -> Found {
        let namespace = machine_deployment.namespace().unwrap_or_default();
        let names = DerivedNames::new(&namespace, &machine_deployment.name_any());
        let age = |it: &MachineDeployment| (created(it), it.uid());
        let others = all.iter().filter(|it| it.uid() != machine_deployment.uid());
        let name_conflicts = others.clone().filter(|other| {
            let namespace = other.namespace().unwrap_or_default();
            DerivedNames::new(&namespace, &other.name_any()).overlaps(&names)
        });
        let older = others.filter(|it| age(it) < age(machine_deployment));
        Found {
            name_conflicts: name_conflicts
                .map(|other| NameConflict {
                    created: created(other),
                    uid: other.uid().unwrap_or_default(),
                    name: full_name(other),
                })
                .collect(),
            quota: if older.count() < self.policy.machine_deployments_max {
                Quota::Within
            } else {
                Quota::Exceeded
            },
            profile: self.profile(machine_deployment),
            settings: self.settings.clone(),
            cluster_info: Arc::clone(&self.cluster_info),
            kubeconfig_ca: Arc::clone(&self.kubeconfig_ca),
            registry_credentials: Arc::clone(&self.registry_credentials),
            token: self.tokens.get(&names.key).cloned(),
            token_attempt: 0,
            random: Randomness([0; 64]),
            observed: Observed {
                config: self.config(&names.config),
                provisioning: self.secrets.get(&names.provisioning).cloned(),
                bootstrap: self.secrets.get(&names.bootstrap).cloned(),
                kubelet_kubeconfig: self.secrets.get(&names.kubelet_kubeconfig).cloned(),
                edge_script: self.secrets.get(&names.edge_script).cloned(),
            },
            now: self.now,
            machine_deployment: Arc::clone(machine_deployment),
        }
    }

    fn profile(&self, machine_deployment: &MachineDeployment) -> ProfileFound {
        let annotations = machine_deployment.annotations();
        let name = annotations.get(PROFILE).cloned().unwrap_or_default();
        let named = annotations.get(PROFILE_NAMESPACE).map(String::as_str);
        let namespace = adoption::profile_namespace(&self.id, &self.policy, named);
        if !self.policy.allows_profiles_of(&self.id, &namespace) {
            return ProfileFound::Forbidden { namespace };
        }
        let find = |name: &str| {
            let key = (namespace.clone(), name.to_owned());
            self.profiles.get(&key).cloned().flatten()
        };
        let Some(spec) = find(&name) else {
            return if self
                .profiles
                .contains_key(&(namespace.clone(), name.clone()))
            {
                ProfileFound::Unreadable { namespace, name }
            } else {
                ProfileFound::Missing { namespace, name }
            };
        };
        let whole = match overlay::resolve(&name, &spec, find) {
            Ok(whole) => whole,
            Err(error) => return ProfileFound::Unresolved { error },
        };
        match CompiledProfile::compile(&whole) {
            Ok(profile) => ProfileFound::Usable {
                name,
                profile: Arc::new(profile),
            },
            Err(error) => ProfileFound::Unusable {
                name: format!("{namespace}/{name}"),
                error: Arc::new(error),
            },
        }
    }
}

/// The machine deployment as it would be served.
fn adopted(
    found: &Arc<MachineDeployment>,
) -> Result<(Arc<MachineDeployment>, Vec<String>), String> {
    let mut writes = Vec::new();
    let mut adopted = MachineDeployment::clone(found);
    if !found.finalizers().iter().any(|name| name == FINALIZER) {
        writes.push("add the finalizer to the machine deployment".to_owned());
    }
    let named = found.annotations().get(PROFILE);
    if named.is_none_or(String::is_empty) {
        let provider = ProviderConfig::decode(&found.spec.template.spec.provider_spec.json())
            .map_err(|error| error.to_string())?;
        let utility = provider
            .provisioning_utility()
            .map_err(|error| error.to_string())?;
        let profile = default_profile(
            &provider.operating_system,
            &provider.cloud_provider,
            utility.as_str(),
        )
        .map_err(|error| error.to_string())?;
        writes.push(format!("annotate the machine deployment with {profile}"));
        let annotations = adopted.annotations_mut();
        annotations.insert(PROFILE.to_owned(), profile.to_owned());
    }
    Ok((Arc::new(adopted), writes))
}

/// The inputs that differ from what the bootstrap Secret says of itself.
fn differing(provenance: &Provenance, observed: &Observed) -> Vec<&'static str> {
    use crate::api::names::{
        INPUTS, MADE_FOR_ANNOTATIONS, MADE_FOR_PROFILE_VERSION, MADE_FOR_REVISION,
    };
    let Some(seen) = &observed.bootstrap else {
        return Vec::new();
    };
    let mut inputs = Vec::new();
    for (annotation, now, name) in [
        (MADE_FOR_REVISION, &provenance.revision, "revision"),
        (
            MADE_FOR_ANNOTATIONS,
            &provenance.annotations_hash,
            "annotations",
        ),
        (
            MADE_FOR_PROFILE_VERSION,
            &provenance.profile_version,
            "profile version",
        ),
    ] {
        if seen.annotation(annotation) != Some(now) {
            inputs.push(name);
        }
    }
    let digest = provenance
        .inputs
        .as_ref()
        .map(crate::plan::digest::Digest::as_str);
    if inputs.is_empty() && seen.is_ours() && seen.annotation(INPUTS) != digest {
        inputs.push("profile content, settings, credentials, cluster info or renderer");
    }
    inputs
}

fn describe(change: &Change) -> String {
    match change {
        Change::CreateToken(_) => "create the bootstrap token".to_owned(),
        Change::ExtendToken(_) => "extend the bootstrap token".to_owned(),
        Change::CreateSecret(wanted) => format!("create Secret {}", wanted.name),
        Change::ReplaceSecret(wanted, _) => format!("update Secret {}", wanted.name),
        Change::KeepSecret(kept, _) => format!("keep Secret {} as it was found", kept.name),
        Change::RecreateSecret(wanted, _) => format!("recreate Secret {}", wanted.name),
        Change::DeleteSecret(name, _) => format!("delete Secret {name}"),
        Change::CreateConfig(wanted) => format!("create config {}", wanted.name),
        Change::StampConfig(wanted, _) => format!("annotate config {}", wanted.name),
        Change::RecreateConfig(wanted, _) => format!("recreate config {}", wanted.name),
    }
}
