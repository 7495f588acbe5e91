//! Compares a document that is about to be replaced with the new one: what would the change take on
//! machines that have the old one?

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;

use super::{super::context::Context, error::Error};
use crate::api::names::{CLOUD_CONFIG_KEY, CLOUD_INIT_SETTINGS};
use crate::client::permits::Priority;
use crate::controllers::initial_sync;
use crate::plan::{
    behind::{behind, left_to_others, replaced},
    desired::{Desired, stored_digest},
    digest::DigestKey,
    observed::{Observed, Seen},
    validate::Deployment,
};
use crate::render::template::CompiledProfile;
use crate::rules::effect::{Effect, of_provisioning};
use crate::tenant::secret_text::SecretBytes;

/// Returns the desired state with how far machines are behind then.
///
/// # Errors
///
/// A read fails, or somebody else changes the document meanwhile. Without the right to read it, it
/// is not known what a change takes, and nothing waits for that.
pub async fn compare(
    context: &Context,
    desired: Desired,
    (deployment, observed): (&Deployment, &Observed),
    priority: Priority,
) -> Result<Desired, Error> {
    let effects = match replaced(&desired, observed).zip(desired.documents.as_ref()) {
        None => None,
        Some((stored, documents)) => match read(context, &deployment.digest_key, stored).await? {
            None => None,
            Some(old) => {
                let new = documents.provisioning.0.as_bytes().to_vec();
                let sides = (old, SecretBytes::new(new));
                effects(context, sides, &deployment.profile, priority).await
            }
        },
    };
    let effects = effects.map(|effects| left_to_others(deployment, effects));
    let behind = behind(&desired, observed, effects);
    Ok(Desired { behind, ..desired })
}

/// Reads the document that is about to be replaced; `None` without the right to.
async fn read(
    context: &Context,
    key: &DigestKey,
    stored: &Seen,
) -> Result<Option<SecretBytes>, Error> {
    let secrets: Api<Secret> =
        Api::namespaced(context.engagement.worker.client(), CLOUD_INIT_SETTINGS);
    let name = stored.metadata.name.as_deref().unwrap_or_default();
    let what = format!("read Secret {name}");
    let secret = match secrets.get(name).await {
        Err(kube::Error::Api(status)) if status.code == 403 => return Ok(None),
        found => found.map_err(Error::call(what.clone()))?,
    };
    if stored_digest(key, &secret) != stored.content {
        // The watch may not have shown it yet.
        let verified = initial_sync::verify_secret(context, name).await;
        verified.map_err(Error::call(what))?;
        return Err(Error::Conflict {
            what: format!("Secret {name}"),
        });
    }
    let document = secret.data.and_then(|mut it| it.remove(CLOUD_CONFIG_KEY));
    Ok(Some(SecretBytes::new(document.unwrap_or_default().0)))
}

/// Compares on a blocking thread, of which there is one for each permit.
async fn effects(
    context: &Context,
    (old, new): (SecretBytes, SecretBytes),
    profile: &Arc<CompiledProfile>,
    priority: Priority,
) -> Option<Vec<Effect>> {
    let tenant = context.engagement.tenant();
    let permits = &context.engagement.shared.permits;
    let _permit = permits.take(&tenant, priority).await;
    let profile = Arc::clone(profile);
    let compare = move || {
        let declared = &profile.spec().effects;
        of_provisioning((old.expose(), new.expose()), declared)
    };
    tokio::task::spawn_blocking(compare).await.ok()
}
