//! Takes over what the previous manager left: its profiles, before any default is installed in
//! their place, and its Secrets, about which it reports.

use std::collections::BTreeSet;

use kube::{
    Api, ResourceExt,
    api::{ListParams, ObjectMeta},
    core::DeserializeGuard,
};

use super::{context::Context, profile_store};
use crate::api::{
    condition::ConditionType,
    machine_deployment::MachineDeployment,
    names::{FINALIZER, KUBE_SYSTEM, PINNED, PROFILE, PROFILE_NAMESPACE, is_path_segment},
    profile::OperatingSystemProfile,
    reason::Reason,
    worker_cluster::Adoption,
};
use crate::client::{pages::Pages, write};
use crate::fleet::adoption::Predecessor;
use crate::plan::found::profile_namespace;
use crate::tenant::{policy::ProfileQuota, report::ConditionState};

/// The page size of machine deployments' metadata.
const PAGE: u32 = 100;
/// A message names at most this many objects.
const NAMED_MAX: usize = 10;

/// Returns true if a profile is pinned, as profiles are that were adopted with their cluster. No
/// default replaces it.
pub fn is_pinned(profile: &impl ResourceExt) -> bool {
    profile.annotations().contains_key(PINNED)
}

/// Copies the profiles that machine deployments name into the tenant's namespace, and pins them. If
/// the previous manager had them there already, only pins them. This happens once, so an operator
/// can unpin one.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn take_profiles(context: &Context) -> Result<(), kube::Error> {
    let predecessor = context.engagement.predecessor;
    let wanted = {
        let own = context.engagement.worker_cluster.borrow();
        own.as_ref()
            .map(|own| own.spec.adoption)
            .unwrap_or_default()
    };
    let is_over = wanted == Adoption::Nothing || is_adopted(context);
    if predecessor == Predecessor::None || is_over {
        return Ok(());
    }
    let mut room = context.engagement.policy.profiles;
    let mut notes = Vec::new();
    for name in named_profiles(context).await? {
        let note = match predecessor {
            Predecessor::InManagement => pin(context, &name).await?,
            _ => copy(context, &name, &mut room).await?,
        };
        notes.push(format!("{name} {note}"));
    }
    let finding = ConditionState {
        message: bounded(notes),
        ..ConditionState::well(Reason::ProfilesCopied)
    };
    let tenant_status = &context.engagement.tenant_status;
    tenant_status.set_condition(ConditionType::Adopted, finding);
    Ok(())
}

/// Returns true if the profiles were adopted before, by this process or according to the status.
fn is_adopted(context: &Context) -> bool {
    let own = context.engagement.worker_cluster.borrow();
    let tenant_status = &context.engagement.tenant_status;
    tenant_status.held(ConditionType::Adopted, own.as_deref())
}

/// Returns the names of the profiles that machine deployments use in the tenant's own namespace,
/// which is where the previous manager looked for them.
async fn named_profiles(context: &Context) -> Result<BTreeSet<String>, kube::Error> {
    let policy = &context.engagement.policy;
    let home = &*context.engagement.home.namespace;
    let all: Api<MachineDeployment> = Api::all(context.engagement.worker.client());
    let mut pages = Pages::of(ListParams::default(), PAGE);
    let mut names = BTreeSet::new();
    while let Some(page) = pages.next_metadata(&all).await? {
        for found in page {
            let annotations = found.annotations();
            let namespace = annotations.get(PROFILE_NAMESPACE).map(String::as_str);
            let is_own = profile_namespace(home, policy, namespace) == home;
            let name = annotations
                .get(PROFILE)
                .filter(|name| is_path_segment(name));
            names.extend(name.filter(|_| is_own).cloned());
        }
    }
    Ok(names)
}

