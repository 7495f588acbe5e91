//! The documents of our profiles for Flatcar: Ignition's, and those for coreos-cloudinit, which
//! Flatcar has in place of cloud-init.

use crate::{
    cases::{Case, flatcar_cases},
    documents::parse,
    readers::Reader,
};

/// What coreos-cloudinit reads, and a key of the grammar that it passes over.
const KEYS: [&str; 5] = [
    "coreos",
    "hostname",
    "ssh_authorized_keys",
    "ssh_pwauth",
    "write_files",
];

/// Words that coreos-cloudinit replaces wherever they stand in a document.
const REPLACED: [&str; 2] = ["$private_ip", "$public_ip"];

fn coreos_cloudinit_cases() -> impl Iterator<Item = &'static Case> {
    flatcar_cases().filter(|case| case.reader == Reader::CoreosCloudinit)
}

#[test]
fn every_document_holds_only_what_coreos_cloudinit_reads() {
    for case in coreos_cloudinit_cases() {
        for (name, half) in case.halves() {
            assert!(half.document.starts_with(b"#cloud-config\n"), "{name}");
            let parsed = parse(&half.document);
            for key in parsed.as_object().expect("a document is a map").keys() {
                assert!(KEYS.contains(&key.as_str()), "{name}: {key}");
            }
        }
    }
}

#[test]
fn no_document_has_a_word_that_coreos_cloudinit_replaces() {
    for case in coreos_cloudinit_cases() {
        for (name, half) in case.halves() {
            let document = String::from_utf8_lossy(&half.document);
            for word in REPLACED {
                assert!(!document.contains(word), "{name}: {word}");
            }
        }
    }
}

#[test]
fn a_fixed_address_is_there_before_the_first_request() {
    for case in flatcar_cases() {
        let text = case
            .bootstrap
            .texts
            .get("/etc/systemd/network/static.network");
        let text = text.expect("the bootstrap document has it").trim();
        if !case.name.ends_with("/static") {
            assert_eq!(text, "", "{}", case.name);
            continue;
        }
        assert_eq!(
            text,
            "[Match]\nName=en* eth*\n\n[Network]\nAddress=192.0.2.7/24\n\
             Gateway=192.0.2.1\nDNS=192.0.2.2\nDNS=192.0.2.3"
        );
        // Ignition writes it before the network is up.
        if case.reader == Reader::CoreosCloudinit {
            let script = case.text("/opt/bin/bootstrap");
            let reload = script.find("networkctl reload").expect("it is there");
            assert!(reload < script.find("fetch_secret").expect("it is there"));
        }
    }
}

#[test]
fn containerd_is_started_with_our_configuration() {
    for case in flatcar_cases() {
        let drop_in = case.text("/etc/systemd/system/containerd.service.d/config.conf");
        let command = "ExecStart=/usr/bin/containerd --config /etc/containerd/config.toml";
        assert!(drop_in.lines().any(|line| line == command));
        assert!(drop_in.lines().any(|line| line == "ExecStart="));
    }
}
