//! Installs the default profiles in the tenant's namespace, and keeps them there.

use kube::{
    Api, ResourceExt,
    api::{ObjectMeta, PostParams},
};
use tokio::sync::Notify;

use super::{adoption, context::Context};
use crate::api::{
    profile::{OperatingSystemProfile, OperatingSystemProfileSpec},
    worker_cluster::DefaultProfiles,
};
use crate::fleet::retry_delay::RetryDelay;
use crate::telemetry::logs::chain;
use crate::tenant::report::{ConditionType, Finding};

/// A default profile, as it is built into this program.
#[derive(Clone, Debug)]
pub struct DefaultProfile {
    /// The profile's name.
    pub name: String,
    /// The profile's spec.
    pub spec: OperatingSystemProfileSpec,
}

/// Keeps the default profiles as the tenant's policy says, for ever. `changed` rings when a
/// profile of the namespace or the policy may have changed.
pub async fn keep(context: &Context, defaults: &[DefaultProfile], changed: &Notify) {
    let mut delay = RetryDelay::default();
    let board = &context.engagement.board;
    loop {
        match install(context, defaults).await {
            Ok(reason) => {
                board.found(ConditionType::ProfilesInstalled, Finding::well(reason));
                delay = RetryDelay::default();
                changed.notified().await;
            }
            Err(error) => {
                let message = format!("cannot install a default profile: {}", chain(&error));
                let finding = Finding::wrong("InstallFailed", message);
                board.found(ConditionType::ProfilesInstalled, finding);
                tokio::time::sleep(delay.next().unwrap_or_default()).await;
            }
        }
    }
}

async fn install(
    context: &Context,
    defaults: &[DefaultProfile],
) -> Result<&'static str, kube::Error> {
    let policy = {
        let own = context.engagement.worker_cluster.borrow();
        own.as_ref()
            .map_or(DefaultProfiles::default(), |own| own.spec.default_profiles)
    };
    if policy == DefaultProfiles::Disabled {
        return Ok("Disabled");
    }
    for default in defaults {
        install_one(context, default, policy).await?;
    }
    Ok("Installed")
}

async fn install_one(
    context: &Context,
    default: &DefaultProfile,
    policy: DefaultProfiles,
) -> Result<(), kube::Error> {
    let tenant = context.engagement.tenant();
    let api: Api<OperatingSystemProfile> =
        Api::namespaced(context.engagement.management.clone(), tenant.namespace());
    let Some(installed) = context.profiles.get(tenant.namespace(), &default.name) else {
        let profile = OperatingSystemProfile {
            metadata: ObjectMeta {
                name: Some(default.name.clone()),
                ..ObjectMeta::default()
            },
            spec: default.spec.clone(),
        };
        return match api.create(&PostParams::default(), &profile).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            created => created.map(drop),
        };
    };
    if installed.spec().version == default.spec.version || policy == DefaultProfiles::Keep {
        return Ok(());
    }
    let mut profile = api.get(&default.name).await?;
    if profile.spec.version != default.spec.version && !adoption::is_pinned(&profile) {
        profile.spec = default.spec.clone();
        profile.managed_fields_mut().clear();
        api.replace(&default.name, &PostParams::default(), &profile)
            .await?;
    }
    Ok(())
}
