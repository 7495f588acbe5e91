//! What the pages tell people to type: commands that exist, with flags and files that exist.

use super::*;

/// The commands of the `sh` blocks of a page, one a line.
fn commands(page: &str) -> Vec<String> {
    let lines = shell::lines(page);
    let lines = lines.iter().map(|line| line.trim_start_matches("! "));
    lines.map(str::to_owned).collect()
}

/// The words of a command up to what a shell makes of the rest.
fn words(command: &str) -> Vec<&str> {
    let ends = |word: &&str| !["#", "|", ">", "||", "&&", "2>&1", ";"].contains(word);
    command.split_whitespace().take_while(ends).collect()
}

fn pages() -> Vec<(PathBuf, String)> {
    let mut pages = files(&root().join("docs"), "md");
    pages.push(root().join("README.md"));
    pages
        .into_iter()
        .map(|path| (path.clone(), read(&path)))
        .collect()
}

/// Returns why a command cannot be parsed. A quoted word is a value, whatever is in it.
fn problem(words: &[&str]) -> Option<String> {
    let parsed = Cli::command().try_get_matches_from(words);
    let error = parsed.err().filter(clap::Error::use_stderr)?;
    Some(format!("{}: {error}", words.join(" ")))
}

#[test]
fn every_command_that_a_page_says_to_type_can_be_typed() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for (path, page) in pages() {
        for command in commands(&page) {
            let words = words(&command);
            if words.first() == Some(&"osm") {
                count += 1;
                let found = problem(&words);
                wrong.extend(found.map(|it| format!("{}: {it}", path.display())));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count >= 15, "only {count} commands are found");
    assert!(problem(&["osm", "run", "--no-such-flag"]).is_some());
}

#[test]
fn every_command_that_is_not_tested_has_a_stand_in() {
    let mut known: BTreeSet<&str> = typed::STAND_INS.iter().map(|(line, _)| *line).collect();
    for page in page_to_run::PAGES {
        for command in page.commands().unwrap() {
            let is_known = typed::stand_in(&command.line).is_some();
            let name = page.name;
            assert!(is_known || command.is_tested, "{name}: {}", command.line);
            known.remove(command.line.as_str());
        }
    }
    assert!(known.is_empty(), "no page has {known:?}");
}

#[test]
fn every_file_that_a_page_names_exists() {
    let mut count = 0;
    for (path, page) in pages() {
        for command in commands(&page) {
            let ours = words(&command).into_iter().filter(|word| {
                ["manifests/", "tests/", "tenants-example/", ".ci/"]
                    .iter()
                    .any(|folder| word.starts_with(folder))
            });
            for word in ours {
                count += 1;
                let is_there = root().join(word).exists();
                assert!(is_there, "{}: {word} is not there", path.display());
            }
        }
    }
    assert!(count >= 4, "only {count} files are found");
}
