//! The source files and pages of the repository, for the checks of their text.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// A file and its text.
pub struct Source<'a> {
    /// The path from the root of the repository.
    pub path: &'a str,
    /// The whole text.
    pub text: &'a str,
}

impl Source<'_> {
    /// The names of the modules from the program's root to this one: `["fleet", "registry"]`. A
    /// crate below `src` is a module: `src/plan/src/desired.rs` is `["plan", "desired"]`.
    pub fn module_path(&self) -> Vec<&str> {
        let inside = self
            .path
            .split_once("src/")
            .map_or(self.path, |(_, inside)| inside);
        let mut names: Vec<&str> = inside.trim_end_matches(".rs").split('/').collect();
        if names.get(1) == Some(&"src") {
            names.remove(1);
            names.retain(|name| *name != "lib");
        }
        names
    }

    /// True if the file belongs to a crate of its own below `src`.
    pub fn is_in_crate(&self) -> bool {
        self.path
            .strip_prefix("src/")
            .is_some_and(|it| it.contains("/src/"))
    }

    pub fn is_test(&self) -> bool {
        self.path.starts_with("tests/") || self.module_path().contains(&"tests")
    }

    /// The lines before the tests that are no comments, with their numbers.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
            .map(|(index, line)| (index + 1, line))
    }
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .flat_map(|entry| {
            let path = entry.expect("an entry of a folder is readable").path();
            if path.is_dir() {
                files(&path, extension)
            } else {
                vec![path]
            }
        })
        .filter(|path| path.extension().is_some_and(|it| it == extension))
        .collect()
}

/// The files of a crate that are not for tests, by their modules; the root has an empty path.
pub fn modules(folder: &str) -> BTreeMap<Vec<String>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut modules = BTreeMap::new();
    for file in files(&root, "rs") {
        let path = file.strip_prefix(&root).expect("it is below");
        let path = path.to_string_lossy().replace(".rs", "");
        let module: Vec<String> = path.split('/').map(str::to_owned).collect();
        let module = match path.as_str() {
            "lib" => Vec::new(),
            "main" => continue,
            // Crates of their own.
            _ if module.get(1).is_some_and(|it| it == "src") => continue,
            _ if module.iter().any(|it| it == "tests" || it == "bin") => continue,
            _ => module,
        };
        let text = fs::read_to_string(&file).expect("a source file is readable");
        modules.insert(module, text);
    }
    modules
}

/// The files of a folder with an extension: their paths in the repository, and their texts.
pub fn all(folder: &str, extension: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = files(&root.join(folder), extension).into_iter();
    let mut all: Vec<_> = files
        .map(|file| {
            let text = fs::read_to_string(&file).expect("a source file is readable");
            let path = file.strip_prefix(root).expect("it is in the repository");
            (path.to_string_lossy().into_owned(), text)
        })
        .collect();
    all.sort();
    all
}

/// Returns what a check reports about all files in a folder with an extension.
pub fn check_folder(
    folder: &str,
    extension: &str,
    check: fn(&Source<'_>) -> Vec<String>,
) -> Vec<String> {
    let files = all(folder, extension);
    let broken = files
        .iter()
        .flat_map(|(path, text)| check(&Source { path, text }));
    broken.collect()
}
