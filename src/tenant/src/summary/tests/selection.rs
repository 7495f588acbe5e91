//! What is counted of a fleet, and which tenants a reader selects.

use super::{super::query::QUERY_CHARACTERS_MAX, *};

fn filter(parameters: &[(&str, &str)]) -> Filter {
    let mut filter = Filter::default();
    for (name, value) in parameters {
        filter.set(name, value);
    }
    filter
}

/// A row as its name, state, reason and since when.
type Told = (&'static str, State, Option<&'static str>, Option<i64>);

const FLEET: [Told; 8] = [
    ("a", State::Unreachable, Some("Unreachable"), Some(7_000)),
    ("b", State::Unreachable, Some("Unreachable"), Some(3_400)),
    ("c", State::Unreachable, Some("Unreachable"), Some(3_399)),
    ("d", State::NotReady, Some("ProfileNotFound"), None),
    ("e", State::Paused, Some("Paused"), Some(6_999)),
    ("f", State::NotReady, Some("OfAnotherRelease"), Some(1)),
    ("g", State::NotReady, Some("OfAnotherRelease"), Some(2)),
    ("h", State::Healthy, None, Some(5_000)),
];

fn a_summary(filter: &Filter) -> FleetSummary {
    let rows = FLEET.map(|(name, state, reason, since)| Row {
        name: name.to_owned(),
        state,
        reason: reason.map(str::to_owned),
        since: since.map(|second| Rfc3339Time(at(second))),
        ..shown(&a_report(&[]), None)
    });
    let taken_by = ("osm-0".to_owned(), at(7_000));
    let mut summary = FleetSummary::new(taken_by, rows.to_vec(), Sort::default());
    summary.select(filter);
    summary
}

#[test]
fn the_fleet_is_counted_by_state_recent_changes_and_common_causes() {
    let summary = a_summary(&filter(&[("state", "Healthy")]));
    let states = [
        ("Unreachable", 3),
        ("NotReady", 3),
        ("Paused", 1),
        ("Healthy", 1),
    ];
    assert_eq!(summary.states, BTreeMap::from(states));
    let changed = [("Unreachable", 2), ("Paused", 1), ("Healthy", 1)];
    assert_eq!(summary.changed_last_hour, BTreeMap::from(changed));
    let causes: Vec<_> = summary
        .causes
        .iter()
        .map(|it| (it.reason.as_str(), it.tenants, it.remediation.is_some()))
        .collect();
    let expected = [
        ("Unreachable", 3, true),
        // This version cannot know that it is no problem.
        ("OfAnotherRelease", 2, false),
        ("ProfileNotFound", 1, true),
    ];
    assert_eq!(causes, expected, "what somebody asked for is no problem");
}

#[test]
fn of_many_causes_the_five_commonest_are_listed() {
    let rows = (0..40).flat_map(|number| {
        let row = Row {
            reason: Some(format!("Reason{number:02}")),
            ..shown(&a_report(&[]), None)
        };
        std::iter::repeat_n(row, 1 + number % 10)
    });
    let causes = Overview::of(&rows.collect::<Vec<_>>(), at(0)).causes;
    let causes = causes.iter().map(|it| (it.reason.as_str(), it.tenants));
    let expected = [
        ("Reason09", 10),
        ("Reason19", 10),
        ("Reason29", 10),
        ("Reason39", 10),
        ("Reason08", 9),
    ];
    assert_eq!(causes.collect::<Vec<_>>(), expected);
}

#[test]
fn each_number_selects_the_tenants_that_it_counts() {
    for (parameters, expected) in [
        (&[("changed", "1h")][..], &["a", "b", "e", "h"][..]),
        (&[("state", "Unreachable"), ("changed", "1h")], &["a", "b"]),
        (&[("reason", "OfAnotherRelease")], &["f", "g"]),
        (&[("reason", "Other")], &[]),
        (
            &[("reason", ""), ("changed", ""), ("state", "Paused")],
            &["e"],
        ),
        (&[("state", "Bogus"), ("state", "paused")], &["e"]),
    ] {
        let summary = a_summary(&filter(parameters));
        let names = summary.tenants.iter().map(|row| row.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), expected, "{parameters:?}");
    }
    let bogus = filter(&[("state", "Bogus")]);
    assert_eq!(bogus.unknown_state(), Some("Bogus"));
    assert!(!bogus.is_empty() && filter(&[("q", " "), ("other", "a")]).is_empty());
}

