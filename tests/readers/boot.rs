//! Our own profiles on machines: cloud-init boots from what they render, and their bootstrap
//! scripts fetch from a real API server, on a release with the old command line of cloud-init and
//! on one with the new.
//!
//! `.ci/consumers` makes the root folders that machines start from. They run in namespaces of
//! their own, which takes root.

use std::collections::BTreeMap;

use crate::boot::{
    cloud_config::CloudConfig,
    documents::{Access, Profile},
    files::files_of,
    machine::{EARLY_BOOT, LATE_BOOT, Machine, Network, Release, Stopped},
};

mod bootstrap;
mod cloud_config;
mod cluster;
mod documents;
mod fetch;
mod files;
mod machine;
mod units;

/// More boots than this take too long: then choose which documents are alike.
const BOOTS_MAX: usize = 40;

#[test]
fn a_release_with_the_old_command_line_applies_every_form_of_document() {
    every_form_is_applied_on(Release::Bookworm);
}

#[test]
fn a_release_with_the_new_command_line_applies_every_form_of_document() {
    every_form_is_applied_on(Release::Trixie);
}

#[test]
fn a_file_a_command_and_an_error_that_are_missing_are_seen() {
    let documents = representatives();
    let (name, document) = documents
        .iter()
        .find(|(name, _)| name.starts_with("bootstrap"))
        .expect("there is a profile");
    let expected = CloudConfig::parse(document);
    let files = files_of(document);
    let last = files.last().expect("there are files");
    let changed = String::from_utf8(document.clone())
        .expect("a document is text")
        .replacen("permissions: '0755'", "permissions: '0750'", 1)
        .replacen("- systemctl daemon-reload\n", "- exit 1\n", 1)
        .replacen(&last.path, "/elsewhere", 1);
    let machine = boot(Release::Trixie, changed.as_bytes());
    let missing = expected.missing_on(&machine);
    for what in [
        "content of ",
        "mode of /opt/bin/",
        "commands: []",
        "1 failures",
    ] {
        assert!(
            missing.iter().any(|line| line.contains(what)),
            "{name} without {what}: {missing:?}"
        );
    }
}

fn every_form_is_applied_on(release: Release) {
    for (name, document) in representatives() {
        let machine = boot(release, &document);
        let missing = CloudConfig::parse(&document).missing_on(&machine);
        assert!(missing.is_empty(), "{name}: {missing:#?}\n{}", machine.log);
    }
}

fn boot(release: Release, document: &[u8]) -> Stopped {
    Machine::new(release, document)
        .start(Network::Own, &format!("{EARLY_BOOT}{LATE_BOOT}"))
        .stop()
}

/// One document of each form: the first, in the order of profiles and of their providers.
fn representatives() -> Vec<(String, Vec<u8>)> {
    let mut forms = BTreeMap::new();
    let mut profiles = Profile::all();
    profiles.retain(Profile::is_cloud_init);
    for profile in profiles {
        for provider in profile.providers() {
            let documents = profile.render(&provider, &Access::unused());
            for (half, document) in [
                ("bootstrap", documents.bootstrap),
                ("provisioning", documents.provisioning),
            ] {
                let form = CloudConfig::parse(&document).form();
                let name = format!("{half} of {}", documents.name);
                forms.entry(form).or_insert((name, document));
            }
        }
    }
    let documents: Vec<_> = forms.into_values().collect();
    assert!(documents.len() <= BOOTS_MAX, "{} forms", documents.len());
    documents
}
