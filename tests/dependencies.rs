//! Holds what is built in: crates that must never arrive, and crates that must arrive once.

use std::{collections::BTreeMap, fs, path::Path};

const RING: &str = "ring is the only cryptography: two providers panic at the first connection";
const RUSTLS: &str = "TLS is rustls; a static binary has no system libraries";

/// Crates that must not be built in, with the reason.
const UNWANTED: &[(&str, &str)] = &[
    ("aws-lc-rs", RING),
    ("aws-lc-sys", RING),
    ("openssl", RUSTLS),
    ("openssl-sys", RUSTLS),
    ("native-tls", RUSTLS),
    (
        "serde_yaml",
        "deprecated, and keeps the last of two equal keys silently",
    ),
    ("serde_yml", "an abandoned copy of serde_yaml"),
    ("serde_norway", "emits what cloud-init's reader refuses"),
    ("yaml_serde", "emits what cloud-init's reader refuses"),
    ("unsafe-libyaml", "YAML of strangers is parsed in safe code"),
    ("reqwest", "hyper is here already"),
];

/// Crates whose types cross our interfaces, or that hold state of the process: two versions of one
/// would compile, and fail where they meet.
const ONCE: &[&str] = &[
    "hyper",
    "k8s-openapi",
    "kube",
    "opentelemetry",
    "rustls",
    "schemars",
    "serde-saphyr",
    "tracing-subscriber",
];

/// What is wrong with a lock file.
fn judge(lock: &str) -> Vec<String> {
    let names = lock.lines().filter_map(|line| {
        let name = line.strip_prefix("name = \"")?;
        name.strip_suffix('"')
    });
    let mut versions: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        *versions.entry(name).or_default() += 1;
    }
    let mut broken = Vec::new();
    for (name, count) in versions {
        for (unwanted, reason) in UNWANTED {
            if name == *unwanted {
                broken.push(format!("{name}: {reason}"));
            }
        }
        if ONCE.contains(&name) && count > 1 {
            broken.push(format!(
                "{name}: {count} versions; its types or its state must be one"
            ));
        }
    }
    broken
}

#[test]
fn nothing_unwanted_is_built_in_and_nothing_shared_twice() {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock");
    let broken = judge(&fs::read_to_string(lock).unwrap());
    assert!(
        broken.is_empty(),
        "`cargo tree -i NAME` shows who asks:\n{}",
        broken.join("\n")
    );
}

#[test]
fn a_bad_lock_file_is_reported() {
    let package = |name: &str| format!("[[package]]\nname = \"{name}\"\nversion = \"1.0.0\"\n");
    let names = [
        "aws-lc-sys",
        "kube",
        "kube",
        "serde_json",
        "openssl-probe",
        "openssl",
    ];
    let broken = judge(&names.map(package).concat());
    let told: Vec<_> = broken
        .iter()
        .filter_map(|text| text.split(':').next())
        .collect();
    assert_eq!(told, ["aws-lc-sys", "kube", "openssl"]);
}
