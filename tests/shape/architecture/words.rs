//! Keeps names, comments, messages and pages in plain English.

use crate::architecture::source::{Source, check_folder};

/// Words and phrases that nobody expects in documentation of Kubernetes, and internal names that
/// have been replaced by a term of the field.
const NOT_PLAIN: &[&str] = &[
    "anew",
    "asks for patience",
    "bell",
    "bereaved",
    "crew",
    "does not get on",
    "enrol",
    "for ever",
    "gives turns",
    "intake",
    "lifeline",
    "looking again",
    "of ours",
    "pulse",
    "roster",
    "setback",
    "so many",
    "tell of",
    "tells of",
    "told of",
    "what is none",
    "whoever",
];

/// The file that lists the words.
const THIS_FILE: &str = "tests/shape/architecture/words.rs";

/// Reports words that are not plain, in names, comments, messages and pages. A phrase may span two
/// lines.
fn check_words(source: &Source<'_>) -> Vec<String> {
    let path = source.path;
    let lines: Vec<String> = source.text.lines().map(words).collect();
    let mut broken = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let next = lines.get(index + 1).map_or("", String::as_str);
        let both = format!("{} {} ", line.trim_end(), next.trim());
        for phrase in NOT_PLAIN {
            let phrase_words = format!(" {phrase} ");
            if both.contains(&phrase_words) && !next.contains(&phrase_words) {
                let number = index + 1;
                broken.push(format!("{path}:{number}: `{phrase}` is not plain English"));
            }
        }
    }
    broken
}

/// Returns the words of a line in lower case, with a space around each. Underscores separate words,
/// too.
fn words(line: &str) -> String {
    let words: Vec<&str> = line
        .split(|character: char| !character.is_alphabetic())
        .filter(|word| !word.is_empty())
        .collect();
    format!(" {} ", words.join(" ")).to_lowercase()
}

#[test]
fn names_comments_messages_and_pages_are_plain() {
    let folders = [
        "src",
        "tests",
        "docs",
        "loadtest/src",
        "loadtest/fake-cluster/src",
    ];
    let manifests = ["rbac", "crds", "helm", "kustomize", "monitoring"];
    let manifests = manifests.map(|folder| format!("manifests/{folder}"));
    let folders = folders.map(|folder| (folder.to_owned(), ["rs", "md"].as_slice()));
    let manifests = manifests.map(|folder| (folder, ["yaml", "md"].as_slice()));
    let mut broken = folders
        .iter()
        .chain(&manifests)
        .flat_map(|(folder, extensions)| {
            let check = |extension: &&str| check_folder(folder, extension, check_words);
            extensions.iter().flat_map(check)
        })
        .filter(|message| !message.starts_with(THIS_FILE))
        .collect::<Vec<_>>();
    broken.sort();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn a_word_that_is_not_plain_is_reported_with_its_place() {
    for (text, expected) in [
        (
            "//! x\nfn is_made_anew() {}",
            "a.rs:2: `anew` is not plain English",
        ),
        (
            "//! It waits for\n//! ever, and ends.\n",
            "a.rs:1: `for ever` is not plain English",
        ),
        ("//! Anew.", "a.rs:1: `anew` is not plain English"),
    ] {
        let source = Source { path: "a.rs", text };
        assert_eq!(check_words(&source), [expected]);
    }
    let plain = Source {
        path: "a.rs",
        text: "//! Rendered again. Renewed.\n",
    };
    assert_eq!(check_words(&plain), [""; 0]);
}
