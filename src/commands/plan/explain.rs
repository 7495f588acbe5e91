//! Explains a machine deployment: its profile, its inputs and their sources, what has changed since
//! its documents were created, and what blocks it.

mod blockers;

use std::sync::Arc;

use anyhow::bail;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::ResourceExt;
use serde::Serialize;
use serde_json::{Value, json};

use self::blockers::blockers;
use super::{
    Answer, Listed, Question, full_name, registrations::registrations, tenant_state::Tenant,
};
use crate::api::{
    machine_deployment::MachineDeployment,
    names::{
        DerivedNames, MADE_FOR_PROFILE_VERSION, MADE_FOR_REVISION, PROFILE, PROFILE_NAMESPACE,
        REVISION,
    },
    reason::Actor,
};
use crate::app::built_in_profiles;
use crate::commands::{AT_ONCE, cluster_client::ClusterClient, count::Count};
use crate::plan::found::{lacking, profile_namespace};
use crate::render::input::ProviderConfig;
use crate::rules::annotations::{Remark, remarks};
use crate::telemetry::chain::whole;
pub use crate::tenant::settings::Input;
use crate::tenant::settings::masked;

/// The explanation of a machine deployment.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The planned result.
    pub answer: Answer,
    /// The profile.
    pub profile: ProfileOrigin,
    /// The inputs from the machine deployment and the cluster.
    pub inputs: Vec<Input>,
    /// The tenant's settings.
    pub settings: Vec<Input>,
    /// The existing documents; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made: Option<Made>,
    /// The problems that block it.
    pub blockers: Vec<Blocker>,
    /// Remarks, in a sentence each, about annotations that do not do what their author expects.
    pub remarks: Vec<String>,
}

/// A profile, and why it is used.
#[derive(Debug, Serialize)]
pub struct ProfileOrigin {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its version; absent if the profile does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The profile that it extends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extends: Option<String>,
    /// The digest of its content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The origin of its content: this release, or somebody else.
    pub content: &'static str,
    /// The reason why it is used.
    pub why: String,
}

/// The existing documents.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Made {
    /// The revision that they were created for.
    pub revision: String,
    /// The version of the profile that they were created from.
    pub profile_version: String,
    /// The time when the bootstrap Secret was created. It can have been written since.
    pub at: Option<String>,
}

