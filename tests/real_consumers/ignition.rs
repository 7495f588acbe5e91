//! Ignition's documents: those of the small profile beside this file, of every default profile that
//! Ignition reads, and of the vectors where they are.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
    sync::LazyLock,
};

use osm::api::profile::ProvisioningUtility;
use serde_json::{Value, json};

use crate::{
    consumer,
    ignition_2::{kernel_files, list, problems, to_3_3},
    ignition_root::IgnitionRoot,
    machines::{Profile, Rendering, distinct, every_rendering},
    run, text,
};

/// The documents in 2.3.0, each once.
static DOCUMENTS: LazyLock<Vec<(String, Value)>> = LazyLock::new(|| {
    let small = Profile::parse(include_str!("flatcar.yaml"));
    let of_small: Vec<Rendering> = small
        .machines()
        .iter()
        .map(|(name, machine)| small.render(name, machine))
        .collect();
    let of_ignition = every_rendering()
        .iter()
        .filter(|rendering| rendering.utility == ProvisioningUtility::Ignition);
    let documents = distinct(
        of_small
            .iter()
            .chain(of_ignition)
            .flat_map(Rendering::documents),
    );
    let parse = |(name, document): (String, &[u8])| {
        let document = serde_json::from_slice(document);
        (name, document.expect("a document is JSON"))
    };
    documents.into_iter().map(parse).chain(vectors()).collect()
});

#[expect(
    clippy::disallowed_methods,
    reason = "the vectors lie outside of the project, and only their finder knows where"
)]
fn vectors() -> Vec<(String, Value)> {
    let folder = std::env::var("OSM_CONFORMANCE").map_or_else(
        |_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance"),
        PathBuf::from,
    );
    if !folder.is_dir() {
        eprintln!("left out: no conformance vectors at {}", folder.display());
        return Vec::new();
    }
    let read = |half: &str| {
        let path = folder.join("reconcile/flatcar-aws").join(half);
        let text = fs::read(path).expect("a vector is readable");
        let document = serde_json::from_slice(&text).expect("a vector is JSON");
        (format!("vector-{half}"), document)
    };
    ["expected-bootstrap", "expected-provisioning"]
        .map(read)
        .into()
}

#[test]
fn every_document_keeps_the_rules_of_2_3_0() {
    assert!(DOCUMENTS.len() > 6, "the machines differ");
    for (name, document) in DOCUMENTS.iter() {
        assert_eq!(problems(document), [""; 0], "{name}");
        if !name.starts_with("vector-") {
            assert_eq!(kernel_files(document), [""; 0], "{name}");
        }
    }
}

#[test]
fn ignition_accepts_every_document_without_a_word() {
    for (name, document) in DOCUMENTS.iter() {
        let output = validate(&to_3_3(document));
        assert!(output.status.success(), "{name}: {}", text(&output));
        assert_eq!(text(&output), "", "{name}");
    }
}

#[test]
fn ignition_refuses_or_reports_a_fault() {
    let (_, document) = DOCUMENTS.first().expect("there is a document");
    for (place, value, told) in [
        (
            "/ignition/version",
            json!("2.3.0"),
            "unsupported config version",
        ),
        ("/storage/files/0/path", json!("etc/a"), "path not absolute"),
        ("/storage/files/0/mode", json!(0o10000), "mode"),
        ("/storage/files/0/contents/source", json!("dat:a"), "url"),
        ("/systemd/units/0/contents", json!("Unit]\n"), "unit"),
        ("/storage", json!({ "file": [] }), "unused key file"),
    ] {
        let mut document = to_3_3(document);
        *document.pointer_mut(place).expect("the place is there") = value;
        let said = text(&validate(&document));
        assert!(said.contains(told), "{place}: {said}");
    }
}

#[test]
fn ignition_writes_what_every_document_says() {
    for (name, document) in DOCUMENTS.iter() {
        let document = without_kernel_files(document);
        let root = IgnitionRoot::provision(&to_3_3(&document));
        assert_eq!(root.differences(&document), [""; 0], "{name}");
    }
}

#[test]
fn what_ignition_wrote_in_another_way_is_reported() {
    let find = |(name, _): &&(String, Value)| name.ends_with("provisioning");
    let (_, document) = DOCUMENTS
        .iter()
        .find(find)
        .expect("there is such a document");
    let root = IgnitionRoot::provision(&to_3_3(document));
    for (place, value, told) in [
        (
            "/storage/files/0/path",
            json!("/etc/b"),
            "/etc/b has other bytes",
        ),
        (
            "/storage/files/0/contents/source",
            json!("data:,b"),
            "has other bytes",
        ),
        (
            "/storage/files/0/mode",
            json!(0o640),
            "in place of f 640 root",
        ),
        (
            "/systemd/units/0/contents",
            json!("[Unit]\n"),
            "setup.service has other bytes",
        ),
        (
            "/systemd/units/0/enabled",
            json!(false),
            "\"disable setup.service\"",
        ),
        (
            "/systemd/units/2/mask",
            json!(false),
            "locksmithd.service is masked: true",
        ),
        (
            "/systemd/units/3/dropins/0/contents",
            json!("b"),
            "10-config.conf has other bytes",
        ),
        (
            "/passwd/users/0/sshAuthorizedKeys/0",
            json!("ssh-rsa B"),
            "in place of {\"ssh-rsa B\"}",
        ),
    ] {
        let mut other = document.clone();
        *other.pointer_mut(place).expect("the place is there") = value;
        let differences = root.differences(&other).join("\n");
        assert!(differences.contains(told), "{place}: {differences}");
    }
}

/// The vectors set kernel parameters by writing them, and this machine has one kernel.
fn without_kernel_files(document: &Value) -> Value {
    let kernel = kernel_files(document);
    let files = list(document, "/storage/files").iter();
    let files: Vec<_> = files
        .filter(|file| !kernel.iter().any(|path| file["path"] == *path))
        .collect();
    let mut other = document.clone();
    other["storage"]["files"] = json!(files);
    other
}

/// What Ignition's validator says of a document.
fn validate(document: &Value) -> Output {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("document.ign");
    fs::write(&path, document.to_string()).expect("a document can be written");
    let mut command = crate::command(consumer("go/ignition-validate"));
    run(command.arg(path))
}
