//! The page of what is compatible with what: made from what the tests with real readers render, and
//! from the machines that have joined.

use std::collections::BTreeSet;

use osm::api::profile::{OperatingSystemProfile, OperatingSystemProfileSpec};
use osm::render::default_profiles::default_profiles;

use super::readers::{KUBELETS, Reader, providers};
use super::{check_tables, read, root};

/// A machine that has joined.
struct Joined<'a> {
    profile: &'a str,
    system: &'a str,
    kubelet: &'a str,
}

fn parse(line: &str) -> Option<Joined<'_>> {
    let mut cells = line.split('\t');
    Some(Joined {
        profile: cells.next()?,
        system: cells.next()?,
        kubelet: cells.next()?,
    })
}

/// `1.36` of `v1.36.3`.
fn minor(version: &str) -> &str {
    let version = version.strip_prefix('v').unwrap_or(version);
    version.rsplit_once('.').map_or(version, |(minor, _)| minor)
}

/// A row for each default profile, with the reader of its documents and its cloud providers.
fn read_by() -> Vec<String> {
    let row = |name: &str, spec: &OperatingSystemProfileSpec| {
        let reader = match Reader::of(spec) {
            Reader::CloudInit => "cloud-init",
            Reader::CoreosCloudinit => "none",
            Reader::Ignition => "Ignition",
        };
        let providers: Vec<&str> = providers(spec).collect();
        format!("| `{name}` | {reader} | {} |\n", providers.join(", "))
    };
    let profiles = default_profiles().iter().map(|profile| {
        let parsed: OperatingSystemProfile =
            serde_saphyr::from_str(profile.yaml).expect("a default profile is a profile");
        row(profile.name, &parsed.spec)
    });
    profiles.collect()
}

/// A row for each default profile and system, with the kubelets that have joined.
fn kubelets() -> Vec<String> {
    let text = read(&root().join("loadtest/nodes/joined.tsv"));
    let joined: Vec<Joined<'_>> = text.lines().filter_map(parse).collect();
    let mut rows = Vec::new();
    for profile in default_profiles() {
        let of_profile = joined.iter().filter(|it| it.profile == profile.name);
        let mut systems: BTreeSet<&str> = of_profile.map(|it| it.system).collect();
        if systems.is_empty() {
            systems.insert("");
        }
        for system in systems {
            let cell = |read: &str| {
                let of_minor = joined.iter().find(|it| {
                    (it.profile, it.system, minor(it.kubelet))
                        == (profile.name, system, minor(read))
                });
                of_minor.map_or_else(
                    || "read".to_owned(),
                    |it| format!("**joined** ({})", it.kubelet),
                )
            };
            let (name, cells) = (profile.name, KUBELETS.map(cell).join(" | "));
            rows.push(format!("| `{name}` | {system} | {cells} |\n"));
        }
    }
    rows
}

#[test]
fn the_page_of_compatibility_is_what_was_read_and_what_has_joined() {
    let minors = format!("| {} |", KUBELETS.map(minor).join(" | "));
    let text = read(&root().join("docs/compatibility.md"));
    assert!(
        text.contains(&minors),
        "the page has other columns than {minors}"
    );
    check_tables("compatibility.md", &[&read_by(), &kubelets()]);
}
