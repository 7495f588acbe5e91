//! The crates that compute values from values: what they may not depend on, and not name.

use crate::architecture::circles;
use crate::architecture::source::{self, Source};

/// Crates that compute the same answer on every machine at every time. Here is what they may not
/// depend on and not name; `src/clippy.toml` has what they may not call.
pub const CRATES: &[&str] = &["api", "tenant", "render", "rules", "plan"];

/// Clients, runtimes, logs and randomness.
const NOT_IN_PURE: &[&str] = &[
    "futures",
    "hyper",
    "kube",
    "kube-client",
    "kube-runtime",
    "rand",
    "tokio",
    "tower",
    "tracing",
];

/// What of the standard library makes an answer depend on the machine or the time.
const NOT_IN_PURE_STD: &[&str] = &[
    "std::env",
    "std::fs",
    "std::io::stderr",
    "std::io::stdin",
    "std::io::stdout",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::UdpSocket",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// What is wrong with the pure crates.
pub fn check() -> Vec<String> {
    let mut broken = Vec::new();
    for module in CRATES {
        let folder = format!("src/{module}");
        broken.extend(source::check_folder(&folder, "toml", check_manifest));
        let files = source::modules(&format!("{folder}/src"));
        broken.extend(files.iter().flat_map(|(file, text)| {
            let broken = check_outside(text).into_iter();
            broken.map(move |it| format!("{module}::{}: {it}", file.join("::")))
        }));
    }
    broken
}

/// What is wrong with the dependencies of a pure crate.
fn check_manifest(source: &Source<'_>) -> Vec<String> {
    let manifest: toml::Table = source.text.parse().expect("cargo reads it, too");
    let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
    let names = dependencies.into_iter().flat_map(toml::Table::keys);
    names
        .filter(|name| NOT_IN_PURE.contains(&name.as_str()))
        .map(|name| format!("{}: a pure crate may not depend on {name}", source.path))
        .collect()
}

/// What a file of a pure crate names and may not.
fn check_outside(text: &str) -> Vec<String> {
    let is_below = |path: &str, banned: &str| {
        let rest = path.strip_prefix(banned);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let paths = circles::outside(text).into_iter();
    paths
        .filter(|path| NOT_IN_PURE_STD.iter().any(|it| is_below(path, it)))
        .map(|path| format!("a pure crate may not name `{path}`"))
        .collect()
}

#[test]
fn what_a_pure_crate_may_not_use_is_reported_however_it_is_written() {
    for (text, expected) in [
        ("use std::{env, fmt};", "std::env"),
        ("use std::time::{Duration, Instant};", "std::time::Instant"),
        ("fn f() { std::fs::read(\"x\"); }", "std::fs::read"),
    ] {
        let expected = format!("a pure crate may not name `{expected}`");
        assert_eq!(check_outside(text), [expected], "{text}");
    }
    let tests = "#[cfg(test)]\nmod tests { use std::fs; }\nuse std::{fmt, net::IpAddr};";
    assert_eq!(check_outside(tests), [""; 0]);
    for (name, count) in [("tokio", 1), ("kube", 1), ("kube-core", 0)] {
        let text = &format!("[dependencies]\n{name} = \"1\"\n[dev-dependencies]\nrand = \"1\"");
        let path = "src/plan/Cargo.toml";
        assert_eq!(
            check_manifest(&Source { path, text }).len(),
            count,
            "{name}"
        );
    }
}
