//! Computes what reconciles would write into live clusters, and writes nothing. The manager may be
//! running or not. Only reads are sent, so something that is missing is refused instead of created.

mod answer;
pub mod applied;
pub mod explain;
mod profiles;
mod registrations;
mod shared_writes;
mod tenant_state;

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

pub use self::answer::{Answer, MachinesFate, Running, Verdict};
use self::{
    applied::Applied,
    registrations::{Registered, registrations},
    tenant_state::Tenant,
};
use super::{
    AT_ONCE,
    cluster_client::{ClusterClient, KubeconfigSource},
    count::Count,
    selection::Selection,
};
use crate::api::{
    change::Class,
    machine_deployment::MachineDeployment,
    names::{DerivedNames, PROFILE},
    profile::OperatingSystemProfileSpec,
    reason::Reason,
    worker_cluster::NodeCredentials,
};
use crate::app::built_in_profiles;
use crate::client::{account::Account, memory::Reservation, pages};
use crate::controllers::{
    machine_deployment_index::MachineDeploymentIndex, profile_store::ProfileStore,
};
use crate::plan::{
    behind::{behind, left_to_others, replaced},
    bootstrap::Randomness,
    changes::{Change, changes},
    desired::{Desired, awaited_revision, desired, is_current},
    found::{Lacking, NotServed, ProfileName, find_profile, lacking},
    invalid::Invalid,
    machine_rollout::{machines, replacement_state},
    observed::Observed,
    provenance::Provenance,
    records::Behind,
    validate::{Deployment, Found, Policy, Profile, validate},
};
use crate::render::{Limits, Rendered};
use crate::render_worker::Renderer;
use crate::rules::{
    diff::{Names, differences},
    effect::{Documents, Effect, class, effects, of_provisioning},
    user_data::SizeChecked,
};
use crate::settings::Settings;
use crate::telemetry::chain::whole;
use crate::tenant::{access::renewal::ServiceAccountName, secret_text::SecretBytes};
use anyhow::Context as _;
use futures::{StreamExt as _, stream};
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    runtime::{reflector, watcher::Event},
};
use tokio::sync::OnceCell;

const PAUSED: &str = "the WorkerCluster is paused: nothing is written until it is not";

/// The parameters of a plan.
#[derive(Debug)]
pub struct Question {
    /// The settings of `osm run`.
    pub settings: Settings,
    /// The source of the management cluster's kubeconfig.
    pub management: KubeconfigSource,
    /// The manager's ServiceAccount in the management cluster.
    pub manager: ServiceAccountName,
    /// The tenants.
    pub selection: Selection,
    /// Profiles that replace the installed ones, by name.
    pub profiles: BTreeMap<String, OperatingSystemProfileSpec>,
    /// Objects that are taken for applied.
    pub applied: Applied,
    /// An assumption about our default profiles.
    pub defaults: Supposed,
    /// Those of default profiles in the manager's namespace.
    pub contents: Contents,
    /// A store whose contents those of all tenants share.
    pub shared: OnceLock<ProfileStore>,
}

/// Contents of default profiles, each with its name, once they are read.
pub type Contents = OnceCell<Vec<(String, OperatingSystemProfileSpec)>>;

/// An assumption about the default profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supposed {
    /// Each tenant has them, as far as its settings, edits and pins allow.
    Installed,
    /// None: every profile is as it is installed.
    Nothing,
}

/// Computes the plan for all machine deployments of the tenants.
///
/// # Errors
///
/// If registrations cannot be read. The error of a single tenant is part of the result.
pub async fn plan(question: &Question, count: &Count) -> anyhow::Result<Vec<Answer>> {
    // It reads as much as the manager does.
    let budget = question.settings.management_requests;
    let client = ClusterClient::management_within(&question.management, budget);
    let client = client.await?.client;
    let registrations = registrations(&client, question).await?;
    count.begin(registrations.len());
    let answers = stream::iter(&registrations).map(async |registration| {
        let answers = Box::pin(of_tenant(&client, question, registration)).await;
        count.advance();
        answers.unwrap_or_else(|error| {
            let tenant = registration.secret.namespace().unwrap_or_default();
            vec![Answer {
                message: Some(whole(error.as_ref()).to_string()),
                ..Answer::new(&tenant, None, Verdict::Unknown)
            }]
        })
    });
    let answers: Vec<_> = answers.buffered(AT_ONCE).collect().await;
    Ok(answers.into_iter().flatten().collect())
}

