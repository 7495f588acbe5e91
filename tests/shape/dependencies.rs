//! Holds `deny.toml`: crates that must never arrive, crates that must arrive once, where they come
//! from, and on which terms.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use serde::Deserialize;

/// The parts of `deny.toml` that are held here.
#[derive(Deserialize)]
struct Policy {
    bans: Bans,
    licenses: Licenses,
    sources: Sources,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Denied>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Denied {
    #[serde(rename = "crate")]
    name: String,
    #[serde(default)]
    deny_multiple_versions: bool,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(path).expect("the file is there")
}

fn policy() -> Policy {
    toml::from_str(&read("deny.toml")).expect("it is as cargo-deny reads it")
}

/// Returns what is wrong with a lock file.
fn check(lock: &str) -> Vec<String> {
    let policy = policy();
    let value = |line: &str, key: &str| {
        let value = line.strip_prefix(key)?.strip_prefix(" = \"")?;
        value.strip_suffix('"').map(str::to_owned)
    };
    let mut versions: BTreeMap<String, usize> = BTreeMap::new();
    for name in lock.lines().filter_map(|line| value(line, "name")) {
        *versions.entry(name).or_default() += 1;
    }
    let mut broken = Vec::new();
    for denied in &policy.bans.deny {
        let name = &denied.name;
        let count = versions.get(name).copied().unwrap_or_default();
        if denied.deny_multiple_versions && count > 1 {
            broken.push(format!(
                "{name}: {count} versions; its types or its state must be one"
            ));
        } else if !denied.deny_multiple_versions && count > 0 {
            let reason = denied.reason.as_deref().unwrap_or("no reason is given");
            broken.push(format!("{name}: {reason}"));
        }
    }
    for source in lock.lines().filter_map(|line| value(line, "source")) {
        let registry = source.strip_prefix("registry+").unwrap_or_default();
        if !policy
            .sources
            .allow_registry
            .iter()
            .any(|it| it == registry)
        {
            broken.push(format!("{source}: crates come from crates.io"));
        }
    }
    broken
}

#[test]
fn nothing_unwanted_is_built_in_and_nothing_shared_twice() {
    let broken = check(&read("Cargo.lock"));
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
    let git = "source = \"git+https://github.com/kube-rs/kube\"\n";
    let broken = check(&(names.map(package).concat() + git));
    let told: Vec<_> = broken
        .iter()
        .filter_map(|text| text.split(':').next())
        .collect();
    assert_eq!(told, ["aws-lc-sys", "openssl", "kube", "git+https"]);
}

/// The licences of linked crates. Add one only if it leaves a choice within `deny.toml`'s terms.
const LICENCES: &[&str] = &[
    "(Apache-2.0 OR MIT) AND BSD-3-Clause",
    "0BSD OR MIT OR Apache-2.0",
    "Apache-2.0",
    "Apache-2.0 / MIT",
    "Apache-2.0 AND ISC",
    "Apache-2.0 OR ISC OR MIT",
    "Apache-2.0 OR MIT",
    "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
    "Apache-2.0/MIT",
    "BSD-2-Clause OR Apache-2.0 OR MIT",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "MIT AND BSD-3-Clause",
    "MIT OR Apache-2.0",
    "MIT OR Zlib OR Apache-2.0",
    "MIT/Apache-2.0",
    "Unlicense OR MIT",
    "Zlib",
];

#[test]
#[expect(clippy::disallowed_methods, reason = "cargo, on our own workspace")]
fn every_crate_in_the_image_may_be_handed_on() {
    let page = read("docs/release.md");
    for term in policy().licenses.allow {
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
            .filter(|(_, own)| !LICENCES.contains(own))
            .collect();
        assert!(broken.is_empty(), "{target}: {broken:?}");
    }
}
