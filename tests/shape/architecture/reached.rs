//! Holds that every file is part of a program: one that no module names compiles in none, and its
//! tests never run.

use std::collections::BTreeSet;

use super::source;

/// Folders outside of `src` in which each file is the root of a program.
const ROOTS: [&str; 5] = ["benches", "bin", "examples", "fuzz_targets", "tests"];

/// Splits a path into its folder and the name of its file without extension.
fn split(path: &str) -> (&str, &str) {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    (folder, file.trim_end_matches(".rs"))
}

fn is_root(path: &str) -> bool {
    let (folder, name) = split(path);
    let is_program = !path.starts_with("src/") && ROOTS.contains(&split(folder).1);
    is_program || ["main", "lib"].contains(&name)
}

/// The file that `../` in a path leads to.
fn resolved(path: &str) -> String {
    let mut names = Vec::new();
    for name in path.split('/') {
        match name {
            ".." => drop(names.pop()),
            _ => names.push(name),
        }
    }
    names.join("/")
}

/// The files of the modules that a file names.
fn named(path: &str, text: &str) -> Vec<String> {
    let (folder, name) = split(path);
    let own = if is_root(path) {
        folder.to_owned()
    } else {
        format!("{folder}/{name}")
    };
    let mut elsewhere = None;
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        let words = line
            .trim_start_matches("pub(crate) ")
            .trim_start_matches("pub(super) ");
        let module = words.trim_start_matches("pub ").strip_prefix("mod ");
        if let Some(path) = line.strip_prefix("#[path = \"") {
            elsewhere = path.strip_suffix("\"]");
        } else if let Some(module) = module.and_then(|it| it.strip_suffix(';')) {
            found.push(match elsewhere.take() {
                Some(path) => resolved(&format!("{folder}/{path}")),
                None => format!("{own}/{module}.rs"),
            });
        }
    }
    found
}

/// The files that no program has.
fn unreached(files: &[(String, String)]) -> Vec<&str> {
    let modules = files.iter().flat_map(|(path, text)| named(path, text));
    let modules: BTreeSet<String> = modules.collect();
    let paths = files.iter().map(|(path, _)| path.as_str());
    paths
        .filter(|path| !is_root(path) && !modules.contains(*path))
        .collect()
}

#[test]
fn every_file_is_part_of_a_program() {
    let files = ["src", "tests", "loadtest"].map(|folder| source::all(folder, "rs"));
    let files = files.concat();
    let unreached = unreached(&files);
    assert!(unreached.is_empty(), "no module names {unreached:#?}");
}

#[test]
fn a_file_that_no_module_names_is_reported() {
    let files = [
        (
            "tests/a/main.rs",
            "mod one;\n#[path = \"../b/two.rs\"]\nmod two;\n",
        ),
        ("tests/a/one.rs", "pub mod inner;\n"),
        ("tests/a/one/inner.rs", ""),
        ("tests/b/two.rs", ""),
        ("tests/a/lost.rs", ""),
    ];
    let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert_eq!(unreached(&files), ["tests/a/lost.rs"]);
}
