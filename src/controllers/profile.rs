//! Installs the default profiles in the tenant's namespace and keeps them there: missing ones
//! immediately, newer versions once the tenant has a rollout slot.

mod kept;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, ObjectMeta},
    core::DeserializeGuard,
};
use tokio::{sync::Notify, time::timeout};

use self::kept::{Kept, report_kept};
use super::{
    adoption,
    context::Context,
    profile_store::content_digest,
    state::rollout_slots::{SlotRequest, SlotState},
};
use crate::api::{
    condition::ConditionType,
    names::INSTALLED_CONTENT,
    profile::{OperatingSystemProfile, OperatingSystemProfileSpec},
    reason::Reason,
    worker_cluster::{DefaultProfileContent, DefaultProfiles, ProfileRollout},
};
use crate::client::{permits::Priority, retry_delay::RetryDelay, write};
use crate::fleet::adoption::Predecessor;
use crate::plan::default_profile::{
    DefaultProfile, DefaultProfileSettings, Installed, Verdict, evaluate,
};
use crate::render::thin::{is_thin, thin};
use crate::telemetry::chain::chain;
use crate::tenant::report::ConditionState;

/// The longest time that the watch may take to show a profile after its creation.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);

/// Keeps the default profiles as the tenant's policy requires, until cancelled. `changed` is
/// notified when a profile in the namespace or the policy may have changed.
pub async fn keep(context: &Context, defaults: &[DefaultProfile], changed: &Notify) {
    let mut delay = RetryDelay::default();
    let slots = &context.rollout_slots;
    let mut request = None;
    loop {
        let slot = request
            .as_ref()
            .map_or(SlotState::Awaited, SlotRequest::state);
        let tenant_status = &context.engagement.tenant_status;
        match Box::pin(install(context, defaults, &slot)).await {
            Ok(kept) => {
                delay = RetryDelay::default();
                Box::pin(report_kept(context, &kept)).await;
                tenant_status.set_condition(ConditionType::ProfilesInstalled, kept.finding(&slot));
                // A tenant with nothing to install requests no slot.
                let waits = kept.waits();
                match (&request, waits) {
                    (None, true) => {
                        request = Some(slots.request(&context.engagement.tenant()));
                        continue;
                    }
                    (Some(_), false) => request = None,
                    _ => {}
                }
                tokio::select! {
                    () = enqueue_dependents(context, &kept.created, changed) => {}
                    () = slot_changes(request.as_mut(), &slot) => {}
                }
            }
            Err(error) => {
                let message = format!("cannot install a default profile: {}", chain(&error));
                let finding = ConditionState::retried(Reason::InstallFailed, message);
                tenant_status.set_condition(ConditionType::ProfilesInstalled, finding);
                tokio::time::sleep(delay.next().unwrap_or_default()).await;
            }
        }
    }
}

/// Waits for a change, or until the watch has shown the created profiles. An earlier pass would
/// create them again.
async fn enqueue_dependents(context: &Context, created: &[String], changed: &Notify) {
    if created.is_empty() {
        return changed.notified().await;
    }
    let home = &context.engagement.home.namespace;
    let is_shown = |name: &String| context.profiles.get(home, name).is_some();
    let all_shown = async {
        while !created.iter().all(is_shown) {
            changed.notified().await;
        }
    };
    // A profile that was deleted immediately is never shown. The next pass creates it again.
    drop(timeout(SHOWN_WITHIN, all_shown).await);
}

async fn slot_changes(request: Option<&mut SlotRequest>, before: &SlotState) {
    match request {
        Some(request) => request.changed(before).await,
        None => std::future::pending().await,
    }
}

async fn install(
    context: &Context,
    defaults: &[DefaultProfile],
    slot: &SlotState,
) -> Result<Kept, kube::Error> {
    let settings = context.default_profile_settings();
    let mut kept = Kept {
        pace: settings.pace,
        is_disabled: settings.policy == DefaultProfiles::Disabled,
        ..Kept::default()
    };
    let mut failure = None;
    for default in defaults {
        // Also those that are not installed any more.
        let expanded = expand(context, &settings, &default.name).await;
        failure = failure.or(expanded.err());
    }
    if kept.is_disabled {
        return failure.map_or(Ok(kept), Err);
    }
    let wanted = defaults.iter().filter(|it| settings.wants(&it.name));
    let mut left: VecDeque<_> = wanted.collect();
    while let Some(default) = next(context, &mut left) {
        match install_one(context, default, (&settings, slot), &mut kept).await {
            Ok(Done::Yes) => {}
            Ok(Done::Later) => left.push_back(default),
            // A profile that cannot be installed does not delay the others.
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(kept), Err)
}

/// Takes the next default profile to install: one that a machine deployment waits for, if any.
fn next<'a>(
    context: &Context,
    left: &mut VecDeque<&'a DefaultProfile>,
) -> Option<&'a DefaultProfile> {
    let is_wanted = |it: &&DefaultProfile| context.wanted_profiles.contains(&it.name);
    left.remove(left.iter().position(is_wanted).unwrap_or_default())
}

