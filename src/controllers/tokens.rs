//! The bootstrap tokens of one tenant, kept in memory between their renewals.
//!
//! Tokens are in `kube-system` and are not watched. They are listed when the cluster is engaged,
//! and as often as the cluster info is read. A list of their metadata shows which were deleted or
//! changed, and only the changed ones are read.

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Resource,
    api::{ListParams, ObjectMeta},
    core::DeserializeGuard,
};

use super::{
    context::Context,
    state::tokens::{api, key, read, secret_name},
};
use crate::api::names::{KUBE_SYSTEM, TOKEN_LABEL};
use crate::client::pages::{Pages, Weight};
use crate::controllers::queue::triggers::Affected;
use crate::fleet::{prerequisites::PrerequisiteError, removal};
use crate::tenant::mode::Right;

/// The page size of tokens. Each has about 600 bytes.
const PAGE: u32 = 500;
/// Lists the tokens of all machine deployments. If one has two, the token that is valid for longer
/// is kept, and the other is deleted if the mode allows it.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn list(context: &Context) -> Result<(), kube::Error> {
    let worker = context.engagement.worker.client();
    let guarded: Api<DeserializeGuard<Secret>> = Api::namespaced(worker.clone(), KUBE_SYSTEM);
    let api = api(&worker);
    let mut pages = Pages::of(ListParams::default().labels(TOKEN_LABEL), PAGE);
    let mut weight = Weight::at_most(context.engagement.policy.tokens_mib_max());
    while let Some(page) = pages.next(&guarded).await? {
        weight.add_page(&page)?;
        for secret in page.objects {
            keep_newest(context, &api, &secret).await?;
        }
    }
    Ok(())
}

async fn keep_newest(
    context: &Context,
    api: &Api<Secret>,
    secret: &Secret,
) -> Result<(), kube::Error> {
    let tokens = &context.tokens;
    // A Secret that cannot be read as a token is left alone.
    let (Some(key), Some(found)) = (key(secret), read(secret)) else {
        return Ok(());
    };
    let older = match tokens.get(key) {
        None if tokens.is_full() => return Ok(()),
        None => {
            tokens.set(key, found);
            return Ok(());
        }
        Some(known) if known.uid == found.uid => return Ok(()),
        Some(known) if known.token.expires >= found.token.expires => found,
        Some(known) => {
            tokens.set(key, found);
            known
        }
    };
    if !context.engagement.mode.has(Right::DeleteTokens) {
        return Ok(());
    }
    let metadata = ObjectMeta {
        name: Some(secret_name(&older.token)),
        uid: Some(older.uid),
        ..ObjectMeta::default()
    };
    removal::delete(api, &metadata).await
}

/// Lists the metadata of all tokens again. A token that was deleted or broken is replaced by
/// another, and one that was changed is used as it is now. If the list is older than a token, the
/// cluster was restored from a backup.
///
/// # Errors
///
/// If a call fails or is forbidden.
pub async fn check(context: &Context) -> Result<(), PrerequisiteError> {
    list_again(context).await.map_err(|source| {
        let kind = Secret::kind(&()).into_owned();
        PrerequisiteError::of(source, (kind, format!("{KUBE_SYSTEM}/bootstrap-token-*")))
    })
}

async fn list_again(context: &Context) -> Result<(), kube::Error> {
    let tokens = &context.tokens;
    // Before the list, so that it does not miss a token that is created meanwhile.
    let known = tokens.all();
    if known.is_empty() {
        return Ok(());
    }
    let api = api(&context.engagement.worker.client());
    let uids: HashSet<&str> = known.iter().map(|(_, token)| &*token.uid).collect();
    let mut listed = HashMap::new();
    let mut pages = Pages::of(ListParams::default().labels(TOKEN_LABEL), PAGE);
    let mut weight = Weight::at_most(context.engagement.policy.tokens_mib_max());
    while let Some(page) = pages.next_metadata(&api).await? {
        weight.add(&page)?;
        for found in page.into_iter().map(|found| found.metadata) {
            let uid = uids.get(found.uid.as_deref().unwrap_or_default());
            listed.extend(uid.map(|uid| (*uid, found.resource_version)));
        }
    }
    let number = |version: &str| version.parse::<u128>().ok();
    let listed_at = pages.version().and_then(number);
    for (key, token) in &known {
        if listed_at.is_some_and(|at| number(&token.resource_version) > Some(at)) {
            context.was_restored();
            return Ok(());
        }
        let found = match listed.get(&*token.uid) {
            Some(version) if version.as_ref() == Some(&token.resource_version) => continue,
            Some(_) => api.get_opt(&secret_name(&token.token)).await?,
            None => None,
        };
        tokens.replace(key, &token.uid, found.as_ref().and_then(read));
        context.triggers.enqueue(Affected::Token(key.clone()));
    }
    Ok(())
}
