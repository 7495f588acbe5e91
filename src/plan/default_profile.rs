//! What becomes of one default profile in a tenant's namespace: newer replaces older, never the
//! reverse between releases, and what a user has edited is told.

use std::cmp::Ordering;

use crate::api::worker_cluster::DefaultProfiles;
use crate::render::default_profiles::version_order;

/// A default profile as it stands in the namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Installed<'a> {
    /// Its version.
    pub version: &'a str,
    /// The digest of its content.
    pub content: &'a str,
    /// The digest of the content that a release of ours installed, if one says so.
    pub installed_content: Option<&'a str>,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is ours, and current.
    Current,
    /// It stays as somebody made it.
    KeepEdited,
    /// It stays: a newer release of ours installed it.
    KeepNewer,
    /// It stays, though older: the policy says so.
    KeepOlder,
    /// It is older and as it was installed: ours takes its place in the tenant's turn.
    Upgrade,
    /// It is older, and edited or of somebody else: ours takes its place in the tenant's turn, and
    /// that is told.
    Overwrite,
    /// It is an edit of ours with a version of its own: ours is put back at once, and that is
    /// told.
    Restore,
}

/// Whether a version is older than another, or cannot be read: newer replaces older.
pub fn is_older(version: &str, than: &str) -> bool {
    version != than && version_order(version, than).is_none_or(Ordering::is_lt)
}

/// Judges an installed default profile against ours, which has this version and content.
pub fn judge(
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
    fn a_version_is_older_if_it_is_lower_or_cannot_be_read() {
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
    fn a_newer_release_is_never_taken_back_and_an_edit_is_never_overlooked() {
        use DefaultProfiles::{Keep, Replace};
        use Verdict::{Current, KeepEdited, KeepNewer, KeepOlder, Overwrite, Restore, Upgrade};
        // The version and the content that stand there, the content that was installed.
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
            let found = judge(policy, installed, ("v2.0.0+jinja", "ours"));
            assert_eq!(found, expected, "{policy:?} {installed:?}");
        }
    }
}
