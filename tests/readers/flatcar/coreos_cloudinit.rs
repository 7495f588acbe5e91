//! The documents of the profile for coreos-cloudinit, which Flatcar has in place of cloud-init.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::{
    cases::{Case, case, files_of, flatcar_cases},
    flatcar::ignition::text_of,
    programs::text,
    scripts::flatcar::Machine,
};

/// What coreos-cloudinit reads, and a key of the grammar that it passes over.
const KEYS: [&str; 5] = [
    "coreos",
    "hostname",
    "ssh_authorized_keys",
    "ssh_pwauth",
    "write_files",
];

/// Notes its arguments, and writes what setup begins with.
const COREOS_CLOUDINIT: &str = "#!/bin/bash
root=\"${0%/bin/*}\"
echo \"coreos-cloudinit $*\" >> \"$root/calls\"
printf '#!/bin/bash\\n' > \"$root/opt/bin/setup\"
chmod 755 \"$root/opt/bin/setup\"
";

#[test]
fn every_document_holds_only_what_coreos_cloudinit_reads() {
    for case in cloud_init_cases() {
        for half in [&case.bootstrap, &case.provisioning] {
            let document = std::str::from_utf8(&half.document).expect("a document is text");
            assert!(document.starts_with("#cloud-config\n"));
            let parsed: Value = serde_saphyr::from_str(document).expect("a document is YAML");
            let keys = parsed.as_object().expect("a document is a map").keys();
            for key in keys {
                assert!(KEYS.contains(&key.as_str()), "{}: {key}", case.name);
            }
            let written = files_of(&half.document);
            let paths: BTreeSet<_> = written.iter().map(|file| &file.path).collect();
            assert_eq!(paths.len(), written.len(), "a path is written twice");
            for file in &written {
                let mode = u32::from_str_radix(&file.mode, 8);
                assert!(mode.is_ok_and(|mode| mode <= 0o7777), "{}", file.path);
                if let Some(expected) = half.texts.get(&file.path) {
                    assert_eq!(file.content.trim_end(), expected.trim_end());
                }
            }
            assert!(half.texts.keys().all(|path| paths.contains(path)));
        }
    }
}

/// It replaces these words wherever they stand in a document.
#[test]
fn no_document_has_a_word_that_coreos_cloudinit_replaces() {
    for case in cloud_init_cases() {
        for half in [&case.bootstrap, &case.provisioning] {
            let document = String::from_utf8_lossy(&half.document);
            for word in ["$private_ip", "$public_ip"] {
                assert!(!document.contains(word), "{}: {word}", case.name);
            }
        }
    }
}

#[test]
fn the_bootstrap_is_started_by_its_document_and_setup_by_the_bootstrap() {
    let case = case("osp-flatcar-cloud-init/anexia/1.34.1");
    let units = |document: &[u8]| {
        let text = std::str::from_utf8(document).expect("a document is text");
        let parsed: Value = serde_saphyr::from_str(text).expect("a document is YAML");
        parsed.pointer("/coreos/units").cloned()
    };
    let expected = serde_json::json!([{
        "name": "bootstrap.service", "enable": true, "command": "start", "mask": false,
    }]);
    assert_eq!(units(&case.bootstrap.document), Some(expected));
    assert_eq!(units(&case.provisioning.document), None);

    let machine = Machine::new();
    machine.install("coreos-cloudinit", COREOS_CLOUDINIT);
    machine.write("answers/1", r#"{"kind":"Status","status":"Failure"}"#);
    machine.answer(2, br#"{"ignition":{"version":"2.3.0"}}"#);
    machine.answer(3, &case.provisioning.document);
    let output = machine.supervised_bootstrap(case);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(machine.read("delays"), "2\n4\n8\n");
    let document = machine.at("run/osm-provisioning.yaml");
    assert_eq!(
        machine.calls(),
        [
            &format!("coreos-cloudinit --from-file={}", document.display()),
            "systemctl daemon-reload",
            "systemctl enable setup.service",
            "systemctl restart setup.service",
            "systemctl disable bootstrap.service",
        ]
    );
    let fetched = fs::read(document).expect("it is there");
    assert_eq!(fetched, case.provisioning.document);
    assert!(machine.at("etc/bootstrap-complete").is_file());
}

#[test]
fn a_document_that_was_not_applied_is_tried_again() {
    let case = case("osp-flatcar-cloud-init/anexia/1.34.1");
    for program in ["#!/bin/bash\nexit 1\n", "#!/bin/bash\nexit 0\n"] {
        let machine = Machine::new();
        machine.answer(0, &case.provisioning.document);
        machine.install("coreos-cloudinit", program);
        assert!(!machine.bootstrap(case).status.success());
        assert!(machine.calls().is_empty());
        assert!(!machine.at("etc/bootstrap-complete").exists());
    }
}

#[test]
fn a_fixed_address_is_taken_before_the_first_request() {
    let case = case("osp-flatcar-cloud-init/anexia/static");
    let script = text_of(&case.bootstrap, "/opt/bin/bootstrap");
    let reload = script.find("networkctl reload").expect("it is there");
    assert!(reload < script.find("fetch_secret").expect("it is there"));
}

fn cloud_init_cases() -> impl Iterator<Item = &'static Case> {
    flatcar_cases().filter(|case| case.profile == "osp-flatcar-cloud-init")
}
