//! The profiles that we ship, as they are committed under `manifests/profiles`. They are kept as
//! text, and parsed by the callers that install or compile them.

use std::cmp::Ordering;

use super::{
    thin::{content_name, parse_content_name},
    version::Version,
};
use osm_api::profile::OperatingSystemProfile;

/// A profile that we ship.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultProfile {
    /// The object's name.
    pub name: &'static str,
    /// The whole object in YAML, without a namespace.
    pub yaml: &'static str,
}

/// Includes the file of the profile with this name.
macro_rules! profile {
    ($name:literal) => {
        DefaultProfile {
            name: $name,
            yaml: include_str!(concat!("../../../manifests/profiles/", $name, ".yaml")),
        }
    };
}

/// Every profile that we ship, in the order of their names.
const DEFAULT_PROFILES: &[DefaultProfile] = &[
    profile!("osp-amzn2"),
    profile!("osp-amzn2023"),
    profile!("osp-centos-stream"),
    profile!("osp-debian"),
    profile!("osp-flatcar"),
    profile!("osp-flatcar-cloud-init"),
    profile!("osp-rhel"),
    profile!("osp-rockylinux"),
    profile!("osp-ubuntu"),
];

/// Returns every profile that we ship, in the order of their names.
pub fn default_profiles() -> &'static [DefaultProfile] {
    DEFAULT_PROFILES
}

/// Parses the default profile of this name, or the one whose content has this name. Returns `None`
/// if there is no such profile, or it has another content.
pub fn default_profile(name: &str) -> Option<OperatingSystemProfile> {
    let of_content = parse_content_name(name).map(|(name, _)| name);
    let default = DEFAULT_PROFILES
        .iter()
        .find(|profile| profile.name == of_content.unwrap_or(name))?;
    let profile: OperatingSystemProfile = serde_saphyr::from_str(default.yaml).ok()?;
    let is_meant = of_content.is_none_or(|it| content_name(it, &profile.spec) == name);
    is_meant.then_some(profile)
}

/// One line per shipped profile and version: name, version, digest of the file, digest of the spec.
const DIGESTS: &str = include_str!("../../../manifests/profiles/digests.txt");

/// Returns true if this release or an earlier one shipped the spec with this digest.
pub(super) fn is_shipped(digest: &str) -> bool {
    let mut shipped = DIGESTS.lines().filter_map(|line| line.split(' ').nth(3));
    shipped.any(|shipped| shipped == digest)
}

/// Compares two versions of a profile. Returns `None` if one of them is invalid. Build metadata is
/// ignored.
pub fn version_order(left: &str, right: &str) -> Option<Ordering> {
    Some(Version::parse(left)?.precedence(&Version::parse(right)?))
}
