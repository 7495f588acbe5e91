//! The profiles that a tenant's machine deployments would use: the installed ones, or those that
//! are assumed in their place.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Client, ResourceExt, api::ListParams};

use super::{super::cluster_client::list_own, Question, Supposed};
use crate::api::{
    names::INSTALLED_CONTENT,
    profile::{OperatingSystemProfile, OperatingSystemProfileSpec},
    worker_cluster::{DefaultProfiles, Home, WorkerCluster},
};
use crate::app::built_in_profiles;
use crate::client::{
    pages::{self, Listed},
    watch::{Scope, covers},
};
use crate::controllers::{
    adoption,
    default_contents::DefaultContents,
    profile,
    profile_store::{ProfileStore, Quotas},
};
use crate::plan::default_profile::{
    DefaultProfile, DefaultProfileSettings, Installed, Verdict, evaluate,
};
use crate::rules::profile::check_update;
use crate::tenant::{
    policy::{ProfileReach, TenantPolicy},
    settings::TenantSettings,
};

/// Returns the profiles that the tenant may use, after the assumptions, and the names of those that
/// are supposed and do not exist. `home` is the namespace of its own, in the cluster of the client.
pub(super) async fn profiles(
    question: &Question,
    (policy, own): (&TenantPolicy, &WorkerCluster),
    (client, home): (&Client, &str),
) -> anyhow::Result<(ProfileStore, Vec<String>)> {
    let mut new = Vec::new();
    let defaults = built_in_profiles()?;
    let quotas = || {
        let policies = Arc::clone(&question.settings.policies);
        Quotas::new(policies, &defaults, Arc::default())
    };
    // What many tenants have is compiled once.
    let shared = question.shared.get_or_init(|| {
        let shared = ProfileStore::new(0, quotas());
        shared.hold_all(&defaults);
        shared
    });
    let store = shared.beside(0, quotas());
    store.resize(home, policy.profiles);
    let is_in_management = own.spec.home == Home::Management;
    if is_in_management {
        store.hold_all(&defaults);
    }
    let scope = match policy.profile_reach {
        ProfileReach::Everywhere => Scope::All,
        ProfileReach::Listed => {
            let shared = policy.profile_namespaces.iter().cloned();
            Scope::Namespaces(shared.chain([home.to_owned()]).collect())
        }
    };
    for (limit, api) in scope.apis(client) {
        let found: Listed<OperatingSystemProfile> = list_own(&api, ListParams::default())
            .await
            .with_context(|| {
                limit
                    .as_ref()
                    .map_or("all namespaces".to_owned(), |it| format!("namespace {it}"))
            })?;
        for metadata in &found.unreadable {
            store.put_unreadable(metadata);
        }
        let mut specs = found.objects.iter().map(|it| &it.spec);
        if is_in_management && specs.any(|it| store.lacks_content(it)) {
            for (name, content) in question.contents(client).await? {
                store.hold(name.clone(), content.clone());
            }
        }
        let is_at_home = |it: &OperatingSystemProfile| it.namespace().as_deref() == Some(home);
        let (mut own_profiles, mut others): (Vec<_>, Vec<_>) =
            found.objects.into_iter().partition(is_at_home);
        if is_in_management {
            question.applied.replace(&mut others)?;
        }
        if covers(limit.as_ref(), home) {
            new = suppose(&mut own_profiles, question, (own, home), &store)?;
        }
        for profile in own_profiles.into_iter().chain(others) {
            store.put(profile);
        }
    }
    Ok((store, new))
}

impl Question {
    /// Returns the contents of default profiles that are in the manager's namespace.
    async fn contents(
        &self,
        client: &Client,
    ) -> anyhow::Result<&[(String, OperatingSystemProfileSpec)]> {
        let read = || async {
            let place = (client.clone(), self.manager.namespace.as_str());
            match DefaultContents::new(place, &[]).list().await {
                // Profiles that name one are then refused, and the others are not.
                Err(error) if pages::is_forbidden(&error) => Ok(Vec::new()),
                listed => listed.context("cannot list the contents of default profiles"),
            }
        };
        Ok(self.contents.get_or_try_init(read).await?)
    }
}

