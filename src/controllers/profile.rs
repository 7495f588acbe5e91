//! Installs the default profiles in the tenant's namespace and keeps them there: missing ones
//! immediately, newer versions once the tenant has a rollout slot.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, ObjectMeta},
    core::DeserializeGuard,
};
use tokio::{sync::Notify, time::timeout};

use super::{
    adoption,
    context::Context,
    profile_store::content_digest,
    state::rollout_slots::{SlotRequest, SlotState},
};
use crate::api::{
    condition::ConditionType,
    names::{INSTALLED_CONTENT, PROFILE},
    profile::{OperatingSystemProfile, OperatingSystemProfileSpec},
    reason::Reason,
    worker_cluster::{DefaultProfileContent, DefaultProfiles, ProfileRollout, WorkerCluster},
};
use crate::client::{permits::Priority, retry_delay::RetryDelay, write};
use crate::fleet::{
    adoption::Predecessor,
    events::{self, Occurrence},
};
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

/// The result of a pass: the default profiles that are not simply up to date.
#[derive(Debug, Default)]
struct Kept {
    pace: ProfileRollout,
    is_disabled: bool,
    created: Vec<String>,
    edited: Vec<String>,
    newer: Vec<String>,
    older: Vec<String>,
    awaiting: Vec<String>,
    overwritten: Vec<String>,
}

impl Kept {
    /// Returns true if something waits for the tenant's slot.
    fn waits(&self) -> bool {
        !self.awaiting.is_empty() && self.pace == ProfileRollout::Waves
    }

    fn finding(&self, slot: &SlotState) -> ConditionState {
        let reason = match (slot, self.pace) {
            _ if self.is_disabled => Reason::Disabled,
            _ if self.awaiting.is_empty() => Reason::Installed,
            (_, ProfileRollout::Manual) => Reason::AwaitingApproval,
            (SlotState::Paused(_), _) => Reason::RolloutPaused,
            _ => Reason::AwaitingTurn,
        };
        let mut message = self.remarks();
        if let (SlotState::Paused(why), Reason::RolloutPaused) = (slot, reason) {
            message.push(why.clone());
        }
        ConditionState {
            message: message.join("; "),
            ..ConditionState::well(reason)
        }
    }

    /// Returns remarks for people, as parts of a sentence.
    fn remarks(&self) -> Vec<String> {
        [
            (&self.edited, "edited, and kept as found"),
            (&self.newer, "of a newer release, and kept"),
            (&self.older, "older than ours, and kept"),
            (&self.awaiting, "to be replaced by a newer one"),
        ]
        .into_iter()
        .filter(|(names, _)| !names.is_empty())
        .map(|(names, what)| format!("{what}: {}", names.join(", ")))
        .collect()
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
    for default in defaults.iter().filter(|it| settings.wants(&it.name)) {
        // A profile that cannot be installed does not delay the others.
        let installed = install_one(context, default, (&settings, slot), &mut kept).await;
        failure = failure.or(installed.err());
    }
    failure.map_or(Ok(kept), Err)
}

async fn install_one(
    context: &Context,
    default: &DefaultProfile,
    (settings, slot): (&DefaultProfileSettings, &SlotState),
    kept: &mut Kept,
) -> Result<(), kube::Error> {
    let namespace = &*context.engagement.home.namespace;
    let profiles = &context.profiles;
    if profiles.is_pinned(namespace, &default.name) {
        return Ok(());
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
        if create(context, default).await? {
            kept.created.push(default.name.clone());
        }
        return Ok(());
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
    Ok(())
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

/// Creates a default profile. Returns false if it exists already. The request has high priority,
/// because a machine deployment may wait for the profile.
async fn create(context: &Context, default: &DefaultProfile) -> Result<bool, kube::Error> {
    let form = form(context, default).await?;
    let api: Api<OperatingSystemProfile> = paid(context, Priority::High).await;
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
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
        created => created.map(|_| true),
    }
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

/// Emits Events about results that people may not expect: once for an edit that is kept, and each
/// time that content is overwritten.
async fn report_kept(context: &Context, kept: &Kept) {
    let (tenant_status, own) = (
        &context.engagement.tenant_status,
        context.engagement.worker_cluster.borrow().clone(),
    );
    let Some(own) = own else { return };
    let remarks = kept.remarks();
    let edited = remarks.first().filter(|_| !kept.edited.is_empty());
    if let Some(edited) = edited {
        let in_memory = tenant_status.read(|report| {
            let finding = report.findings.get(&ConditionType::ProfilesInstalled);
            finding.is_some_and(|finding| finding.message.contains(edited.as_str()))
        });
        let conditions = own.status.iter().flat_map(|status| &status.conditions);
        let in_status = conditions.into_iter().any(|it| it.message.contains(edited));
        if !in_memory && !in_status {
            let note = format!("{}; {edited}", extend_instead(&kept.edited));
            warn(context, &own, (Reason::DefaultProfileEdited, &note)).await;
        }
    }
    if !kept.overwritten.is_empty() {
        let profiles = kept.overwritten.join(", ");
        let how = extend_instead(&kept.overwritten);
        let note = format!("{how}; replaced by ours: {profiles}");
        warn(context, &own, (Reason::DefaultProfileReplaced, &note)).await;
    }
}

/// Says how to change a default profile so that its newer versions are still installed.
fn extend_instead(profiles: &[String]) -> String {
    let name = profiles.first().and_then(|it| it.split(' ').next());
    let name = name.unwrap_or_default();
    format!(
        "to change {name}, create a profile of another name with spec.extends: {name}, and name it \
         in the annotation {PROFILE}"
    )
}

async fn warn(context: &Context, own: &WorkerCluster, (reason, note): (Reason, &str)) {
    let occurrence = Occurrence {
        action: "InstallProfiles",
        reason,
        note,
    };
    let engagement = &context.engagement;
    let known = (&*engagement.tenant_status, &engagement.shared.clock);
    events::publish(&engagement.management, known, (own, occurrence)).await;
}
