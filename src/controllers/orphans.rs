//! What was made for machine deployments that vanished while nobody watched.
//!
//! Nothing is deleted because a list did not name it: each machine deployment is asked for by a
//! live read, and only a NotFound for that very object, of a kind that is served, counts.

use kube::{Api, ResourceExt};

use super::{
    context::Context,
    machine_deployment::{error::Error, finalize::remove_made},
};
use crate::api::{
    machine_deployment::MachineDeployment,
    names::{DerivedNames, MADE_FOR},
};

/// Removes what was made for machine deployments that are gone.
pub async fn remove(context: &Context) -> Result<(), Error> {
    for name in context.configs.names() {
        let Some(entry) = context.configs.get(&name) else {
            continue;
        };
        let annotations = entry.metadata.annotations.unwrap_or_default();
        let Some((namespace, name)) = annotations.get(MADE_FOR).and_then(|it| it.split_once('/'))
        else {
            continue;
        };
        let exists = context.machine_deployments.find(|found| {
            found.name_any() == name && found.namespace().as_deref() == Some(namespace)
        });
        if exists.is_none() && is_gone(context, namespace, name).await? {
            tracing::info!(
                registration = %context.engagement.registration,
                namespace,
                name,
                "the machine deployment vanished; what was made for it is removed"
            );
            remove_made(context, &DerivedNames::new(namespace, name)).await?;
        }
    }
    Ok(())
}

async fn is_gone(context: &Context, namespace: &str, name: &str) -> Result<bool, Error> {
    let api: Api<MachineDeployment> = Api::namespaced(context.engagement.worker.clone(), namespace);
    match api.get_metadata(name).await {
        Ok(_) => Ok(false),
        // A kind that is not served answers NotFound, too, but names no object.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(status
            .details
            .as_ref()
            .is_some_and(|details| details.name == name)),
        Err(error) => Err(Error::call("ask for a machine deployment")(error)),
    }
}
