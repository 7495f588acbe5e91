//! Removes everything that was created for a machine deployment, then our finalizer.
//!
//! The process may crash after any call. Therefore, each deletion can be repeated, and the
//! finalizer is removed last.

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt, api::ObjectMeta, core::response::StatusDetails, runtime::reflector::ObjectRef,
};

use super::{credentials, error::Error};
use crate::api::{
    config::OperatingSystemConfig,
    machine_deployment::MachineDeployment,
    names::{CLOUD_INIT_SETTINGS, DerivedNames},
};
use crate::controllers::{context::Context, initial_sync, state::tokens};
use crate::fleet::removal::{self, Credentials};
use crate::plan::found::created;
use crate::tenant::mode::Right;

/// Removes everything that was created for a machine deployment, then our finalizer. Does nothing
/// if the name belongs to another object by now, or if that is unknown.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn finalize(
    context: &Context,
    machine_deployment: &MachineDeployment,
) -> Result<(), Error> {
    let namespace = machine_deployment.namespace().unwrap_or_default();
    let name = machine_deployment.name_any();
    let names = DerivedNames::new(&namespace, &name);
    let made = Made::read(context, names).await?;
    let reference = ObjectRef::from_obj(machine_deployment);
    match holder(context, &namespace, &name).await? {
        Holder::Nobody => {}
        Holder::Somebody {
            uid,
            is_deleted: true,
        } if uid == machine_deployment.uid() => {}
        // The list lagged behind, and the name belongs to another object by now. Or the cluster was
        // restored from a backup of before the deletion. Or nothing is known.
        Holder::Somebody { .. } | Holder::Unknown => {
            context.backoff.reset(&reference);
            return Ok(());
        }
    }
    if is_owner(context, machine_deployment) {
        made.remove(context).await?;
    }
    removal::release(&context.engagement.worker.client(), machine_deployment)
        .await
        .map_err(Error::call(
            "remove the finalizer of the machine deployment",
        ))?;
    context.backoff.reset(&reference);
    Ok(())
}

/// Returns true if no older machine deployment shares a derived name with this one. Only then do
/// the objects with those names belong to it.
fn is_owner(context: &Context, machine_deployment: &MachineDeployment) -> bool {
    let uid = machine_deployment.uid().unwrap_or_default();
    let own = (created(machine_deployment), uid);
    let conflicts = context.index.conflicts(machine_deployment);
    let mut ages = conflicts.into_iter().map(|it| (it.created, it.uid));
    ages.all(|other| other > own)
}

/// The machine deployment that has a name now.
pub enum Holder {
    /// None: the objects that were created for the name may be deleted.
    Nobody,
    /// A machine deployment.
    Somebody {
        /// Its uid.
        uid: Option<String>,
        /// True if it is being deleted.
        is_deleted: bool,
    },
    /// Unknown, because the cluster does not serve machine deployments.
    Unknown,
}

/// Returns the machine deployment that has a name now, by a live read.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn holder(context: &Context, namespace: &str, name: &str) -> Result<Holder, Error> {
    let api: Api<MachineDeployment> =
        Api::namespaced(context.engagement.worker.client(), namespace);
    match api.get_metadata(name).await {
        Ok(found) => Ok(Holder::Somebody {
            uid: found.uid(),
            is_deleted: found.metadata.deletion_timestamp.is_some(),
        }),
        // For a kind that is not served, the API server returns NotFound, too, but names no object.
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            let names_it = |details: &StatusDetails| details.name == name;
            let is_gone = status.details.as_ref().is_some_and(names_it);
            Ok(if is_gone {
                Holder::Nobody
            } else {
                Holder::Unknown
            })
        }
        Err(error) => Err(Error::call("ask for a machine deployment")(error)),
    }
}

/// The objects with the derived names of a machine deployment, as they were read.
///
/// First read them, then check that the machine deployment is gone, then remove exactly these.
/// Objects that were created since, for another machine deployment of the same name, have other
/// uids and are kept.
pub struct Made {
    names: DerivedNames,
    secrets: Vec<ObjectMeta>,
    tokens: Vec<ObjectMeta>,
    credentials: Option<Credentials>,
    config: Option<ObjectMeta>,
}

