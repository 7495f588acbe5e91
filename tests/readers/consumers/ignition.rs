//! Ignition's documents, in both versions that we write: those of the small profile beside this
//! file, of every default profile that Ignition reads, and of the vectors where they are.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
    sync::LazyLock,
};

use osm::api::profile::IgnitionVersion;
use serde_json::{Value, json};

use crate::{
    cases::{Case, Profile, distinct, every_profile},
    consumers::{
        ignition_2::{kernel_files, list, problems, to_3_3},
        ignition_root::IgnitionRoot,
    },
    programs::{command, consumer, run, text},
    readers::Reader,
};

/// A document in both versions.
struct Document {
    name: String,
    version_2: Value,
    version_3: Value,
}

/// The documents of all profiles and the vectors, each once.
static DOCUMENTS: LazyLock<Vec<Document>> = LazyLock::new(|| {
    let small = Profile::parse(include_str!("flatcar.yaml"));
    let of_ignition = every_profile()
        .iter()
        .filter(|profile| Reader::of(&profile.spec) == Reader::Ignition);
    let rendered = of_ignition.chain([&small]).flat_map(in_both_versions);
    let parse = |(name, [version_2, version_3]): (String, [Vec<u8>; 2])| Document {
        name,
        version_2: serde_json::from_slice(&version_2).expect("a document is JSON"),
        version_3: serde_json::from_slice(&version_3).expect("a document is JSON"),
    };
    let documents = distinct(rendered).into_iter().map(parse);
    documents.chain(vectors()).collect()
});

/// The documents of a profile's cases, as far as Ignition reads more in one than in another: those
/// of all providers, and those of one for all settings.
fn in_both_versions(profile: &Profile) -> Vec<(String, [Vec<u8>; 2])> {
    let [version_2, version_3] = [IgnitionVersion::V2, IgnitionVersion::V3]
        .map(|version| profile.with(version).cases().into_iter());
    let is_read = |case: &Case| case.machine.provider == "aws" || case.name.ends_with("/1.34.1");
    let in_both = |(two, three): (Case, Case)| {
        let documents = two.halves().into_iter().zip(three.halves());
        documents
            .map(|((name, two), (_, three))| (name, [two, three].map(|it| it.document.clone())))
            .collect::<Vec<_>>()
    };
    let pairs = version_2.zip(version_3).filter(|(two, _)| is_read(two));
    pairs.flat_map(in_both).collect()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the vectors lie outside of the project, and only their finder knows where"
)]
fn vectors() -> Vec<Document> {
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
        let version_2: Value = serde_json::from_slice(&text).expect("a vector is JSON");
        let version_2 = without_kernel_files(&version_2);
        Document {
            name: format!("vector-{half}"),
            version_3: to_3_3(&version_2),
            version_2,
        }
    };
    ["expected-bootstrap", "expected-provisioning"]
        .map(read)
        .into()
}

#[test]
fn every_document_keeps_the_rules_of_2_3_0() {
    assert!(DOCUMENTS.len() > 6, "the machines differ");
    for document in DOCUMENTS.iter() {
        let name = &document.name;
        assert_eq!(problems(&document.version_2), [""; 0], "{name}");
    }
}

#[test]
fn ignition_accepts_every_document_without_a_word() {
    for document in DOCUMENTS.iter() {
        for version_3 in [&document.version_3, &to_3_3(&document.version_2)] {
            let output = validate(version_3);
            let said = text(&output);
            assert!(output.status.success(), "{}: {said}", document.name);
            assert_eq!(said, "", "{}", document.name);
        }
    }
}

#[test]
fn ignition_refuses_or_reports_a_fault() {
    let document = document("flatcar-small-aws-1.34.1-bootstrap");
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
        ("/systemd/units/0/contents", json!("[Unit]a\n"), "unit"),
        ("/systemd/units/0/contents", json!("[Unit]\nA\n"), "unit"),
        (
            "/systemd/units/0/contents",
            json!(format!("[Unit]\nA={}\n", "a".repeat(2_046))),
            "line too long",
        ),
        ("/storage", json!({ "file": [] }), "unused key file"),
    ] {
        let mut document = document.version_3.clone();
        *document.pointer_mut(place).expect("the place is there") = value;
        let said = text(&validate(&document));
        assert!(said.contains(told), "{place}: {said}");
    }
}

#[test]
fn ignition_writes_what_every_document_says_in_either_version() {
    for document in DOCUMENTS.iter() {
        for version_3 in [&document.version_3, &to_3_3(&document.version_2)] {
            let root = IgnitionRoot::provision(version_3);
            let differences = root.differences(&document.version_2);
            assert_eq!(differences, [""; 0], "{}", document.name);
        }
    }
}

#[test]
fn what_ignition_wrote_in_another_way_is_reported() {
    let document = document("flatcar-small-aws-1.34.1-provisioning");
    let root = IgnitionRoot::provision(&document.version_3);
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
        let mut other = document.version_2.clone();
        *other.pointer_mut(place).expect("the place is there") = value;
        let differences = root.differences(&other).join("\n");
        assert!(differences.contains(told), "{place}: {differences}");
    }
}

/// The document of this name.
fn document(name: &str) -> &'static Document {
    let mut documents = DOCUMENTS.iter();
    let found = documents.find(|document| document.name == name);
    found.expect("there is a document of this name")
}

/// The vectors set kernel parameters by writing them, and this machine has one kernel.
fn without_kernel_files(document: &Value) -> Value {
    let kernel = kernel_files(document);
    let files = list(document, "/storage/files").iter();
    let files: Vec<_> = files
        .filter(|file| !kernel.iter().any(|path| file["path"] == *path))
        .collect();
    let mut other = document.clone();
    if let Some(list) = other.pointer_mut("/storage/files") {
        *list = json!(files);
    }
    other
}

/// What Ignition's validator says of a document.
fn validate(document: &Value) -> Output {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("document.ign");
    fs::write(&path, document.to_string()).expect("a document can be written");
    let mut command = command(consumer("go/ignition-validate"));
    run(command.arg(path))
}
