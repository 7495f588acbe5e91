//! The documents of our profiles for cloud-init, read by its schema, each distinct one once. Values
//! and encodings that our profiles do not use are in a module of their own.

use std::{fs, path::PathBuf, process::Output};

use crate::{
    cases::{Case, TOKEN, cloud_init_cases, distinct, every_case},
    programs::{command, consumers, run, text},
    readers::Reader,
};

mod encodings;
mod kubelet;

/// What `cloud-init schema` does to a document, for one after the other: it starts slowly, and the
/// command around it would write into this machine's `/run`.
const SCHEMA: &str = "\
import sys
from cloudinit.config import schema
for document in sys.argv[1:]:
    if not schema.validate_cloudconfig_file(document, schema.get_schema()):
        sys.exit(document + ' was not read')
    print('Valid schema', document)
";

#[test]
fn cloud_init_accepts_every_document() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut paths = Vec::new();
    let halves = cloud_init_cases().flat_map(Case::halves);
    for (name, document) in distinct(halves.map(|(name, half)| (name, &half.document))) {
        let path = folder.path().join(format!("{name}.yaml"));
        fs::write(&path, document).expect("a document can be written");
        paths.push(path);
    }
    assert!(paths.len() > 10, "the cases differ");
    let output = schema(&paths);
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    for path in &paths {
        assert!(
            said.contains(&format!("Valid schema {}\n", path.display())),
            "{said}"
        );
    }
}

#[test]
fn cloud_init_refuses_a_key_that_it_does_not_know() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("document.yaml");
    fs::write(&path, "#cloud-config\nwrite_file: []\n").expect("a document can be written");
    let output = schema(&[path]);
    assert!(!output.status.success(), "the check is without teeth");
    assert!(text(&output).contains("write_file"), "{}", text(&output));
}

/// The least that a provider takes for a bootstrap document is 16,384 bytes (AWS;
/// machine-controller compresses there, but not for Flatcar). Hetzner takes 32 KiB, the others
/// more. What a proxy, mirrors and a bundle of certificates cost is in the second figure. For a
/// provisioning document, the API server takes 1 MiB; the figure is there to be seen when it grows.
#[test]
fn a_document_stays_below_every_providers_limit() {
    for case in every_case() {
        let bootstrap_max = match case.name.rsplit('/').next() {
            _ if case.reader != Reader::CloudInit => 16 * 1024,
            Some("large") => 16 * 1024,
            Some("proxy" | "mirrored" | "hostile") => 12 * 1024,
            _ => 9 * 1024,
        };
        // The script that follows the document, and the list of files, take 13 KiB.
        let provisioning_max = match case.name.rsplit('/').next() {
            Some("following") => 52 * 1024,
            _ => 40 * 1024,
        };
        for ((name, half), max) in case.halves().iter().zip([bootstrap_max, provisioning_max]) {
            let bytes = half.document.len();
            assert!(bytes <= max, "{name}: {bytes} bytes");
        }
    }
}

#[test]
fn a_stored_config_holds_no_token() {
    for case in every_case() {
        assert!(!case.stored.contains(TOKEN), "{}", case.name);
    }
}

/// What cloud-init says of documents.
fn schema(documents: &[PathBuf]) -> Output {
    consumer_python(SCHEMA, documents)
}

/// Runs a program of Python's that uses cloud-init's modules.
fn consumer_python(program: &str, arguments: &[PathBuf]) -> Output {
    let consumers = consumers();
    let modules = consumers.join("cloud-init/usr/lib/python3/dist-packages");
    let mut check = command(consumers.join("venv/bin/python"));
    check
        .env("PYTHONPATH", modules)
        .args(["-c", program])
        .args(arguments);
    run(&mut check)
}