/// Whether a default profile was dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Yes,
    /// A machine deployment waits for another one.
    Later,
}

async fn install_one(
    context: &Context,
    default: &DefaultProfile,
    (settings, slot): (&DefaultProfileSettings, &SlotState),
    kept: &mut Kept,
) -> Result<Done, kube::Error> {
    let namespace = &*context.engagement.home.namespace;
    let profiles = &context.profiles;
    if profiles.is_pinned(namespace, &default.name) {
        return Ok(Done::Yes);
    }
    let installed_content = profiles.installed_content(namespace, &default.name);
    let found = match profiles.get(namespace, &default.name) {
        Some(found) => Some((found.spec().version.clone(), found.content())),
        None if profiles.is_unreadable(namespace, &default.name) => {
            read_unreadable(context, default, installed_content.as_deref()).await?
        }
        None => None,
    };
    let Some((version, digest)) = found else {
        return create(context, default, kept).await;
    };
    let installed = Installed {
        version: &version,
        content: &digest,
        installed_content: installed_content.as_deref(),
    };
    let versions = || {
        let (old, new) = (&version, &default.spec.version);
        format!("{} ({old} -> {new})", default.name)
    };
    let may_replace = match kept.pace {
        ProfileRollout::Immediate => true,
        ProfileRollout::Waves => *slot == SlotState::Granted,
        ProfileRollout::Manual => false,
    };
    match evaluate(
        settings.policy,
        installed,
        (&default.spec.version, &default.content),
    ) {
        // Without it, a release with another version could not serve the tenant.
        Verdict::Current if profiles.is_thin(namespace, &default.name) => {
            if let Some(contents) = &context.contents {
                contents
                    .keep(default, &context.engagement.home.clients)
                    .await?;
            }
        }
        Verdict::Current => {}
        Verdict::KeepEdited => kept.edited.push(default.name.clone()),
        Verdict::KeepNewer => kept.newer.push(versions()),
        Verdict::KeepOlder => kept.older.push(versions()),
        Verdict::Upgrade if may_replace => replace(context, default, installed.content).await?,
        Verdict::Restore => {
            replace(context, default, installed.content).await?;
            kept.overwritten.push(versions());
        }
        Verdict::Overwrite if may_replace => {
            replace(context, default, installed.content).await?;
            kept.overwritten.push(versions());
        }
        Verdict::Upgrade | Verdict::Overwrite => kept.awaiting.push(versions()),
    }
    Ok(Done::Yes)
}

/// Returns the version of a profile that cannot be decoded, and the content to evaluate it with. If
/// another release installed it, that is the content which that release recorded. Otherwise, it is
/// empty, so that the profile counts as edited. Returns `None` if the profile is gone.
async fn read_unreadable(
    context: &Context,
    default: &DefaultProfile,
    installed_content: Option<&str>,
) -> Result<Option<(String, String)>, kube::Error> {
    let home = &context.engagement.home;
    let client = home.clients.client_for(Priority::Low);
    let kind = ApiResource::erase::<OperatingSystemProfile>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client, &home.namespace, &kind);
    let found = api.get_opt(&default.name).await?;
    Ok(found.map(|found| {
        let version = found.data.pointer("/spec/version");
        let version = version.and_then(|it| it.as_str()).unwrap_or_default();
        let digest = installed_content.filter(|digest| *digest != default.content);
        (version.to_owned(), digest.unwrap_or_default().to_owned())
    }))
}

/// Waits for the budget of one request, and returns an API that has it. Build the object
/// afterwards: a profile and its JSON take 120 KiB, which a whole fleet would otherwise hold while
/// it waits.
async fn paid<K>(context: &Context, priority: Priority) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let home = &context.engagement.home;
    Api::namespaced(home.clients.paid(priority).await, &home.namespace)
}

/// Returns default profiles as the CRDs of KubeOne and KKP store them. They drop fields that they
/// do not know, which would look like an edit. The version implies that the language is Jinja.
pub fn as_older_definitions_store(defaults: &[DefaultProfile]) -> Arc<[DefaultProfile]> {
    let stored = |default: &DefaultProfile| {
        let spec = OperatingSystemProfileSpec {
            template_language: None,
            ..default.spec.clone()
        };
        DefaultProfile {
            name: default.name.clone(),
            content: content_digest(&spec),
            spec,
        }
    };
    defaults.iter().map(stored).collect()
}