/// Copies a profile, if the tenant's quota has room for it besides those that were copied before.
/// Default profiles never count.
async fn copy(
    context: &Context,
    name: &str,
    room: &mut ProfileQuota,
) -> Result<&'static str, kube::Error> {
    let there: Api<DeserializeGuard<OperatingSystemProfile>> =
        Api::namespaced(context.engagement.worker.client(), KUBE_SYSTEM);
    let Some(theirs) = there.get_opt(name).await? else {
        return Ok("is missing there");
    };
    let Ok(theirs) = theirs.0 else {
        return Ok("cannot be read there, and is not copied");
    };
    let here: Api<DeserializeGuard<OperatingSystemProfile>> = context.engagement.home.api();
    if let Some(own) = here.get_opt(name).await? {
        let digest = context.profiles.digest(&theirs.spec);
        let is_same = |own: &OperatingSystemProfile| context.profiles.digest(&own.spec) == digest;
        let is_same = own.0.as_ref().is_ok_and(is_same);
        return Ok(match (is_same, is_pinned(&own)) {
            (true, true) => "copied",
            (true, false) => "was here already",
            (false, _) => "is another here, and stays",
        });
    }
    let is_default = context.defaults.iter().any(|it| it.name == name);
    if !is_default && !room.take(profile_store::size(&theirs.spec)) {
        return Ok("has no room in the quota of profiles, and is not copied");
    }
    let mut profile = OperatingSystemProfile::new(name, theirs.spec);
    profile.metadata = ObjectMeta {
        annotations: Some([(PINNED.to_owned(), "adopted".to_owned())].into()),
        ..profile.metadata
    };
    let here: Api<OperatingSystemProfile> = context.engagement.home.api();
    write::create(&here, &profile).await?;
    Ok("copied")
}

async fn pin(context: &Context, name: &str) -> Result<&'static str, kube::Error> {
    let guarded: Api<DeserializeGuard<OperatingSystemProfile>> = context.engagement.home.api();
    let here: Api<OperatingSystemProfile> = context.engagement.home.api();
    let Some(own) = guarded.get_opt(name).await? else {
        return Ok("is missing");
    };
    let Ok(mut own) = own.0 else {
        return Ok("cannot be read");
    };
    if !is_pinned(&own) {
        let annotations = own.annotations_mut();
        annotations.insert(PINNED.to_owned(), "adopted".to_owned());
        own.managed_fields_mut().clear();
        write::replace(&here, name, &own).await?;
    }
    Ok("pinned")
}

/// Reports whether the Secrets were kept, once every machine deployment with our finalizer has been
/// reconciled.
pub fn report(context: &Context) {
    if context.engagement.predecessor == Predecessor::None {
        return;
    }
    let held = context.machine_deployments.state_filter(|found| {
        let mut finalizers = found.finalizers().iter();
        finalizers.any(|name| name == FINALIZER)
    });
    let held: Vec<String> = held
        .iter()
        .map(|found| {
            format!(
                "{}/{}",
                found.namespace().unwrap_or_default(),
                found.name_any()
            )
        })
        .collect();
    let tenant_status = &context.engagement.tenant_status;
    let differ = tenant_status.read(|report| {
        // `held` is incomplete until the first list is complete.
        if report.existing.is_none() || !held.iter().all(|name| report.outcomes.contains_key(name))
        {
            return None;
        }
        let outcomes = report.outcomes.iter();
        let kept = outcomes.filter(|(_, outcome)| outcome.reason == Reason::KeptAsFound);
        Some(kept.map(|(name, _)| name.clone()).collect::<Vec<_>>())
    });
    let finding = match differ {
        None => return,
        Some(none) if none.is_empty() => ConditionState::well(Reason::SecretsKept),
        Some(some) => ConditionState {
            message: format!("kept with bytes that we do not render: {}", bounded(some)),
            ..ConditionState::well(Reason::SecretsDiffer)
        },
    };
    tenant_status.set_condition(ConditionType::Adopted, finding);
}

/// Returns the first few names, and the number of the others.
fn bounded(names: Vec<String>) -> String {
    let more = names.len().saturating_sub(NAMED_MAX);
    let mut text = names
        .into_iter()
        .take(NAMED_MAX)
        .collect::<Vec<_>>()
        .join(", ");
    if more > 0 {
        text = format!("{text} and {more} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_a_few() {
        let names = |count: usize| (0..count).map(|it| it.to_string()).collect();
        assert_eq!(bounded(names(2)), "0, 1");
        assert!(bounded(names(12)).ends_with("9 and 2 more"));
    }
}
