//! Holds the shape of the tree: which module may use which, what the pure modules may not touch,
//! which names are made in one place only, how large a file may grow, and what bounds what is kept.
//!
//! It reads text, so it guards against habit, not against malice. What the compiler's lints can
//! hold (the length of functions, the number of arguments) stands in `Cargo.toml` instead.

mod circles;
mod kept;
mod logs;
mod pure;
mod reached;
mod size;
pub mod source;
mod words;

use source::Source;

/// Every module at the top, with the modules that it may use.
const MAY_USE: &[(&str, &str)] = &[
    ("main", ""),
    ("lib", ""),
    ("api", ""),
    ("tenant", "api"),
    ("render", "api tenant"),
    ("rules", "api tenant render"),
    ("plan", "api tenant render rules"),
    ("telemetry", ""),
    ("port", ""),
    ("settings", "api tenant rules telemetry"),
    ("client", "api tenant telemetry"),
    ("fleet", "api tenant telemetry client"),
    ("render_worker", "api tenant render rules client"),
    (
        "controllers",
        "api tenant render render_worker rules plan client fleet telemetry",
    ),
    (
        "admission",
        "api tenant render render_worker rules telemetry port",
    ),
    ("admin", "api tenant telemetry port"),
    (
        "app",
        "api tenant render render_worker rules plan telemetry settings client fleet controllers admission admin",
    ),
    (
        "commands",
        "api tenant render render_worker rules plan telemetry settings client fleet controllers app",
    ),
    (
        "cli",
        "api tenant render render_worker rules plan settings app commands telemetry",
    ),
];

/// Why one file prints.
const PRINTED: &str = "cli/output.rs escapes what others wrote before it reaches a terminal";

/// What is named in few files only, with those files, and the reason.
const ONLY_IN: &[(&str, &[&str], &str)] = &[
    (
        "DashMap",
        &["src/fleet/registry.rs"],
        "a guard that leaves its file deadlocks its shard",
    ),
    (
        "tokio::spawn",
        &[],
        "spawn into a JoinSet: a detached panic is never seen",
    ),
    (
        "task::spawn(",
        &[],
        "spawn into a JoinSet: a detached panic is never seen",
    ),
    (
        "watcher(",
        &[
            "src/controllers/watch.rs",
            "src/controllers/profile_store.rs",
            "src/client/watch.rs",
            "src/commands/tenants.rs",
            "src/fleet/discovery.rs",
            "src/fleet/discovery/kkp/hints.rs",
            "src/fleet/worker_clusters.rs",
        ],
        "every watch is budgeted, and its backoff comes last; client/watch.rs says why",
    ),
    (
        "error:#}",
        &[],
        "telemetry/chain.rs makes the text of errors, also of those that a real API server answers",
    ),
    (
        "%error,",
        &[
            "src/admin/fleet_page.rs",
            "src/admin/fleet_page/refusal.rs",
            "src/admin/fleet_page/token_file.rs",
            "src/cli/run.rs",
            "src/telemetry.rs",
        ],
        "telemetry/chain.rs makes the text of errors, also of those that a real API server answers",
    ),
    (
        ".list(&",
        &["src/client/pages.rs"],
        "a list decodes object by object: one bad object must not hide the others",
    ),
    (
        "Kubeconfig::",
        &["src/app/management.rs"],
        "what a tenant wrote goes through tenant/access.rs",
    ),
    (
        "Config::infer",
        &["src/app/management.rs"],
        "only the composition root connects to the management API",
    ),
    (
        "rand::",
        &[
            "src/client/jitter.rs",
            "src/controllers/machine_deployment/dereference.rs",
            "src/app.rs",
            "src/app/single/leader.rs",
            "src/settings/replica.rs",
        ],
        "delays are drawn by client/jitter.rs, which a simulation repeats by a number; the others \
         draw secrets and identities",
    ),
    ("print!(", &["src/cli/output.rs"], PRINTED),
    ("println!(", &["src/cli/output.rs"], PRINTED),
    ("io::stdout", &["src/cli/output.rs"], PRINTED),
    ("io::stderr", &["src/telemetry.rs"], PRINTED),
    ("#[allow(", &[], "say #[expect(…, reason = \"…\")]"),
    ("#![allow(", &[], "say #[expect(…, reason = \"…\")]"),
    ("TODO", &[], "nothing lands unfinished"),
    ("FIXME", &[], "nothing lands unfinished"),
];

