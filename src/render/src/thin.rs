//! Thin profiles: a default profile without its two halves, which names its content. A tenant's
//! namespace has thin ones, so that the content is stored once for all tenants.

use osm_api::profile::{OperatingSystemProfileSpec, ProfileConfig};
use sha2::{Digest as _, Sha256};

/// Separates a default profile's name from its version in `spec.extends`. No object can have such a
/// name, so a release that does not know thin profiles finds no base, and refuses to render them.
const SEPARATOR: char = '@';
/// Separates the version from the digest.
const DIGEST_SEPARATOR: char = '/';
/// As many characters of the digest tell the contents of one version apart that several builds may
/// have.
const DIGEST_CHARACTERS: usize = 12;

/// Returns the name of a default profile's content, which a thin profile extends:
/// `NAME@VERSION/DIGEST`.
pub fn content_name(name: &str, whole: &OperatingSystemProfileSpec) -> String {
    let digest: String = digest(whole).chars().take(DIGEST_CHARACTERS).collect();
    let version = &whole.version;
    format!("{name}{SEPARATOR}{version}{DIGEST_SEPARATOR}{digest}")
}

/// Returns a digest of the content alone. Two equal profiles have the same digest, wherever they
/// are stored.
pub(super) fn digest(spec: &OperatingSystemProfileSpec) -> String {
    // A profile consists of strings, numbers and JSON, so serializing it cannot fail.
    let mut json = serde_json::to_value(spec).unwrap_or_default();
    json.sort_all_objects();
    hex::encode(Sha256::digest(json.to_string()))
}

/// Returns the default profile and its version, if this is the name of a content and not of a
/// profile.
pub fn parse_content_name(name: &str) -> Option<(&str, &str)> {
    let (name, version) = name.split_once(SEPARATOR)?;
    let version = version.split_once(DIGEST_SEPARATOR);
    Some((name, version.map_or("", |(version, _)| version)))
}

/// Returns the name of the object in the manager's namespace that has a content.
pub fn content_object(content_name: &str) -> String {
    content_name.replace([SEPARATOR, DIGEST_SEPARATOR, '+'], "-")
}

/// Returns the thin form of a default profile. It has everything that lists of profiles show.
pub fn thin(
    content_name: String,
    whole: &OperatingSystemProfileSpec,
) -> OperatingSystemProfileSpec {
    OperatingSystemProfileSpec {
        extends: Some(content_name),
        os_name: whole.os_name.clone(),
        os_version: whole.os_version.clone(),
        version: whole.version.clone(),
        template_language: whole.template_language,
        supported_cloud_providers: whole.supported_cloud_providers.clone(),
        bootstrap_config: ProfileConfig::default(),
        provisioning_config: ProfileConfig::default(),
        provisioning_utility: whole.provisioning_utility,
        ignition_version: whole.ignition_version,
        effects: Vec::new(),
    }
}

/// Returns true if a profile names a content, whatever else it has.
pub fn names_content(spec: &OperatingSystemProfileSpec) -> bool {
    let extends = spec.extends.as_deref();
    extends.and_then(parse_content_name).is_some()
}

/// Returns true if a profile has the form of a thin one, with a content that may be unknown here.
pub fn is_thin(spec: &OperatingSystemProfileSpec) -> bool {
    let empty = ProfileConfig::default();
    names_content(spec) && spec.bootstrap_config == empty && spec.provisioning_config == empty
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::default_profiles::{default_profile, default_profiles};

    #[test]
    fn each_default_profile_has_a_thin_form_of_less_than_a_kibibyte() {
        for default in default_profiles() {
            let whole = default_profile(default.name).unwrap().spec;
            let thin = thin(content_name(default.name, &whole), &whole);
            assert!(is_thin(&thin) && !is_thin(&whole), "{}", default.name);
            let content = thin.extends.as_deref().and_then(parse_content_name);
            assert_eq!(content, Some((default.name, whole.version.as_str())));
            let bytes = serde_json::to_vec(&thin).unwrap().len();
            assert!(bytes < 1 << 10, "{}: {bytes}", default.name);
        }
    }
}
