//! Removes all that was made for a machine deployment, then our finalizer.
//!
//! Every call may be the last before a crash: each deletion is one that may be repeated, and the
//! finalizer goes last.

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Preconditions},
    runtime::reflector::ObjectRef,
};

use super::{credentials, dereference::rivals, error::Error};
use crate::api::{
    config::OperatingSystemConfig,
    machine_deployment::MachineDeployment,
    names::{CLOUD_INIT_SETTINGS, DerivedNames, TOKEN_LABEL},
};
use crate::controllers::{context::Context, inventory, tokens};
use crate::fleet::removal;
use crate::plan::validate::created;
use crate::tenant::mode::Right;

/// Removes all that was made for a machine deployment, then our finalizer.
pub async fn finalize(
    context: &Context,
    machine_deployment: &MachineDeployment,
) -> Result<(), Error> {
    let namespace = machine_deployment.namespace().unwrap_or_default();
    let names = DerivedNames::new(&namespace, &machine_deployment.name_any());
    if owns(context, machine_deployment, &names) {
        remove_made(context, &names).await?;
    }
    removal::release(&context.engagement.worker.client(), machine_deployment)
        .await
        .map_err(Error::call(
            "remove the finalizer of the machine deployment",
        ))?;
    context
        .backoff
        .reset(&ObjectRef::from_obj(machine_deployment));
    Ok(())
}

/// What was made under the names belongs to the oldest of those that share them.
fn owns(context: &Context, machine_deployment: &MachineDeployment, names: &DerivedNames) -> bool {
    let own = (
        created(machine_deployment),
        machine_deployment.uid().unwrap_or_default(),
    );
    rivals(context, machine_deployment, names)
        .into_iter()
        .all(|rival| (rival.created, rival.uid) > own)
}

/// Removes all that was made under the names.
pub async fn remove_made(context: &Context, names: &DerivedNames) -> Result<(), Error> {
    let secrets: Api<Secret> =
        Api::namespaced(context.engagement.worker.client(), CLOUD_INIT_SETTINGS);
    for name in names.secrets() {
        // Most clouds have no script. One whose creation was not answered may be there, too.
        if context.secrets.get(name).is_none() {
            inventory::verify_secret(context, name)
                .await
                .map_err(Error::call(format!("read Secret {name}")))?;
        }
        let Some(seen) = context.secrets.get(name) else {
            continue;
        };
        let deleted = delete(&secrets, name, seen.metadata.uid).await;
        if matches!(deleted, Err(Error::Conflict { .. })) {
            // Somebody put another in its place: that one is deleted the next time.
            inventory::verify_secret(context, name)
                .await
                .map_err(Error::call(format!("read Secret {name}")))?;
        }
        deleted?;
        context.secrets.deleted(name);
    }
    let mode = context.rules.mode;
    if mode.has(Right::DeleteTokens) {
        remove_tokens(context, names).await?;
    }
    context.tokens.remove(&names.key);
    if mode.has(Right::MakeNodeCredentials) {
        credentials::remove(context, names).await?;
    }
    remove_config(context, &names.config).await
}

async fn remove_tokens(context: &Context, names: &DerivedNames) -> Result<(), Error> {
    let tokens = tokens::api(&context.engagement.worker.client());
    let ours = ListParams::default().labels(&format!("{TOKEN_LABEL}={}", names.key));
    let listed = tokens
        .list_metadata(&ours)
        .await
        .map_err(Error::call("list bootstrap tokens"))?;
    for token in listed.items {
        delete(&tokens, &token.name_any(), token.uid()).await?;
    }
    Ok(())
}

async fn remove_config(context: &Context, name: &str) -> Result<(), Error> {
    let verify = async || {
        inventory::verify_config(context, name)
            .await
            .map_err(Error::call("read the OperatingSystemConfig"))
    };
    if context.configs.get(name).is_none() {
        verify().await?;
    }
    let Some(seen) = context.configs.get(name) else {
        return Ok(());
    };
    let tenant = context.engagement.tenant();
    let configs: Api<OperatingSystemConfig> =
        Api::namespaced(context.engagement.management.client(), tenant.namespace());
    let deleted = delete(&configs, name, seen.metadata.uid).await;
    if matches!(deleted, Err(Error::Conflict { .. })) {
        verify().await?;
    }
    deleted?;
    context.configs.deleted(name);
    Ok(())
}

/// What is gone already needs no deletion. Of what was seen that very object is deleted, so that a
/// call that comes late does not hit another of its name.
async fn delete<K>(api: &Api<K>, name: &str, uid: Option<String>) -> Result<(), Error>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let preconditions = uid.map(|uid| Preconditions {
        uid: Some(uid),
        resource_version: None,
    });
    let params = DeleteParams {
        preconditions,
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => deleted
            .map(drop)
            .map_err(Error::call(format!("delete {name}"))),
    }
}