/// Names that say nothing about what is inside.
const NOT_A_NAME: &[&str] = &[
    "base", "common", "core", "helper", "helpers", "manager", "misc", "mod", "util", "utils",
];

/// Over this there is a second idea in the file.
const FILE_LINES_MAX: usize = 500;
/// As wide as two files beside each other. Text in quotes may be longer where it cannot be broken.
const LINE_COLUMNS_MAX: usize = 100;

/// What is wrong with a file, wherever it is.
fn check_shape(source: &Source<'_>) -> Vec<String> {
    let path = source.path;
    let mut broken = Vec::new();
    for name in source.module_path() {
        if NOT_A_NAME.contains(&name) {
            broken.push(format!(
                "{path}: `{name}` says nothing about what is inside"
            ));
        }
    }
    if !source.text.starts_with("//!") && !source.path.contains("/tests") {
        broken.push(format!("{path}: the file does not say what it is for"));
    }
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        broken.push(format!(
            "{path}: {lines} lines are more than {FILE_LINES_MAX}"
        ));
    }
    for (index, line) in source.text.lines().enumerate() {
        if line.chars().count() > LINE_COLUMNS_MAX && !line.contains('"') {
            broken.push(format!(
                "{path}:{}: wider than {LINE_COLUMNS_MAX}",
                index + 1
            ));
        }
    }
    broken
}

/// What is wrong with a file of the program: what it uses, and what it names.
fn check_use(source: &Source<'_>) -> Vec<String> {
    let path = source.path;
    let modules = source.module_path();
    let module = modules.first().copied().unwrap_or_default();
    let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == module) else {
        return vec![format!("{path}: `{module}` has no row in MAY_USE")];
    };
    let mut broken = Vec::new();
    for (number, line) in source.code() {
        for used in used_modules(line, source) {
            if used.is_empty() {
                broken.push(format!(
                    "{path}:{number}: name one module per `use crate::`"
                ));
            } else if used != module && !allowed.split(' ').any(|it| it == used) {
                broken.push(format!("{path}:{number}: `{module}` may not use `{used}`"));
            }
        }
        for (token, files, reason) in ONLY_IN {
            if line.contains(token) && !files.contains(&path) && !source.is_test() {
                broken.push(format!(
                    "{path}:{number}: `{token}` may not stand here: {reason}"
                ));
            }
        }
    }
    broken
}

/// The modules at the top that a line of a file names: behind `crate::`, or behind as many
/// `super::` as lead there; in a crate of its own, behind `osm_`.
fn used_modules<'a>(line: &'a str, source: &Source<'_>) -> Vec<&'a str> {
    let behind = |mark: &str| line.split(mark).skip(1).map(first_word).collect::<Vec<_>>();
    let is_module = |used: &&str| MAY_USE.iter().any(|(name, _)| name == used);
    if source.is_in_crate() {
        return behind("osm_").into_iter().filter(is_module).collect();
    }
    let chain = "super::".repeat(source.module_path().len());
    let mut used = behind("crate::");
    used.extend(behind(&chain).into_iter().filter(is_module));
    used
}

fn first_word(text: &str) -> &str {
    let end = text.find(|character: char| !character.is_alphanumeric() && character != '_');
    text.get(..end.unwrap_or(text.len())).unwrap_or_default()
}

