//! Settings that cannot work, and defaults that can.

use clap::Parser;

use super::*;
use crate::tenant::host::Host;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flags: RunFlags,
}

fn check(arguments: &[&str]) -> Result<Settings, String> {
    let line = Line::try_parse_from([&["osm"], arguments].concat()).expect("flags");
    line.flags.check().map_err(|error| error.to_string())
}

#[test]
fn the_management_api_cannot_be_registered_by_its_names() {
    let rules = check(&[])
        .unwrap()
        .policies
        .default
        .access
        .clone()
        .addresses;
    for name in ["kubernetes.default.svc", "kubernetes"] {
        let host = Host::parse(name).expect("a host");
        assert!(rules.check_host(&host, 443).is_err(), "{name}");
    }
}

#[test]
fn a_setting_that_cannot_work_is_refused_by_its_name() {
    for (arguments, expected) in [
        (["--registration-selector", " "], "--registration-selector"),
        (
            ["--token-lifetime", "1m"],
            "--token-lifetime must be at least 10m",
        ),
        (
            ["--request-timeout", "1ms"],
            "--request-timeout must be at least 100ms",
        ),
        (
            ["--reconciles", "0"],
            "--concurrent-renders must be at least 1",
        ),
        (["--worker-burst", "1"], "--worker-burst must be at least 2"),
        (
            ["--tenant-defaults", "/does/not/exist"],
            "cannot read --tenant-defaults",
        ),
    ] {
        let refused = check(&arguments).unwrap_err();
        assert!(refused.contains(expected), "{refused}");
    }
}

#[test]
fn tenant_defaults_are_a_spec_without_what_is_one_tenants_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("defaults.yaml");
    let with = |text: &str| {
        std::fs::write(&path, text).unwrap();
        check(&["--tenant-defaults", path.to_str().unwrap()])
    };
    let defaults = with("clusterDNS: [10.0.0.10]\npauseImage: mirror/pause\n").unwrap();
    assert_eq!(defaults.tenant_defaults.pause_image, "mirror/pause");
    for (text, expected) in [
        ("paused: true", "paused is a tenant's own"),
        ("clusterDns: [10.0.0.10]", "clusterDns is unknown"),
        ("clusterDNS: [there]", "`there` is not an IP address"),
        ("- a", "spec are expected: it is not a map"),
    ] {
        let refused = with(text).unwrap_err();
        assert!(refused.contains(expected), "{text}: {refused}");
    }
}
