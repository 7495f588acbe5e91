//! How large each part may be: a part grows only on purpose. Who raises a number says in the
//! commit's message what its reader gets for it; who deletes lowers it.

use std::collections::BTreeMap;

use super::source::{self, Source};

/// Lines of code of each module of `src`: without comments, blank lines and tests.
const CODE: &[(&str, usize)] = &[
    ("admin", 1024),
    ("admission", 1010),
    ("api", 1988),
    ("app", 1318),
    ("cli", 4121),
    ("client", 3983),
    ("commands", 7635),
    ("controllers", 8698),
    ("fleet", 7503),
    ("lib", 17),
    ("main", 12),
    ("plan", 2499),
    ("port", 241),
    ("render", 17111),
    ("render_worker", 609),
    ("rules", 4028),
    ("settings", 2033),
    ("telemetry", 2244),
    ("tenant", 3545),
];

/// Lines of Rust in each folder of tests, and of the programs that tests run.
const TESTS: &[(&str, usize)] = &[
    ("loadtest/benches", 461),
    ("loadtest/fake-cluster", 9440),
    ("loadtest/src", 11947),
    ("loadtest/tests", 638),
    ("tests/behaviour", 12736),
    ("tests/cli", 1212),
    ("tests/fuzz", 367),
    ("tests/hostile", 607),
    ("tests/in_memory", 2401),
    ("tests/install", 3609),
    ("tests/kkp", 70),
    ("tests/pages", 869),
    ("tests/readers", 5698),
    ("tests/rendering", 1130),
    ("tests/shape", 5071),
    ("tests/simulation", 2218),
    ("tests/sweep", 9444),
];

/// How far above what it limits a number may be.
const SLACK: usize = 100;

fn code_by_module() -> BTreeMap<String, usize> {
    let mut counted = BTreeMap::new();
    for (path, text) in source::all("src", "rs") {
        let source = Source {
            path: &path,
            text: &text,
        };
        let module = source.module_path().first().copied().unwrap_or_default();
        let lines = if source.is_test() {
            0
        } else {
            source
                .code()
                .filter(|(_, line)| !line.trim().is_empty())
                .count()
        };
        *counted.entry(module.to_owned()).or_default() += lines;
    }
    counted
}

fn lines_by_folder() -> BTreeMap<String, usize> {
    let mut counted = BTreeMap::new();
    for (path, text) in ["tests", "loadtest"]
        .map(|it| source::all(it, "rs"))
        .concat()
    {
        let mut names = path.split('/').take(2);
        let folder = [names.next(), names.next()].map(Option::unwrap_or_default);
        *counted.entry(folder.join("/")).or_default() += text.lines().count();
    }
    counted
}

/// What of the counted parts is not within its limit.
fn broken(counted: &BTreeMap<String, usize>, limits: &[(&str, usize)]) -> Vec<String> {
    let mut broken = Vec::new();
    for (part, lines) in counted {
        match limits.iter().find(|(name, _)| name == part) {
            None => broken.push(format!("{part}: {lines} lines, and no limit")),
            Some((_, limit)) if lines > limit => {
                broken.push(format!("{part}: {lines} lines are more than {limit}"));
            }
            Some((_, limit)) if lines + SLACK < *limit => {
                broken.push(format!("{part}: {lines} lines; lower the limit of {limit}"));
            }
            Some(_) => {}
        }
    }
    let is_gone = |name: &&str| !counted.contains_key(*name);
    let gone = limits.iter().map(|(name, _)| name).filter(|it| is_gone(it));
    broken.extend(gone.map(|name| format!("{name}: it is gone")));
    broken
}

#[test]
fn no_part_grows_by_the_way() {
    let mut all = broken(&code_by_module(), CODE);
    all.extend(broken(&lines_by_folder(), TESTS));
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn a_part_that_grew_shrank_or_went_is_reported() {
    let counted = BTreeMap::from([("a".to_owned(), 200), ("b".to_owned(), 200)]);
    for (limits, reported) in [
        (&[("a", 200), ("b", 300)][..], 0),
        (&[("a", 199), ("b", 200)], 1),
        (&[("a", 200), ("b", 301)], 1),
        (&[("a", 200)], 1),
        (&[("a", 200), ("b", 200), ("c", 1)], 1),
    ] {
        assert_eq!(broken(&counted, limits).len(), reported, "{limits:?}");
    }
}
