//! The index of the pages: it has every page, and what it calls a task is short enough to read.
//! Links between pages lead to a file and a heading that exist.

use std::path::Path;

use osm::api::reason::Reason;

use super::{between, files, page, pages, read, root, rows};

/// The words of a task page at most: seven minutes of reading.
const TASK_WORDS_MAX: usize = 1500;

/// The pages that a text links to, by name.
fn linked(text: &str) -> Vec<&str> {
    let links = text.split("](").skip(1);
    let targets = links.filter_map(|link| link.split([')', '#']).next());
    let is_page = |target: &&str| {
        let extension = Path::new(target).extension();
        extension.is_some_and(|it| it == "md") && !target.contains('/')
    };
    targets.filter(is_page).collect()
}

/// The words outside of blocks of code.
fn words(page: &str) -> usize {
    let prose = prose(page);
    let words = prose.split_whitespace();
    words
        .filter(|word| word.contains(char::is_alphanumeric))
        .count()
}

#[test]
fn every_page_is_in_the_index() {
    let index = page("README.md");
    let linked = linked(&index);
    let pages = files(&root().join("docs"), "md").into_iter();
    let pages = pages.filter(|path| path.parent() == Some(&root().join("docs")));
    let names = pages.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let missing: Vec<String> = names
        .filter(|name| name != "README.md" && !linked.contains(&name.as_str()))
        .collect();
    assert!(missing.is_empty(), "not in docs/README.md: {missing:?}");
}

#[test]
fn a_task_page_is_short() {
    let index = page("README.md");
    let mut sections = index.split("\n## ");
    let tasks = sections.find(|section| section.starts_with("Tasks"));
    let tasks = linked(tasks.expect("the index has tasks"));
    assert!(tasks.len() > 10, "{tasks:?}");
    let long = tasks.iter().map(|name| (name, words(&page(name))));
    let long: Vec<_> = long.filter(|(_, words)| *words > TASK_WORDS_MAX).collect();
    assert!(
        long.is_empty(),
        "more than {TASK_WORDS_MAX} words: {long:?}"
    );
}

#[test]
fn words_are_counted_outside_of_code() {
    assert_eq!(
        words("| two | words |\n```sh\nosm run\n```\n- and three more\n"),
        5
    );
}

#[test]
fn the_symptoms_name_reasons_that_exist() {
    let page = page("troubleshoot.md");
    let named = rows(&page, "A tenant is not Ready");
    let named = named.iter().filter_map(|row| row.first());
    let mut named: Vec<&str> = named.flat_map(|cell| between(cell, '`')).collect();
    assert!(named.len() > 10, "{named:?}");
    named.retain(|reason| Reason::named(reason).is_none());
    assert!(named.is_empty(), "no code gives these reasons: {named:?}");
}

/// Pages outside of `docs` that link to it.
const OUTSIDE: [&str; 6] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "manifests/helm/osm/README.md",
    "manifests/profiles/README.md",
    "tenants-example/README.md",
];

/// The text outside of blocks of code.
fn prose(page: &str) -> String {
    let mut is_code = false;
    let lines = page.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let letters = heading.trim().to_lowercase();
    let letters = letters.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    });
    letters.collect()
}

/// Whether a page has this anchor: that of a heading, or one of its own.
fn has_anchor(page: &Path, wanted: &str) -> bool {
    let text = prose(&read(page));
    let mut headings = text.lines().filter(|line| line.starts_with('#'));
    headings.any(|line| anchor(line.trim_start_matches('#')) == wanted)
        || text.contains(&format!("<a id=\"{wanted}\"></a>"))
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    let outside = OUTSIDE.map(|name| root().join(name));
    let mut wrong = Vec::new();
    for file in pages().into_iter().chain(outside) {
        let text = prose(&read(&file));
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap_or_default();
            if link.contains("://") {
                continue;
            }
            let (target, wanted) = link.split_once('#').unwrap_or((link, ""));
            let target = if target.is_empty() {
                file.clone()
            } else {
                file.with_file_name(target)
            };
            let leads = target.exists() && (wanted.is_empty() || has_anchor(&target, wanted));
            if !leads {
                wrong.push(format!("{}: {link}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_anchor_is_the_heading_in_small_letters() {
    assert_eq!(anchor(" Flags of `osm run`"), "flags-of-osm-run");
    assert_eq!(
        anchor(" In Go's template language"),
        "in-gos-template-language"
    );
}
