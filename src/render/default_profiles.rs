//! The profiles that we ship, as they are committed under `manifests/profiles`. They are text
//! here: whoever installs or compiles one parses it.

/// A profile that we ship.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultProfile {
    /// The object's name.
    pub name: &'static str,
    /// The whole object in YAML, without a namespace.
    pub yaml: &'static str,
}

/// Every profile that we ship, in the order of their names.
const DEFAULT_PROFILES: &[DefaultProfile] = &[DefaultProfile {
    name: "osp-ubuntu",
    yaml: include_str!("../../manifests/profiles/osp-ubuntu.yaml"),
}];

/// Every profile that we ship, in the order of their names.
pub fn default_profiles() -> &'static [DefaultProfile] {
    DEFAULT_PROFILES
}