/// Replaces the tenant's profiles with those that are assumed. Returns the names of those that do
/// not exist.
fn suppose(
    found: &mut Vec<OperatingSystemProfile>,
    question: &Question,
    (own, home): (&WorkerCluster, &str),
    store: &ProfileStore,
) -> anyhow::Result<Vec<String>> {
    let (mut supposed, mut new) = (Vec::new(), Vec::new());
    // The manager installs what is missing in a cluster that it takes over.
    let is_taken_over = own.metadata.uid.is_none();
    if is_taken_over || question.defaults == Supposed::Installed {
        let settings = &question.settings.tenant_defaults;
        let mut ours = built_in_profiles()?.to_vec();
        if own.spec.home == Home::Worker {
            ours = profile::as_older_definitions_store(&ours).to_vec();
        }
        ours.retain(|it| {
            let there = found.iter().find(|found| found.name_any() == it.name);
            takes_its_place((settings, own), it, there, store)
        });
        supposed.extend(ours.into_iter().map(|it| (it.name, it.spec)));
    }
    let given = question.profiles.iter();
    supposed.extend(given.map(|(name, spec)| (name.clone(), spec.clone())));
    let mut applied = BTreeSet::new();
    if own.spec.home == Home::Management {
        let profiles = question.applied.of(home);
        applied.extend(profiles.iter().map(|(name, _)| name.clone()));
        supposed.extend(profiles);
    }
    for (name, spec) in supposed {
        if let Some(there) = found.iter_mut().find(|found| found.name_any() == name) {
            if applied.contains(&name) {
                check_update(&there.spec, &spec)
                    .with_context(|| format!("OperatingSystemProfile {home}/{name}"))?;
            }
            there.spec = spec;
            continue;
        }
        let mut profile = OperatingSystemProfile::new(&name, spec);
        profile.metadata.namespace = Some(home.to_owned());
        profile.metadata.creation_timestamp = Some(Time(Timestamp::now()));
        found.push(profile);
        new.push(name);
    }
    Ok(new)
}

/// Returns true if a default profile would be installed, if necessary once the tenant has a rollout
/// slot.
fn takes_its_place(
    (defaults, own): (&TenantSettings, &WorkerCluster),
    ours: &DefaultProfile,
    there: Option<&OperatingSystemProfile>,
    store: &ProfileStore,
) -> bool {
    let settings = DefaultProfileSettings::new(defaults, Some(own));
    if settings.policy == DefaultProfiles::Disabled || !settings.wants(&ours.name) {
        return false;
    }
    let Some(there) = there else {
        return true;
    };
    let installed_content = there.annotations().get(INSTALLED_CONTENT);
    let installed_content = installed_content.map(|it| store.installed_digest(it));
    let installed = Installed {
        version: &there.spec.version,
        content: &store.digest(&there.spec),
        installed_content: installed_content.as_deref(),
    };
    let verdict = evaluate(
        settings.policy,
        installed,
        (&ours.spec.version, &ours.content),
    );
    let replaces = matches!(
        verdict,
        Verdict::Upgrade | Verdict::Overwrite | Verdict::Restore
    );
    replaces && !adoption::is_pinned(there)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::names::PINNED;
    use crate::render::thin::{content_name, thin};

    fn own(spec: &serde_json::Value) -> WorkerCluster {
        let mut own = json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1",
            "kind": "WorkerCluster",
            "metadata": {"name": "berlin"},
            "spec": {"kubeconfigSecretRef": {"name": "berlin"}},
        });
        json_patch::merge(&mut own["spec"], spec);
        serde_json::from_value(own).expect("a WorkerCluster")
    }

    #[test]
    fn a_default_profile_is_supposed_where_a_reconcile_would_install_it() {
        let ours = built_in_profiles().expect("they are parsed");
        let ours = ours.first().expect("there are some");
        let mut older = OperatingSystemProfile::new(&ours.name, ours.spec.clone());
        "v0.0.1".clone_into(&mut older.spec.version);
        let mut pinned = older.clone();
        pinned
            .annotations_mut()
            .insert(PINNED.to_owned(), "adopted".to_owned());
        let mut edited = OperatingSystemProfile::new(&ours.name, ours.spec.clone());
        "edited".clone_into(&mut edited.spec.os_version);
        let name = content_name(&ours.name, &ours.spec);
        let thin = OperatingSystemProfile::new(&ours.name, thin(name, &ours.spec));
        let store = ProfileStore::new(0, Quotas::default());
        store.hold_all(&built_in_profiles().expect("they are parsed"));
        let nothing = json!({});
        for (spec, there, expected) in [
            (&nothing, Some(&thin), false),
            (&nothing, None, true),
            (&nothing, Some(&older), true),
            (&nothing, Some(&pinned), false),
            (&nothing, Some(&edited), false),
            (&json!({"defaultProfiles": "Keep"}), Some(&older), false),
            (&json!({"defaultProfiles": "Disabled"}), None, false),
            (&json!({"defaultProfileNames": ["another"]}), None, false),
        ] {
            let own = own(spec);
            let settings = (&TenantSettings::default(), &own);
            let found = takes_its_place(settings, ours, there, &store);
            assert_eq!(found, expected, "{spec} {:?}", there.map(|it| &it.metadata));
        }
    }
}
