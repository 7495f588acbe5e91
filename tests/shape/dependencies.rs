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

/// Whether an SPDX expression leaves a choice within these terms. `AND` binds more than `OR`; an
/// old form has a stroke for `OR`.
fn is_allowed(expression: &str, terms: &[String]) -> bool {
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
        return is_allowed(&left, terms) || is_allowed(&right, terms);
    }
    if let Some((left, right)) = split(" AND ") {
        return is_allowed(&left, terms) && is_allowed(&right, terms);
    }
    let term = expression.trim();
    if let Some(inner) = term.strip_prefix('(').and_then(|it| it.strip_suffix(')')) {
        return is_allowed(inner, terms);
    }
    let words: Vec<_> = term.split_whitespace().collect();
    terms.contains(&words.join(" "))
}

#[test]
fn an_expression_is_allowed_by_what_it_leaves_to_choose() {
    let terms = policy().licenses.allow;
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
        assert_eq!(is_allowed(expression, &terms), expected, "{expression}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "cargo, on our own workspace")]
fn every_crate_in_the_image_may_be_handed_on() {
    let (terms, page) = (policy().licenses.allow, read("docs/release.md"));
    for term in &terms {
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
            .filter(|(_, own)| !is_allowed(own, &terms))
            .collect();
        assert!(broken.is_empty(), "{target}: {broken:?}");
    }
}