fn names(query: &str, state: &str) -> Vec<String> {
    let down = a_report(&[(
        ConditionType::Connected,
        ConditionState::wrong(Reason::Unreachable, "Connection refused"),
    )]);
    let well = a_report(&[]);
    let version = Report {
        version: Some("v1.36.0".to_owned()),
        ..well.clone()
    };
    let rows = [("lisbon", &well), ("berlin", &version), ("oslo", &down)];
    let rows = rows.map(|(name, report)| Row {
        name: name.to_owned(),
        ..shown(report, None)
    });
    let filter = filter(&[("q", query), ("state", state)]);
    let taken_by = ("osm-0".to_owned(), at(0));
    let mut summary = FleetSummary::new(taken_by, rows.to_vec(), Sort::default());
    summary.select(&filter);
    assert_eq!(summary.total, 3, "whatever is asked for");
    assert_eq!(summary.states["Healthy"], 2);
    summary.tenants.into_iter().map(|row| row.name).collect()
}

#[test]
fn rows_are_filtered_by_name_cause_version_and_state_worst_first() {
    for (query, state, expected) in [
        ("", "", &["oslo", "berlin", "lisbon"][..]),
        (" BER ", "", &["berlin"]),
        ("connection REFUSED", "", &["oslo"]),
        ("v1.36", "", &["berlin"]),
        ("", "healthy", &["berlin", "lisbon"]),
        ("lis", "Healthy", &["lisbon"]),
        ("oslo", "Healthy", &[]),
        ("", "no such state", &[]),
    ] {
        assert_eq!(names(query, state), expected, "{query:?} {state:?}");
    }
    let long = filter(&[("q", &"é".repeat(9_999))]);
    assert_eq!(long.query().chars().count(), QUERY_CHARACTERS_MAX);
}

#[test]
fn rows_are_sorted_by_each_column_and_those_without_a_value_are_last() {
    let report = Report {
        version: Some("v1.9.1".to_owned()),
        ..a_report(&[])
    };
    let newer = Report {
        version: Some("v1.10.0".to_owned()),
        existing: Some(BTreeSet::from(["a".to_owned()])),
        outcomes: BTreeMap::from([(
            "a".to_owned(),
            an_outcome(MachineDeploymentState::Failing, 9),
        )]),
        ..a_report(&[])
    };
    let earlier = Report {
        outcomes: BTreeMap::from([(
            "b".to_owned(),
            an_outcome(MachineDeploymentState::Served, 5),
        )]),
        ..report.clone()
    };
    let status = a_status(&[("Ready", "False", 7)]);
    let row = |name: &str, report, status| Row {
        name: name.to_owned(),
        ..shown(report, status)
    };
    let rows = vec![
        row("b", &earlier, None),
        row("a", &newer, Some(&status)),
        row(
            "c",
            &Report::default(),
            Some(&a_status(&[("Ready", "Unknown", 3)])),
        ),
    ];
    for (sort, expected) in [
        ("", ["a", "c", "b"]),
        ("no such key", ["a", "c", "b"]),
        ("state", ["a", "c", "b"]),
        ("-state", ["b", "c", "a"]),
        ("name", ["a", "b", "c"]),
        ("-name", ["c", "b", "a"]),
        ("for", ["a", "c", "b"]),
        ("-for", ["c", "a", "b"]),
        ("failing", ["b", "a", "c"]),
        ("-failing", ["a", "b", "c"]),
        ("reconcile", ["a", "b", "c"]),
        ("-reconcile", ["b", "a", "c"]),
        ("version", ["b", "a", "c"]),
        ("-version", ["a", "b", "c"]),
    ] {
        let parsed = Sort::parse(sort);
        let summary = FleetSummary::new(("osm-0".to_owned(), at(9)), rows.clone(), parsed);
        let names = summary.tenants.iter().map(|row| row.name.as_str());
        assert_eq!(names.collect::<Vec<_>>(), expected, "{sort}");
        assert_eq!(Sort::parse(&parsed.text()), parsed);
        assert_eq!(parsed.reversed().reversed(), parsed);
    }
}
