//! Which build this is, for people, metrics and API servers.

/// The release.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit, where `OSM_COMMIT` was set when this was built; else `unknown`.
pub const COMMIT: &str = match option_env!("OSM_COMMIT") {
    Some(commit) => commit,
    None => UNKNOWN,
};

/// The commit of a build without one.
pub const UNKNOWN: &str = "unknown";

/// Both, as a product of HTTP: `osm/0.1.0`, and `osm/0.1.0+COMMIT` where that is known.
pub fn product() -> String {
    of(VERSION, COMMIT)
}

fn of(version: &str, commit: &str) -> String {
    match commit {
        UNKNOWN => format!("osm/{version}"),
        commit => format!("osm/{version}+{commit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_is_known_stands_behind_the_release() {
        assert_eq!(of("0.1.0", "12ab"), "osm/0.1.0+12ab");
        assert_eq!(of("0.1.0", UNKNOWN), "osm/0.1.0");
    }
}
