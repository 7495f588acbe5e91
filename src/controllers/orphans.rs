//! Removes what was created for machine deployments that were deleted while no watch was running.
//!
//! Absence from a list is not sufficient: each machine deployment is read live, and only a NotFound
//! for this very object, of a kind that is served, counts.

use std::collections::BTreeSet;

use kube::api::ObjectMeta;

use super::{
    context::Context,
    machine_deployment::{
        error::Error,
        finalize::{Holder, Made, holder},
    },
    state::tokens,
};
use crate::api::names::{DerivedNames, MADE_FOR, is_path_segment};
use crate::controllers::queue::triggers::Affected;
use crate::tenant::mode::Right;

/// Removes what was created for machine deployments that are gone.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn remove(context: &Context) -> Result<(), Error> {
    context.forget_gone();
    let configs = context.engagement.mode.has_configs_to_itself();
    let configs = configs.then_some(&*context.configs);
    let mut made_for: BTreeSet<Owner> = configs
        .into_iter()
        .chain([&context.secrets])
        .flat_map(|cache| cache.map_each(|entry| owner(entry.metadata)))
        .collect();
    made_for.extend(owners_of_tokens(context).await?);
    for (namespace, name) in &made_for {
        let names = DerivedNames::new(namespace, name);
        // Objects with the names of an existing machine deployment belong to it.
        if !context.index.overlapping(&names).is_empty() {
            continue;
        }
        let made = Made::read(context, names.clone()).await?;
        if let Holder::Nobody = holder(context, namespace, name).await? {
            tracing::info!(
                registration = %context.engagement.registration,
                namespace,
                name,
                "the machine deployment vanished; what was made for it is removed"
            );
            let removed = made.remove(context).await;
            // A machine deployment with one of these names may have been created since the read.
            context.triggers.enqueue(Affected::Overlapping(names));
            removed?;
        }
    }
    Ok(())
}

/// The namespace and the name of a machine deployment.
type Owner = (String, String);

/// Returns the machine deployment that an object was created for.
fn owner(metadata: ObjectMeta) -> Option<Owner> {
    let owner = metadata.annotations?.remove(MADE_FOR)?;
    let (namespace, name) = owner.split_once('/')?;
    let is_one = is_path_segment(namespace) && is_path_segment(name);
    is_one.then(|| (namespace.to_owned(), name.to_owned()))
}

/// Returns the owners of the tokens that belong to no known machine deployment. A token is created
/// before everything else, and may be the only object that exists. A token without an owner is
/// forgotten, and expires.
async fn owners_of_tokens(context: &Context) -> Result<Vec<Owner>, Error> {
    if !context.engagement.mode.has(Right::DeleteTokens) {
        return Ok(Vec::new());
    }
    let api = tokens::api(&context.engagement.worker.client());
    let mut owners = Vec::new();
    let unused = context
        .tokens
        .unused(|key| !context.index.of_token(key).is_empty());
    for (key, name) in unused {
        let found = api
            .get_metadata_opt(&name)
            .await
            .map_err(Error::call(format!("read {name}")))?;
        match found.and_then(|found| owner(found.metadata)) {
            Some(owner) => owners.push(owner),
            None => context.tokens.remove(&key),
        }
    }
    Ok(owners)
}