/// A problem that blocks a machine deployment.
#[derive(Debug, Serialize)]
pub struct Blocker {
    /// The machine-readable CamelCase reason.
    pub reason: String,
    /// The description.
    pub message: String,
    /// The person who can act on it.
    pub actor: Actor,
    /// How to fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// Explains the machine deployments with this name, or `namespace/name`, of the tenants in
/// question.
///
/// # Errors
///
/// If there is none, or if the clusters cannot be read.
pub async fn explain(
    question: &Question,
    name: &str,
    count: &Count,
) -> anyhow::Result<Vec<Explanation>> {
    let client = ClusterClient::management(&question.management)
        .await?
        .client;
    let registrations = registrations(&client, question).await?;
    // Only the oldest registration of a namespace is served.
    let registrations: Vec<_> = registrations
        .iter()
        .filter(|it| it.owner.is_none())
        .collect();
    count.begin(registrations.len());
    let explained = stream::iter(registrations).map(async |registration| {
        let tenant = Box::pin(Tenant::read(&client, question, registration)).await;
        let explained = match &tenant {
            Ok(tenant) => Ok(Box::pin(of_tenant((question, tenant), name)).await?),
            Err(error) => {
                let namespace = registration.secret.namespace().unwrap_or_default();
                Err(format!("{namespace}: {}", whole(error.as_ref())))
            }
        };
        count.advance();
        anyhow::Ok(explained)
    });
    let explained: Vec<_> = explained.buffered(AT_ONCE).try_collect().await?;
    let (mut found, mut unknown) = (Vec::new(), Vec::new());
    for of_tenant in explained {
        match of_tenant {
            Ok(explanations) => found.extend(explanations),
            Err(why) => unknown.push(why),
        }
    }
    match (found.is_empty(), unknown.as_slice()) {
        (true, []) => bail!("no tenant has a machine deployment {name}"),
        (true, some) => bail!("cannot look for {name}: {}", some.join("; ")),
        (false, _) => Ok(found),
    }
}

async fn of_tenant(
    (question, tenant): (&Question, &Tenant),
    name: &str,
) -> anyhow::Result<Vec<Explanation>> {
    let listed = Listed::read(tenant).await?;
    let is_meant = |it: &&Arc<MachineDeployment>| full_name(it) == name || it.name_any() == name;
    let defaults = &question.settings.tenant_defaults;
    let spec = &tenant.own.spec;
    let settings = tenant.settings.as_ref();
    let settings = settings.map(|it| it.in_use(Some(spec), defaults));
    let settings = settings.unwrap_or_default();
    let mut explained = Vec::new();
    for meant in listed.living().filter(is_meant) {
        let answer = tenant.answer(meant, &listed.index);
        let profile = origin(tenant, meant)?;
        explained.push(Explanation {
            blockers: blockers(Some(&tenant.own), &full_name(meant), &answer),
            made: made(tenant, meant),
            inputs: inputs(tenant, meant),
            remarks: remarks(meant).iter().map(Remark::sentence).collect(),
            settings: settings.clone(),
            profile,
            answer,
        });
    }
    Ok(explained)
}

fn origin(tenant: &Tenant, found: &MachineDeployment) -> anyhow::Result<ProfileOrigin> {
    let annotations = found.annotations();
    let named = annotations.get(PROFILE).filter(|name| !name.is_empty());
    let lacking = lacking(found, tenant.unnamed).ok().flatten();
    let default = lacking.and_then(|it| it.profile);
    let name = named.map_or(default, |name| Some(name.as_str()));
    let name = name.unwrap_or_default().to_owned();
    let place = annotations.get(PROFILE_NAMESPACE).map(String::as_str);
    let namespace = profile_namespace(&tenant.home, &tenant.policy, place);
    let why = match (named, place) {
        (None, _) => "the default of its operating system; no annotation names one".to_owned(),
        (Some(_), None) => format!("annotation {PROFILE} of the machine deployment"),
        (Some(_), Some(_)) => {
            format!("annotations {PROFILE} and {PROFILE_NAMESPACE} of the machine deployment")
        }
    };
    let profiles = &tenant.profiles;
    let there = profiles.get(&namespace, &name);
    let digest = there.as_ref().map(|it| it.content());
    let built_in = built_in_profiles()?;
    let ours = built_in.iter().find(|it| it.name == name);
    let content = match (&there, ours) {
        (None, _) if !(tenant.policy).allows_profiles_of(&tenant.home, &namespace) => {
            "not read: the tenant may not use it"
        }
        (None, _) if profiles.is_unreadable(&namespace, &name) => "it cannot be read",
        (None, _) if profiles.shortage(&namespace, &name).is_some() => "there is no room for it",
        (None, _) => "there is none",
        (Some(_), _) if profiles.is_pinned(&namespace, &name) => "pinned: adopted as found",
        (Some(_), Some(ours)) if digest.as_ref() == Some(&ours.content) => "this release's default",
        (Some(_), Some(_)) => "another than this release's default",
        (Some(_), None) => "your own",
    };
    Ok(ProfileOrigin {
        version: there.as_ref().map(|it| it.spec().version.clone()),
        extends: there.and_then(|it| it.spec().extends.clone()),
        name,
        namespace,
        digest,
        content,
        why,
    })
}

fn inputs(tenant: &Tenant, found: &MachineDeployment) -> Vec<Input> {
    let spec = &found.spec.template.spec;
    let here = "the machine deployment";
    let provider = ProviderConfig::decode(&spec.provider_spec.json()).ok();
    let provider = provider.as_ref();
    let text = |text: Option<&str>| text.map_or(Value::Null, |text| json!(text));
    let input = |name, value, from| Input { name, value, from };
    let chosen = tenant.settings.as_ref().ok();
    let chosen = chosen.and_then(|settings| settings.api_server_override.as_deref());
    vec![
        input("revision", text(revision(found)), here),
        input("kubelet", text(Some(&spec.versions.kubelet)), here),
        input(
            "operatingSystem",
            text(provider.map(|it| it.operating_system.as_str())),
            here,
        ),
        input(
            "cloudProvider",
            text(provider.map(|it| it.cloud_provider.as_str())),
            here,
        ),
        match chosen {
            Some(server) => input(
                "apiServer",
                masked(&json!(server)),
                "spec.apiServerOverride",
            ),
            None => input(
                "apiServer",
                json!(tenant.cluster_info.api_server),
                "the worker cluster: cluster-info, or the endpoints of Service kubernetes",
            ),
        },
        input(
            "registryCredentials",
            registries(tenant),
            "spec.registryCredentialsSecretRef",
        ),
    ]
}

fn revision(found: &MachineDeployment) -> Option<&str> {
    found.annotations().get(REVISION).map(String::as_str)
}

/// Returns the names of the registries.
fn registries(tenant: &Tenant) -> Value {
    json!(tenant.registry_credentials.keys().collect::<Vec<_>>())
}

fn made(tenant: &Tenant, found: &MachineDeployment) -> Option<Made> {
    let namespace = found.namespace().unwrap_or_default();
    let names = DerivedNames::new(&namespace, &found.name_any());
    let seen = tenant.secrets.get(&names.bootstrap)?;
    let said = |key| seen.annotation(key).unwrap_or_default().to_owned();
    let at = seen.metadata.creation_timestamp.as_ref();
    Some(Made {
        revision: said(MADE_FOR_REVISION),
        profile_version: said(MADE_FOR_PROFILE_VERSION),
        at: at.map(|time| time.0.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{reason::Reason, worker_cluster::WorkerCluster};
    use crate::commands::plan::Verdict;

    #[test]
    fn a_turn_that_has_not_come_blocks_who_waits_for_it() {
        let own = |next: Value| -> WorkerCluster {
            let time = "2026-01-01T00:00:00Z";
            serde_json::from_value(json!({
                "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
                "metadata": { "name": "berlin" },
                "spec": { "kubeconfigSecretRef": { "name": "berlin" } },
                "status": {
                    "conditions": [{
                        "type": "ProfilesInstalled", "status": "True", "reason": "AwaitingTurn",
                        "message": "wave 2 has not begun", "lastTransitionTime": time,
                    }],
                    "machineDeployments": [{
                        "name": "kube-system/workers", "state": "Served", "reason": "Current",
                        "since": time,
                        "profile": { "name": "osp-ubuntu", "version": "v1.0.0", "next": next },
                    }],
                },
            }))
            .unwrap()
        };
        let answer = Answer::new("tenant-berlin", None, Verdict::Unchanged);
        let waits = blockers(Some(&own(json!("v2.0.0"))), "kube-system/workers", &answer);
        let [waits] = waits.as_slice() else {
            panic!("{waits:?}")
        };
        assert_eq!(waits.reason, "AwaitingTurn");
        assert!(waits.message.contains("v2.0.0") && waits.message.contains("wave 2"));
        assert!(waits.fix.is_some());
        let current = blockers(Some(&own(Value::Null)), "kube-system/workers", &answer);
        assert!(current.is_empty(), "{current:?}");
    }

    #[test]
    fn without_an_entry_the_reason_of_the_answer_blocks() {
        let mut answer = Answer::new("tenant-berlin", None, Verdict::Waiting);
        answer.reason = Some(Reason::ProfileNotFound);
        let found = blockers(None, "kube-system/workers", &answer);
        let [found] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!(found.reason, "ProfileNotFound");
        assert_eq!(found.fix, Reason::ProfileNotFound.remediation());
        let unchanged = Answer::new("tenant-berlin", None, Verdict::Unchanged);
        assert!(blockers(None, "kube-system/workers", &unchanged).is_empty());
    }
}
