//! What was made for machine deployments that vanished while nobody watched.
//!
//! Nothing is deleted because a list did not name it: each machine deployment is asked for by a
//! live read, and only a NotFound for that very object, of a kind that is served, counts.

use std::collections::BTreeSet;

use kube::Api;

use super::{
    context::Context,
    machine_deployment::{error::Error, finalize::remove_made},
    seen::SeenObjects,
    triggers::Look,
};
use crate::api::{
    machine_deployment::MachineDeployment,
    names::{DerivedNames, MADE_FOR},
};

/// Removes what was made for machine deployments that are gone.
pub async fn remove(context: &Context) -> Result<(), Error> {
    let configs = context.rules.mode.has_configs_to_itself();
    let configs = configs.then_some(&*context.configs);
    let made_for: BTreeSet<String> = configs
        .into_iter()
        .chain([&context.secrets])
        .flat_map(SeenObjects::entries)
        .filter_map(|entry| entry.metadata.annotations?.remove(MADE_FOR))
        .collect();
    for owner in made_for {
        let Some((namespace, name)) = owner.split_once('/') else {
            continue;
        };
        let names = DerivedNames::new(namespace, name);
        // What has the names of one that exists is that one's.
        let has_heir = !context.index.overlapping(&names).is_empty();
        if !has_heir && is_gone(context, namespace, name).await? {
            tracing::info!(
                registration = %context.engagement.registration,
                namespace,
                name,
                "the machine deployment vanished; what was made for it is removed"
            );
            let removed = remove_made(context, &names).await;
            // One of these names may have come since it was asked for.
            context.triggers.pull(Look::Overlapping(names));
            removed?;
        }
    }
    Ok(())
}

async fn is_gone(context: &Context, namespace: &str, name: &str) -> Result<bool, Error> {
    let api: Api<MachineDeployment> =
        Api::namespaced(context.engagement.worker.client(), namespace);
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
