//! The page of reasons and the reasons of the code.

use std::collections::BTreeSet;

use osm::api::reason::Reason;

use super::{assert_current, between, code, files, page, read, root, rows};

/// Those that the page explains above its tables.
const OF_READY: [Reason; 2] = [Reason::Ready, Reason::Engaging];

#[test]
fn every_reason_has_a_row_and_every_row_a_reason() {
    let page = page("reasons.md");
    let tables = [
        ("Conditions of a WorkerCluster", 1),
        ("Entries of machine deployments", 0),
        ("Events", 1),
    ];
    let told: BTreeSet<&str> = tables
        .iter()
        .flat_map(|(heading, column)| {
            let cells = rows(&page, heading).into_iter();
            cells.filter_map(|row| row.get(*column).copied())
        })
        .flat_map(|cell| between(cell, '`'))
        .collect();
    let known = Reason::ALL.iter().filter(|it| !OF_READY.contains(it));
    assert_eq!(told, known.map(|it| it.as_str()).collect());
}

/// Where conditions, entries and Events are made. Commands only read reasons.
const GIVEN_IN: [&str; 5] = [
    "src/client",
    "src/controllers",
    "src/fleet",
    "src/plan",
    "src/tenant",
];

#[test]
fn the_manager_gives_every_reason() {
    let sources = GIVEN_IN
        .iter()
        .flat_map(|folder| files(&root().join(folder), "rs"));
    let texts: Vec<String> = sources.map(|file| read(&file)).collect();
    let given: BTreeSet<&str> = texts
        .iter()
        .flat_map(|text| code(text))
        .flat_map(|line| line.split("Reason::").skip(1))
        .filter_map(|rest| rest.split(|it: char| !it.is_alphanumeric()).next())
        .collect();
    let silent = Reason::ALL.iter().filter(|it| !given.contains(it.as_str()));
    assert_eq!(silent.collect::<Vec<_>>(), Vec::<&Reason>::new());
}

#[test]
fn the_page_says_how_bad_who_acts_and_what_to_do_as_the_code_does() {
    let page = page("reasons.md");
    let lines = page.lines().map(|line| {
        let Some(row) = line.strip_prefix("| ").and_then(|it| it.strip_suffix('|')) else {
            return line.to_owned();
        };
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [first, second, _, _, meaning, _] = cells.as_slice() else {
            return line.to_owned();
        };
        // The first cell of a condition is the condition.
        let mut words = between(second, '`').chain(between(first, '`'));
        let Some(reason) = words.find_map(Reason::named) else {
            return line.to_owned();
        };
        let severity = reason.severity().as_str();
        let actor = reason.actor().as_str().unwrap_or_default();
        let what = reason.remediation_in_markdown();
        let cells = [first, second, severity, actor, meaning, what];
        let cells = cells.map(|it| {
            if it.is_empty() {
                " ".to_owned()
            } else {
                format!(" {it} ")
            }
        });
        format!("|{}|", cells.join("|"))
    });
    let expected: String = lines.map(|line| line + "\n").collect();
    assert_current("reasons.md", &expected);
}

#[test]
fn the_state_of_an_entry_and_the_severity_of_its_reason_agree() {
    let page = page("reasons.md");
    for row in rows(&page, "Entries of machine deployments") {
        let [reason, state, severity, ..] = row.as_slice() else {
            continue;
        };
        let expected: &[&str] = match *state {
            "Served" => &["Normal", "Warning"],
            "Waiting" => &["Pending"],
            "Refused" | "Failing" => &["Error"],
            _ => continue,
        };
        assert!(expected.contains(severity), "{reason}: {state}, {severity}");
    }
}
