//! Decides what to do with an installed default profile in a tenant's namespace. A newer version
//! replaces an older one, a release never downgrades what a newer release installed, and edits by
//! users are reported.

use std::cmp::Ordering;

use osm_api::{
    profile::OperatingSystemProfileSpec,
    worker_cluster::{DefaultProfileContent, DefaultProfiles, ProfileRollout, WorkerCluster},
};
use osm_render::default_profiles::version_order;
use osm_tenant::settings::TenantSettings;

/// A default profile, as it is built into this program.
#[derive(Clone, Debug)]
pub struct DefaultProfile {
    /// The profile's name.
    pub name: String,
    /// The digest of the spec.
    pub content: String,
    /// The profile's spec.
    pub spec: OperatingSystemProfileSpec,
}

/// A default profile as it is installed in the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Installed<'a> {
    /// The profile's version.
    pub version: &'a str,
    /// The digest of the profile's content.
    pub content: &'a str,
    /// The digest of the content that one of our releases installed, if that is recorded.
    pub installed_content: Option<&'a str>,
}

/// A tenant's settings about the default profiles.
#[derive(Clone, Debug)]
pub struct DefaultProfileSettings {
    /// When newer ones are installed.
    pub pace: ProfileRollout,
    /// Whether they are installed, and whether newer ones replace them.
    pub policy: DefaultProfiles,
    /// What the installed ones contain.
    pub content: DefaultProfileContent,
    names: Option<Vec<String>>,
}

impl DefaultProfileSettings {
    /// Returns the settings of a WorkerCluster, over the fleet's defaults.
    pub fn new(defaults: &TenantSettings, own: Option<&WorkerCluster>) -> Self {
        let spec = own.map(|own| &own.spec);
        let names = spec.and_then(|spec| spec.default_profile_names.as_ref());
        let pace = spec.and_then(|spec| spec.rollout?.default_profiles);
        Self {
            pace: pace.unwrap_or(defaults.profile_rollout),
            content: spec
                .and_then(|spec| spec.default_profile_content)
                .unwrap_or(defaults.default_profile_content),
            policy: spec.map_or_else(DefaultProfiles::default, |spec| spec.default_profiles),
            names: names.or(defaults.default_profile_names.as_ref()).cloned(),
        }
    }

    /// Returns true if the tenant gets the default profile of this name.
    pub fn wants(&self, name: &str) -> bool {
        let names = self.names.as_ref();
        names.is_none_or(|names| names.iter().any(|wanted| wanted == name))
    }

    /// Returns true if a profile of this name is installed in the tenant's namespace when it is
    /// missing there. If the installation fails, a condition of the tenant says so.
    pub fn installs(&self, name: &str, defaults: &[DefaultProfile]) -> bool {
        self.policy != DefaultProfiles::Disabled
            && self.wants(name)
            && defaults.iter().any(|default| default.name == name)
    }
}

/// The decision about an installed default profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: it has the content of this release.
    Current,
    /// Keep it: a user edited it.
    KeepEdited,
    /// Keep it: a newer release installed it.
    KeepNewer,
    /// Keep it although it is older, because the policy is `Keep`.
    KeepOlder,
    /// Replace it when the tenant has a rollout slot: it is older, and unchanged since its
    /// installation.
    Upgrade,
    /// Replace it when the tenant has a rollout slot, and report that: it is older, and was edited
    /// or installed by somebody else.
    Overwrite,
    /// Restore it immediately, and report that: it is an edit of our profile that also changed the
    /// version.
    Restore,
}

/// Returns true if `version` is lower than `than`, or differs from it and cannot be parsed.
pub fn is_older(version: &str, than: &str) -> bool {
    version != than && version_order(version, than).is_none_or(Ordering::is_lt)
}

/// Compares an installed default profile with the one of this release, which has the given version
/// and content digest.
pub fn evaluate(
    policy: DefaultProfiles,
    installed: Installed<'_>,
    (version, content): (&str, &str),
) -> Verdict {
    if installed.content == content {
        return Verdict::Current;
    }
    if installed.version == version {
        return Verdict::KeepEdited;
    }
    let is_untouched = installed.installed_content == Some(installed.content);
    let is_newer = version_order(installed.version, version) == Some(Ordering::Greater);
    let was_ours = is_newer || installed.installed_content == Some(content);
    match (policy, is_untouched, is_newer) {
        (_, true, true) => Verdict::KeepNewer,
        (DefaultProfiles::Replace, true, false) => Verdict::Upgrade,
        (DefaultProfiles::Replace, false, _) if was_ours => Verdict::Restore,
        (DefaultProfiles::Replace, false, _) => Verdict::Overwrite,
        (_, true, false) => Verdict::KeepOlder,
        (_, false, _) => Verdict::KeepEdited,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_older_if_it_is_lower_or_cannot_be_parsed() {
        for (version, than, expected) in [
            ("v1.9.0", "v1.10.0", true),
            ("v1.10.0", "v1.9.0", false),
            ("v1.9.0", "v1.9.0", false),
            ("nonsense", "v1.9.0", true),
            ("nonsense", "nonsense", false),
        ] {
            assert_eq!(is_older(version, than), expected, "{version} {than}");
        }
    }

    #[test]
    fn profiles_of_newer_releases_are_never_downgraded_and_edits_are_detected() {
        use DefaultProfiles::{Keep, Replace};
        use Verdict::{Current, KeepEdited, KeepNewer, KeepOlder, Overwrite, Restore, Upgrade};
        // The installed version and content, and the content that was recorded at installation.
        for (policy, (version, content, installed_content), expected) in [
            (Replace, ("v2.0.0+jinja", "ours", Some("ours")), Current),
            (Replace, ("v2.0.0+jinja", "ours", None), Current),
            (Replace, ("v2.0.0+jinja", "edit", Some("ours")), KeepEdited),
            (Replace, ("v2.1.0+jinja", "next", Some("next")), KeepNewer),
            (Keep, ("v2.1.0+jinja", "next", Some("next")), KeepNewer),
            (Replace, ("v10.0.0", "next", Some("next")), KeepNewer),
            (Replace, ("v2.1.0+jinja", "edit", Some("next")), Restore),
            (Replace, ("v2.1.0+jinja", "edit", None), Restore),
            (Replace, ("v0.0.1+jinja", "edit", Some("ours")), Restore),
            (Replace, ("v1.9.0+jinja", "old", Some("old")), Upgrade),
            (Replace, ("v1.11.2", "upstream", None), Overwrite),
            (Replace, ("v1.9.0+jinja", "edit", Some("old")), Overwrite),
            (Replace, ("nonsense", "old", Some("old")), Upgrade),
            (Keep, ("v1.9.0+jinja", "old", Some("old")), KeepOlder),
            (Keep, ("v1.9.0+jinja", "edit", Some("old")), KeepEdited),
            (Keep, ("v1.11.2", "upstream", None), KeepEdited),
        ] {
            let installed = Installed {
                version,
                content,
                installed_content,
            };
            let verdict = evaluate(policy, installed, ("v2.0.0+jinja", "ours"));
            assert_eq!(verdict, expected, "{policy:?} {installed:?}");
        }
    }
}
