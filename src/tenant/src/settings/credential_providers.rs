//! The programs that a kubelet asks for image credentials, by the rules by which it refuses to
//! start. What can be said of one value alone is in the definition of a WorkerCluster.

use std::collections::BTreeSet;

use osm_api::worker_cluster::{
    ImageCredentialProvider, WorkerClusterSpec, limits::TOKEN_ANNOTATIONS_MUST,
};

use super::SettingsError;

/// The maximum length of what stands before the slash.
const PREFIX_BYTES_MAX: usize = 253;

/// Returns the programs that a spec sets.
///
/// # Errors
///
/// Two have one name, one has no binary, or the annotations of a token contradict each other.
pub(super) fn checked(
    spec: &WorkerClusterSpec,
) -> Result<Option<Vec<ImageCredentialProvider>>, SettingsError> {
    let mut names = BTreeSet::new();
    for provider in spec.image_credential_providers.iter().flatten() {
        let name = &provider.name;
        let refused = |why: &str| {
            let why = format!("`{name}`: {why}");
            Err(SettingsError::ImageCredentialProviders(why))
        };
        if !names.insert(name) {
            return refused("another one has its name");
        }
        if provider.binaries.existing().is_empty() {
            return refused("it has no binary");
        }
        let Some(token) = &provider.token_attributes else {
            continue;
        };
        let required = &token.required_service_account_annotation_keys;
        let optional = &token.optional_service_account_annotation_keys;
        for keys in [required, optional] {
            let distinct: BTreeSet<_> = keys.iter().collect();
            if distinct.len() < keys.len() {
                return refused("a key of annotations stands there twice");
            }
            let prefix = |key: &String| key.find('/').unwrap_or_default();
            if keys.iter().any(|key| prefix(key) > PREFIX_BYTES_MAX) {
                return refused("the prefix of a key of annotations is too long");
            }
        }
        let is_both = required.iter().any(|key| optional.contains(key));
        if is_both || (!required.is_empty() && !token.require_service_account) {
            return refused(TOKEN_ANNOTATIONS_MUST);
        }
    }
    Ok(spec.image_credential_providers.clone())
}
