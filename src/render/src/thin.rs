//! Thin profiles: a default profile without its two halves, which names its content by the version.
//! A tenant's namespace has thin ones, so that the content is stored once for all tenants.

use osm_api::profile::{OperatingSystemProfileSpec, ProfileConfig};

/// Separates a default profile's name from its version in `spec.extends`. No object can have such a
/// name, so a release that does not know thin profiles finds no base, and refuses to render them.
const SEPARATOR: char = '@';

/// Returns what a thin profile extends: the name of the content of a default profile.
pub fn content_name(name: &str, version: &str) -> String {
    format!("{name}{SEPARATOR}{version}")
}

/// Returns the default profile and its version, if this is the name of a content and not of a
/// profile.
pub fn parse_content_name(name: &str) -> Option<(&str, &str)> {
    name.split_once(SEPARATOR)
}

/// Returns the name of the object in the manager's namespace that has a content.
pub fn content_object(content_name: &str) -> String {
    content_name.replace([SEPARATOR, '+'], "-")
}

/// Returns the thin form of a default profile. It has everything that lists of profiles show.
pub fn thin(name: &str, whole: &OperatingSystemProfileSpec) -> OperatingSystemProfileSpec {
    OperatingSystemProfileSpec {
        extends: Some(content_name(name, &whole.version)),
        os_name: whole.os_name.clone(),
        os_version: whole.os_version.clone(),
        version: whole.version.clone(),
        template_language: whole.template_language,
        supported_cloud_providers: whole.supported_cloud_providers.clone(),
        bootstrap_config: ProfileConfig::default(),
        provisioning_config: ProfileConfig::default(),
        provisioning_utility: whole.provisioning_utility,
        ignition_version: whole.ignition_version,
    }
}

/// Returns true if a profile has the form of a thin one, with a content that may be unknown here.
pub fn is_thin(spec: &OperatingSystemProfileSpec) -> bool {
    let empty = ProfileConfig::default();
    spec.extends
        .as_deref()
        .and_then(parse_content_name)
        .is_some()
        && spec.bootstrap_config == empty
        && spec.provisioning_config == empty
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::default_profiles::{default_profile, default_profiles};

    #[test]
    fn each_default_profile_has_a_thin_form_of_less_than_a_kibibyte() {
        for default in default_profiles() {
            let whole = default_profile(default.name).unwrap().spec;
            let thin = thin(default.name, &whole);
            assert!(is_thin(&thin) && !is_thin(&whole), "{}", default.name);
            let content = thin.extends.as_deref().and_then(parse_content_name);
            assert_eq!(content, Some((default.name, whole.version.as_str())));
            let bytes = serde_json::to_vec(&thin).unwrap().len();
            assert!(bytes < 1 << 10, "{}: {bytes}", default.name);
        }
    }
}