async fn of_tenant(
    client: &Client,
    question: &Question,
    registration: &Registered,
) -> anyhow::Result<Vec<Answer>> {
    if let Some(answer) = registration.is_second() {
        return Ok(vec![answer]);
    }
    let tenant = Tenant::read(client, question, registration).await?;
    let listed = Listed::read(&tenant).await?;
    let answers = listed.living().map(|it| tenant.answer(it, &listed.index));
    let mut answers: Vec<Answer> = answers.collect();
    let writes = tenant.shared_writes().await?;
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

/// The machine deployments of a worker cluster, with the index that reconciles use.
struct Listed {
    all: Vec<Arc<MachineDeployment>>,
    index: MachineDeploymentIndex,
}

impl Listed {
    async fn read(tenant: &Tenant) -> anyhow::Result<Self> {
        let all = Api::all(tenant.worker.clone());
        let all: pages::Listed<MachineDeployment> = pages::all(&all, ListParams::default())
            .await
            .context("cannot list machine deployments")?;
        let all = all.into_all(MachineDeployment::from).into_iter();
        let (store, mut writer) = reflector::store();
        let index = MachineDeploymentIndex::new(store, tenant.policy.machine_deployments_max);
        let bytes_max = tenant.policy.machine_deployment_bytes_max();
        let mut account = Account::of(bytes_max, Reservation::guaranteed(&Arc::default()));
        let events = std::iter::once(Event::Init).chain(all.map(Event::InitApply));
        for event in events.chain([Event::InitDone]) {
            let event = account.keep(event)?;
            writer.apply_watcher_event(&event);
            index.follow(&event);
        }
        Ok(Self {
            all: writer.as_reader().state(),
            index,
        })
    }

    /// Returns the machine deployments that are not being deleted.
    fn living(&self) -> impl Iterator<Item = &Arc<MachineDeployment>> {
        let all = self.all.iter();
        all.filter(|it| it.metadata.deletion_timestamp.is_none())
    }
}

fn full_name(machine_deployment: &MachineDeployment) -> String {
    let namespace = machine_deployment.namespace().unwrap_or_default();
    format!("{namespace}/{}", machine_deployment.name_any())
}

impl Tenant {
    /// Returns the planned result for a machine deployment.
    fn answer(&self, found: &Arc<MachineDeployment>, index: &MachineDeploymentIndex) -> Answer {
        let answer = Answer {
            message: self.is_paused.then(|| PAUSED.to_owned()),
            ..Answer::new(&self.namespace, Some(full_name(found)), Verdict::Unchanged)
        };
        let lacking = match lacking(found, self.unnamed) {
            Ok(Some(lacking)) => lacking,
            Ok(None) => return answer.ignored(),
            Err(invalid) => return answer.not_served(&invalid.into()),
        };
        let (patched, writes) = patched(found, lacking);
        let supposed = Answer {
            writes,
            ..answer.clone()
        };
        let decided = self.decide(&patched, index, supposed);
        decided.unwrap_or_else(|not_served| answer.not_served(&not_served))
    }

    fn decide(
        &self,
        machine_deployment: &Arc<MachineDeployment>,
        index: &MachineDeploymentIndex,
        mut answer: Answer,
    ) -> Result<Answer, NotServed> {
        let found = self.inputs(machine_deployment, index);
        let policy = Policy {
            token_lifetime: self.token_lifetime,
            machine_deployments_max: self.policy.machine_deployments_max,
        };
        let deployment = validate(&found, &policy)?;
        let deployment = self.with_node_credentials(deployment, &mut answer);
        answer.inputs = differing(&deployment.provenance, &found.observed);
        let documents = if is_current(&deployment, &found.observed) {
            None
        } else {
            Some(self.render(&deployment, &mut answer)?)
        };
        let mut desired = desired(&deployment, documents);
        let effects = self.effects((&deployment, &desired), &found.observed);
        let effects = effects.map(|effects| left_to_others(&deployment, effects));
        desired.behind = behind(&desired, &found.observed, effects);
        answer.behind = desired.behind.as_ref().and_then(Behind::entry);
        let machines = machines(&desired, &found.observed);
        let outdated = machines.filter(|it| it.class() > Class::None);
        let state = |it| replacement_state(machine_deployment, Some(&it), &self.replacement);
        answer.machines = outdated.map(state).map(MachinesFate::from);
        let mut changes_document = false;
        for change in changes(desired, &found.observed) {
            let names = [&deployment.names.bootstrap, &deployment.names.provisioning];
            changes_document |= names.iter().any(|it| change.secret() == Some(it.as_str()));
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
        // Documents that are kept as found change nothing.
        let is_said = |it: &Running| changes_document && !it.effects.is_empty();
        answer.running = answer.running.filter(is_said);
        let awaited = awaited_revision(&deployment, &found.observed);
        if let (Verdict::Unchanged, Some(awaited)) = (answer.verdict, awaited) {
            answer.verdict = Verdict::Waiting;
            answer.reason = Some(Reason::AwaitingRevision);
            let paused = answer.message.map(|paused| format!("; {paused}"));
            answer.message = Some(awaited + &paused.unwrap_or_default());
        }
        Ok(answer)
    }

    /// Returns the effects of a changed document on machines that have the existing one.
    fn effects(
        &self,
        (deployment, desired): (&Deployment, &Desired),
        observed: &Observed,
    ) -> Option<Vec<Effect>> {
        let declared = &deployment.profile.spec().effects;
        replaced(desired, observed)?;
        let old = self.documents.get(&desired.names.provisioning)?;
        let new = &desired.documents.as_ref()?.provisioning.0;
        Some(of_provisioning((old.expose(), new.as_bytes()), declared))
    }

    /// Returns the deployment with its own fetch token, if it has one. If it would get one, adds
    /// that to the writes.
    fn with_node_credentials(&self, deployment: Deployment, answer: &mut Answer) -> Deployment {
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

    fn render(&self, deployment: &Deployment, answer: &mut Answer) -> Result<SizeChecked, Invalid> {
        let documents = deployment.render(&Limits::default())?;
        if let Some(before) = self.configs.get(&deployment.names.config) {
            let names = Names {
                old: "live",
                new: "planned",
            };
            answer.diff = differences(names, &before.spec, &documents.rendered.stored_config);
        }
        answer.running = self.running(deployment, &documents.rendered);
        Ok(documents)
    }

    /// Returns what the new documents would take on machines that have the existing ones. `None` if
    /// no machine can have any.
    fn running(&self, deployment: &Deployment, new: &Rendered) -> Option<Running> {
        let found = &deployment.machine_deployment;
        let existing = found.status.as_ref().and_then(|it| it.replicas);
        let machines = existing.unwrap_or(0).max(found.spec.replicas.unwrap_or(1));
        let document = |name: &String| self.documents.get(name).map(SecretBytes::expose);
        let names = &deployment.names;
        let old = (document(&names.bootstrap), document(&names.provisioning));
        let new = Documents::of(new);
        let mut effects = match old {
            (None, None) if existing.unwrap_or(0) == 0 => return None,
            (Some(bootstrap), Some(provisioning)) => {
                let old = Documents {
                    bootstrap,
                    provisioning,
                };
                effects(old, new, &deployment.profile.spec().effects)
            }
            (_, None) => vec![Effect::new_machine("provisioning document")],
            (None, _) => vec![Effect::new_machine("bootstrap document")],
        };
        let has_own = deployment.settings.node_credentials != NodeCredentials::Shared;
        if has_own && !self.fetch_tokens.contains_key(&names.fetcher_token) {
            effects.insert(0, Effect::new_machine("bootstrap document"));
        }
        Some(Running {
            class: class(&effects),
            machines_at_most: machines.max(0),
            effects,
        })
    }

    fn inputs(
        &self,
        machine_deployment: &Arc<MachineDeployment>,
        index: &MachineDeploymentIndex,
    ) -> Found {
        let namespace = machine_deployment.namespace().unwrap_or_default();
        let names = DerivedNames::new(&namespace, &machine_deployment.name_any());
        Found {
            name_conflicts: index.conflicts(machine_deployment),
            quota: index.quota(machine_deployment),
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

    fn profile(&self, machine_deployment: &MachineDeployment) -> Result<Profile, NotServed> {
        let named = ProfileName::of(machine_deployment, &self.home, &self.policy)?;
        let is_own = named.namespace == self.id.namespace();
        let awaits = |name: &str| {
            let defaults = built_in_profiles().unwrap_or_default();
            is_own && self.default_profiles.installs(name, &defaults)
        };
        let shared = find_profile(&named, &self.profiles, awaits)?;
        match shared.compile(&Renderer::InProcess) {
            Ok(compiled) => Ok(Profile {
                name: named.name,
                compiled,
            }),
            Err(error) => Err(Invalid::unusable(&named, error).into()),
        }
    }
}

/// Returns the machine deployment as it would be served, and the writes that this needs.
fn patched(
    found: &Arc<MachineDeployment>,
    lacking: Lacking,
) -> (Arc<MachineDeployment>, Vec<String>) {
    let mut writes = Vec::new();
    let mut patched = Arc::clone(found);
    if lacking.finalizer {
        writes.push("add the finalizer to the machine deployment".to_owned());
    }
    if let Some(profile) = lacking.profile {
        writes.push(format!("annotate the machine deployment with {profile}"));
        let annotations = Arc::make_mut(&mut patched).annotations_mut();
        annotations.insert(PROFILE.to_owned(), profile.to_owned());
    }
    (patched, writes)
}

/// Returns the inputs that differ from those that the annotations of the bootstrap Secret record.
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