fn mark(spec: &OperatingSystemProfileSpec) -> (String, String) {
    (INSTALLED_CONTENT.to_owned(), content_digest(spec))
}

/// Returns what a default profile is written as: thin, if the tenant's settings permit that and its
/// content is kept for all tenants. It is built when it is sent.
async fn form<'a>(
    context: &'a Context,
    default: &'a DefaultProfile,
) -> Result<impl FnOnce() -> OperatingSystemProfileSpec + 'a, kube::Error> {
    let may_be_thin = context.default_profile_settings().content == DefaultProfileContent::Thin
        && context.engagement.predecessor == Predecessor::None;
    let kept = match &context.contents {
        Some(contents) if may_be_thin => {
            contents
                .keep(default, &context.engagement.home.clients)
                .await?
        }
        _ => None,
    };
    Ok(move || match kept {
        Some(name) => thin(name.to_owned(), &default.spec),
        None => default.spec.clone(),
    })
}

/// Waits as [`paid`] does for the creation of a default profile, which has high priority only if a
/// machine deployment waits for the profile. Returns `None` if one waits for another profile
/// meanwhile.
async fn paid_in_turn(
    context: &Context,
    default: &DefaultProfile,
) -> Option<Api<OperatingSystemProfile>> {
    let wanted = &context.wanted_profiles;
    if wanted.contains(&default.name) {
        return Some(paid(context, Priority::High).await);
    }
    tokio::select! {
        biased;
        api = paid(context, Priority::Low) => Some(api),
        () = wanted.added() => None,
    }
}

/// Creates a default profile, unless it exists already.
async fn create(
    context: &Context,
    default: &DefaultProfile,
    kept: &mut Kept,
) -> Result<Done, kube::Error> {
    let form = form(context, default).await?;
    let Some(api) = paid_in_turn(context, default).await else {
        return Ok(Done::Later);
    };
    let spec = form();
    let profile = OperatingSystemProfile {
        metadata: ObjectMeta {
            name: Some(default.name.clone()),
            annotations: Some(BTreeMap::from([mark(&spec)])),
            ..ObjectMeta::default()
        },
        spec,
    };
    match write::create(&api, &profile).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        created => {
            created?;
            kept.created.push(default.name.clone());
        }
    }
    Ok(Done::Yes)
}

/// Replaces the content that was evaluated, or content that cannot be decoded, with that of the
/// default profile. Other content is evaluated when the watch shows it.
async fn replace(
    context: &Context,
    default: &DefaultProfile,
    evaluated: &str,
) -> Result<(), kube::Error> {
    let form = form(context, default).await?;
    let guarded: Api<DeserializeGuard<OperatingSystemProfile>> = paid(context, Priority::Low).await;
    let found = guarded.get(&default.name).await?;
    let is_evaluated = found
        .0
        .as_ref()
        .map_or(true, |it| context.profiles.digest(&it.spec) == evaluated);
    if !is_evaluated || adoption::is_pinned(&found) {
        return Ok(());
    }
    let metadata = found.meta().clone();
    drop(found);
    write_spec(context, metadata, form).await
}

/// Replaces a thin profile with its content, if the tenant wants whole ones.
async fn expand(
    context: &Context,
    settings: &DefaultProfileSettings,
    name: &str,
) -> Result<(), kube::Error> {
    let home = &context.engagement.home.namespace;
    let profiles = &context.profiles;
    if settings.content == DefaultProfileContent::Thin || !profiles.is_thin(home, name) {
        return Ok(());
    }
    let Some(whole) = profiles.get(home, name) else {
        return Ok(());
    };
    let api: Api<OperatingSystemProfile> = paid(context, Priority::Low).await;
    let found = api.get(name).await?;
    if !is_thin(&found.spec) || profiles.digest(&found.spec) != whole.content() {
        return Ok(());
    }
    write_spec(context, found.metadata, || whole.spec().clone()).await
}

/// Writes the spec of a profile that exists. The requests have low priority, because a whole fleet
/// sends them after an upgrade.
async fn write_spec(
    context: &Context,
    metadata: ObjectMeta,
    spec: impl FnOnce() -> OperatingSystemProfileSpec,
) -> Result<(), kube::Error> {
    let api: Api<OperatingSystemProfile> = paid(context, Priority::Low).await;
    let spec = spec();
    let mark = mark(&spec);
    let mut profile = OperatingSystemProfile { metadata, spec };
    profile.annotations_mut().extend([mark]);
    profile.managed_fields_mut().clear();
    let name = profile.name_any();
    write::replace(&api, &name, &profile).await.map(drop)
}
