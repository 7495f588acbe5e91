//! Compares a document that is about to be replaced with the new one: what would the change take on
//! machines that have the old one?

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::super::context::Context;
use crate::api::names::{CLOUD_CONFIG_KEY, CLOUD_INIT_SETTINGS};
use crate::client::permits::Priority;
use crate::plan::{
    behind::{behind, replaced},
    desired::{Desired, stored_digest},
    digest::DigestKey,
    observed::{Observed, Seen},
    validate::Deployment,
};
use crate::rules::effect::{Effect, of_provisioning};
use crate::telemetry::chain::chain;
use crate::tenant::secret_text::SecretBytes;

/// Returns the desired state with how far machines are behind then. Nothing waits for what cannot
/// be read: it is not known.
pub async fn compare(
    context: &Context,
    desired: Desired,
    (deployment, observed): (&Deployment, &Observed),
    priority: Priority,
) -> Desired {
    let effects = effects(context, &desired, (deployment, observed), priority).await;
    let behind = behind(&desired, observed, effects);
    Desired { behind, ..desired }
}

/// Returns the effects of a changed document on machines that have the existing one.
async fn effects(
    context: &Context,
    desired: &Desired,
    (deployment, observed): (&Deployment, &Observed),
    priority: Priority,
) -> Option<Vec<Effect>> {
    let key = &deployment.digest_key;
    let stored = replaced(desired, observed)?;
    let new = desired.documents.as_ref()?.provisioning.0.as_bytes();
    let new = SecretBytes::new(new.to_vec());
    let mut old = read(context, key, stored).await;
    if old.is_err() {
        // What is not known now is not known until the next revision.
        old = read(context, key, stored).await;
    }
    let not_compared = |why: &String| {
        tracing::info!(
            registration = %context.engagement.registration,
            machine_deployment = desired.provenance.made_for,
            why,
            "the existing document is not compared with the new one"
        );
    };
    let old = old.inspect_err(not_compared).ok()?;
    // There is a blocking thread for each permit.
    let tenant = context.engagement.tenant();
    let permits = &context.engagement.shared.permits;
    let _permit = permits.take(&tenant, priority).await;
    let profile = Arc::clone(&deployment.profile);
    let compare = move || {
        let declared = &profile.spec().effects;
        of_provisioning((old.expose(), new.expose()), declared)
    };
    tokio::task::spawn_blocking(compare).await.ok()
}

/// Reads the document that is about to be replaced, if it is still the one that was observed.
async fn read(context: &Context, key: &DigestKey, stored: &Seen) -> Result<SecretBytes, String> {
    let secrets: Api<Secret> =
        Api::namespaced(context.engagement.worker.client(), CLOUD_INIT_SETTINGS);
    let name = stored.metadata.name.as_deref().unwrap_or_default();
    let secret = secrets.get(name).await;
    let secret = secret.map_err(|error| chain(&error).to_string())?;
    if stored_digest(key, &secret) != stored.content {
        return Err("it has changed".to_owned());
    }
    let document = secret.data.and_then(|mut it| it.remove(CLOUD_CONFIG_KEY));
    Ok(SecretBytes::new(document.unwrap_or_default().0))
}