#[test]
fn modules_use_what_is_below_them_and_pure_ones_touch_nothing() {
    let mut broken = source::check_folder("src", "rs", check_use);
    broken.extend(pure::check());
    broken.extend(logs::check());
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn every_file_is_small_and_says_what_it_is_for() {
    let folders = ["src", "tests", "loadtest/src", "loadtest/fake-cluster/src"];
    let broken = folders
        .map(|folder| source::check_folder(folder, "rs", check_shape))
        .concat();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn files_do_not_use_each_other_in_a_circle() {
    let crates = pure::CRATES
        .iter()
        .map(|module| format!("src/{module}/src"));
    let others = ["src", "loadtest/src", "loadtest/fake-cluster/src"].map(str::to_owned);
    for folder in crates.chain(others) {
        let circles = circles::circles(&source::modules(&folder));
        assert!(circles.is_empty(), "{folder}: {circles:#?}");
    }
}

/// Returns what all checks report about one made-up file.
fn check(path: &str, text: &str) -> Vec<String> {
    let source = Source { path, text };
    [check_shape(&source), check_use(&source)].concat()
}

#[test]
fn a_good_file_is_not_reported() {
    for (path, text) in [
        (
            "src/plan/src/changes.rs",
            "//! x\nuse osm_api::names;\nuse crate::desired;\n",
        ),
        ("src/fleet/registry.rs", "//! x\nuse dashmap::DashMap;\n"),
        (
            "src/fleet.rs",
            "//! Never calls `tokio::spawn`.\nuse super::super::x;\n",
        ),
        (
            "src/api/src/lib.rs",
            "//! x\n#[cfg(test)]\nmod tests { use std::fs; }\n",
        ),
        ("src/render/src/tests.rs", "use std::fs;\n"),
        (
            "src/tenant/src/access/error.rs",
            "//! x\nuse super::super::address::AddressRefused;\n",
        ),
    ] {
        assert_eq!(check(path, text), [""; 0], "{path}");
    }
}

/// Expects one complaint about a file, and its beginning.
fn reports(cases: &[(&str, &str, &str)]) {
    for (path, text, expected) in cases {
        let broken = check(path, text);
        let is_alone = matches!(&broken[..], [only] if only.starts_with(expected));
        assert!(
            is_alone,
            "one message is expected, which begins with {expected}: {broken:?}"
        );
    }
}

#[test]
fn a_use_of_what_is_not_below_is_reported_with_its_place() {
    reports(&[
        (
            "src/render/src/a.rs",
            "//! x\nuse osm_rules::lint;",
            "src/render/src/a.rs:2: `render` may not use",
        ),
        (
            "src/admin/a.rs",
            "//! x\nuse super::super::plan;",
            "src/admin/a.rs:2: `admin` may not use",
        ),
        (
            "src/port.rs",
            "//! x\nuse super::tenant;",
            "src/port.rs:2: `port` may not use `tenant`",
        ),
        (
            "src/fleet.rs",
            "//! x\nuse crate::{api, rules};",
            "src/fleet.rs:2: name one module",
        ),
        (
            "src/engine.rs",
            "//! x",
            "src/engine.rs: `engine` has no row",
        ),
    ]);
}

#[test]
fn a_token_in_the_wrong_place_is_reported_with_its_place() {
    reports(&[
        (
            "src/app.rs",
            "//! x\nlet m = DashMap::new();",
            "src/app.rs:2: `DashMap` may not stand",
        ),
        (
            "src/app.rs",
            "//! x\ntokio::spawn(x);",
            "src/app.rs:2: `tokio::spawn` may not stand",
        ),
        (
            "src/fleet.rs",
            "//! x\nwatcher(api, x)",
            "src/fleet.rs:2: `watcher(` may not stand",
        ),
        (
            "src/fleet/tenant_limits.rs",
            "//! x\nlet share = rand::rng().random_range(0.9..=1.1);",
            "src/fleet/tenant_limits.rs:2: `rand::` may not stand",
        ),
        (
            "src/cli/doctor.rs",
            "//! x\neprintln!(\"{message}\");",
            "src/cli/doctor.rs:2: `println!(` may not stand",
        ),
    ]);
}

#[test]
fn a_file_out_of_shape_is_reported() {
    let long = format!("//! x\n{}", "\n".repeat(FILE_LINES_MAX));
    let wide = format!("//! {}\n", "x".repeat(LINE_COLUMNS_MAX));
    reports(&[
        (
            "src/plan/src/utils.rs",
            "//! x",
            "src/plan/src/utils.rs: `utils` says nothing",
        ),
        (
            "src/fleet/mod.rs",
            "//! x",
            "src/fleet/mod.rs: `mod` says nothing",
        ),
        (
            "src/app.rs",
            "use std::fmt;",
            "src/app.rs: the file does not say",
        ),
        (
            "src/app.rs",
            &long,
            "src/app.rs: 501 lines are more than 500",
        ),
        ("src/app.rs", &wide, "src/app.rs:1: wider than 100"),
    ]);
}
