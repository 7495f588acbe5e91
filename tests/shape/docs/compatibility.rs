//! The page of what is compatible with what: made from the API servers that tests ran on, from
//! what the tests with real readers render, and from the machines that have joined.

use std::collections::BTreeSet;

use osm::api::profile::{OperatingSystemProfile, OperatingSystemProfileSpec};
use osm::render::default_profiles::default_profiles;
use osm::rules::kubelet::MINORS;

use super::{check_tables, read, root};
use crate::readers::{KUBELETS, Reader, providers};

/// The modes that `.ci/versions` notes, in the order of the columns.
const MODES: [&str; 2] = ["fleet", "drop-in"];

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

/// The minors whose API servers `.ci/versions` builds, oldest first.
fn pinned() -> BTreeSet<String> {
    let entries = root().join("loadtest").read_dir().expect("it is there");
    let pins = entries
        .map(|entry| entry.expect("a folder is readable").path())
        .filter(|path| path.to_string_lossy().contains("/control-plane"))
        .map(|path| read(&path.join("go.mod")));
    let version = |pins: String| {
        let (_, version) = pins
            .split_once("k8s.io/kubernetes v")
            .expect("it is pinned");
        minor(version.split(' ').next().unwrap_or_default()).to_owned()
    };
    pins.map(version).collect()
}

/// `1.35 to 1.37` of minors, oldest first.
fn span(minors: &[&str]) -> String {
    let ends = minors.first().zip(minors.last());
    let (first, last) = ends.expect("there are minors");
    format!("{first} to {last}")
}

/// A row for each minor, with the version that was tested in each mode.
fn versions() -> Vec<String> {
    let text = read(&root().join("loadtest/versions.tsv"));
    let tested: Vec<_> = text.lines().filter_map(|it| it.split_once('\t')).collect();
    let pinned = pinned();
    let cell = |of: &str, mode: &str| {
        let found = tested.iter().find(|it| minor(it.0) == of && it.1 == mode);
        found.map_or("", |(version, _)| *version)
    };
    let mut rows = Vec::new();
    for of in &pinned {
        let cells = MODES.map(|mode| cell(of, mode));
        let run = format!("make versions ARGS='--record {of}'");
        assert!(
            !cells.contains(&""),
            "{of} was not tested in each mode: {run}"
        );
        rows.push(format!("| {of} | {} |\n", cells.join(" | ")));
    }
    let cells = rows.len() * MODES.len();
    assert_eq!(tested.len(), cells, "loadtest/versions.tsv has more");
    let pinned: Vec<&str> = pinned.iter().map(String::as_str).collect();
    let span = span(&pinned);
    for page in [
        "docs/compatibility.md",
        "README.md",
        "manifests/helm/osm/README.md",
    ] {
        let text = read(&root().join(page)).replace('\n', " ");
        assert!(text.contains(&span), "{page} does not say {span}");
    }
    rows
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
fn the_page_of_compatibility_is_what_was_tested_read_and_joined() {
    let text = read(&root().join("docs/compatibility.md")).replace('\n', " ");
    let minors = KUBELETS.map(minor);
    let supported = MINORS.map(|it| format!("1.{it}"));
    assert!(supported.eq(minors), "those of others are reported");
    let span = format!("Kubelets of {}", span(&minors));
    for said in [span, format!("| {} |", minors.join(" | "))] {
        assert!(text.contains(&said), "the page does not say: {said}");
    }
    check_tables("compatibility.md", &[&versions(), &read_by(), &kubelets()]);
}