impl Made {
    /// Reads the objects with these names.
    ///
    /// # Errors
    ///
    /// A call to the API server fails.
    pub async fn read(context: &Context, names: DerivedNames) -> Result<Self, Error> {
        let mut secrets = Vec::new();
        for name in names.secrets() {
            // Most clouds have no edge script. A Secret whose creation was not confirmed may exist,
            // too.
            if context.secrets.get(name).is_none() {
                verify_secret(context, name).await?;
            }
            secrets.extend(context.secrets.get(name).map(|seen| seen.metadata));
        }
        if context.configs.get(&names.config).is_none() {
            verify_config(context, &names.config).await?;
        }
        let config = context.configs.get(&names.config);
        let mode = context.engagement.mode;
        let tokens = if mode.has(Right::DeleteTokens) {
            removal::tokens(&context.engagement.worker.client(), &names)
                .await
                .map_err(Error::call("list bootstrap tokens"))?
        } else {
            Vec::new()
        };
        let credentials = if mode.has(Right::MakeNodeCredentials) {
            credentials::read(context, &names).await?
        } else {
            None
        };
        Ok(Self {
            secrets,
            tokens,
            credentials,
            config: config.map(|seen| seen.metadata),
            names,
        })
    }

    /// Removes the objects that were read.
    ///
    /// # Errors
    ///
    /// A call to the API server fails.
    pub async fn remove(self, context: &Context) -> Result<(), Error> {
        let worker = context.engagement.worker.client();
        let secrets: Api<Secret> = Api::namespaced(worker.clone(), CLOUD_INIT_SETTINGS);
        for seen in &self.secrets {
            let name = seen.name.as_deref().unwrap_or_default();
            let deleted = delete(&secrets, seen).await;
            if matches!(deleted, Err(Error::Conflict { .. })) {
                // Another Secret has its name now. It is deleted at the next attempt.
                verify_secret(context, name).await?;
            }
            deleted?;
            context.secrets.deleted(name);
        }
        let tokens = tokens::api(&worker);
        for token in &self.tokens {
            delete(&tokens, token).await?;
        }
        context.tokens.remove(&self.names.key);
        context.node_credentials.forget(&self.names.key);
        if let Some(credentials) = self.credentials {
            credentials
                .remove(&worker)
                .await
                .map_err(Error::call(format!("delete {}", self.names.fetcher)))?;
            context.secrets.deleted(&self.names.fetcher_token);
        }
        match self.config {
            Some(config) => remove_config(context, &config).await,
            None => Ok(()),
        }
    }
}

async fn verify_secret(context: &Context, name: &str) -> Result<(), Error> {
    initial_sync::verify_secret(context, name)
        .await
        .map_err(Error::call(format!("read Secret {name}")))
}

async fn verify_config(context: &Context, name: &str) -> Result<(), Error> {
    initial_sync::verify_config(context, name)
        .await
        .map_err(Error::call("read the OperatingSystemConfig"))
}

async fn remove_config(context: &Context, seen: &ObjectMeta) -> Result<(), Error> {
    let name = seen.name.as_deref().unwrap_or_default();
    let configs: Api<OperatingSystemConfig> = context.engagement.home.api();
    let deleted = delete(&configs, seen).await;
    if matches!(deleted, Err(Error::Conflict { .. })) {
        verify_config(context, name).await?;
    }
    deleted?;
    context.configs.deleted(name);
    Ok(())
}

/// Deletes the object that was read. Succeeds if it is already gone.
async fn delete<K>(api: &Api<K>, seen: &ObjectMeta) -> Result<(), Error>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let name = seen.name.as_deref().unwrap_or_default();
    match api.delete(name, &removal::only(seen)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => deleted
            .map(drop)
            .map_err(Error::call(format!("delete {name}"))),
    }
}
