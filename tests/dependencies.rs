//! Holds what is built in: crates that must never arrive, and crates that must arrive once.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

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

/// Terms on which we may hand on a binary with code of others in it, if their texts go with it.
/// docs/release.md names them, too.
const TERMS: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Zlib",
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

/// Whether an SPDX expression leaves a choice within our terms. `AND` binds more than `OR`; an old
/// form has a stroke for `OR`.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    let mut depth = 0_usize;
    // Where an operator stands outside of all brackets.
    let mut split = |operator: &str| {
        depth = 0;
        expression.char_indices().find_map(|(at, letter)| {
            match letter {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            let rest = expression.get(at..)?.strip_prefix(operator)?;
            (depth == 0).then(|| (expression[..at].to_owned(), rest.to_owned()))
        })
    };
    if let Some((left, right)) = split(" OR ") {
        return is_allowed(&left) || is_allowed(&right);
    }
    if let Some((left, right)) = split(" AND ") {
        return is_allowed(&left) && is_allowed(&right);
    }
    let term = expression.trim();
    match term.strip_prefix('(').and_then(|it| it.strip_suffix(')')) {
        Some(inner) => is_allowed(inner),
        None => TERMS.contains(
            &term
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .as_str(),
        ),
    }
}

#[test]
fn an_expression_is_allowed_by_what_it_leaves_to_choose() {
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("", false),
        ("GPL-3.0-only OR MIT", true),
        ("MIT AND GPL-3.0-only", false),
        ("MIT/Apache-2.0", true),
        ("Apache-2.0 / MIT", true),
        ("(MIT OR Apache-2.0) AND BSD-3-Clause", true),
        ("(MIT OR Apache-2.0) AND MPL-2.0", false),
        ("MIT AND (MPL-2.0 OR ISC)", true),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("GPL-2.0 WITH LLVM-exception", false),
        ("MPL-2.0 AND MIT OR ISC", true),
    ] {
        assert_eq!(is_allowed(expression), expected, "{expression}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "cargo, on our own workspace")]
fn every_crate_in_the_image_may_be_handed_on() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/release.md"));
    let page = page.expect("the page is there");
    for term in TERMS {
        assert!(page.contains(&format!("`{term}`")), "{term}");
    }
    for target in ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"] {
        let output = Command::new(env!("CARGO"))
            .args(["tree", "--locked", "--package", "osm", "--target", target])
            .args(["--edges", "normal,no-proc-macro", "--prefix", "none"])
            .args(["--no-dedupe", "--format", "{p}|{l}"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let printed = String::from_utf8_lossy(&output.stdout);
        let crates: BTreeMap<&str, &str> = printed
            .lines()
            .filter_map(|line| line.split_once('|'))
            .collect();
        assert!(crates.len() > 200, "{target}: {}", crates.len());
        let broken: Vec<_> = crates
            .iter()
            .filter(|(_, terms)| !is_allowed(terms))
            .collect();
        assert!(broken.is_empty(), "{target}: {broken:?}");
    }
}
