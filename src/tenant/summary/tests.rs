use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::*;
use crate::tenant::report::ProfileTried;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn a_report(findings: &[(ConditionType, ConditionState)]) -> Report {
    Report {
        findings: findings.iter().cloned().collect(),
        existing: Some(BTreeSet::new()),
        ..Report::default()
    }
}

fn a_status(conditions: &[(&str, &str, i64)]) -> WorkerClusterStatus {
    let conditions = conditions.iter().map(|(kind, status, second)| Condition {
        type_: (*kind).to_owned(),
        status: (*status).to_owned(),
        reason: "Reason".to_owned(),
        message: "a message".to_owned(),
        last_transition_time: Time(at(*second)),
        observed_generation: None,
    });
    WorkerClusterStatus {
        conditions: conditions.collect(),
        version: Some("v1.35.0".to_owned()),
        ..WorkerClusterStatus::default()
    }
}

fn an_outcome(state: MachineDeploymentState, second: i64) -> Outcome {
    Outcome {
        state,
        reason: "Reason",
        message: Some("a message".to_owned()),
        at: at(second),
        trace_id: None,
        profile: None,
    }
}

fn outdated(outcome: Outcome) -> Outcome {
    let tried = ProfileTried {
        name: "osp-ubuntu".to_owned(),
        version: "v1".to_owned(),
        default: None,
        next: Some("v2".to_owned()),
    };
    Outcome {
        profile: Some(Box::new(tried)),
        ..outcome
    }
}

fn shown(report: &Report, status: Option<&WorkerClusterStatus>) -> Row {
    let statistics = Statistics::default();
    let known = Known {
        report,
        status,
        statistics,
    };
    row("berlin/worker".to_owned(), known)
}

#[test]
fn a_tenant_is_in_the_state_that_its_first_finding_says() {
    let wrong = |kind, reason| a_report(&[(kind, ConditionState::wrong(reason, "the cause"))]);
    for (report, state, why) in [
        (Report::default(), State::NotEngaged, None),
        (a_report(&[]), State::Healthy, None),
        (
            wrong(ConditionType::Registered, "Paused"),
            State::Paused,
            Some("Paused: the cause"),
        ),
        (
            wrong(ConditionType::Registered, "KubeconfigRefused"),
            State::Refused,
            Some("KubeconfigRefused: the cause"),
        ),
        (
            wrong(ConditionType::Connected, "Unreachable"),
            State::Unreachable,
            Some("Unreachable: the cause"),
        ),
        (
            wrong(ConditionType::Connected, "Degraded"),
            State::Degraded,
            Some("Degraded: the cause"),
        ),
        (
            wrong(ConditionType::Claimed, "ClaimedByOther"),
            State::Refused,
            Some("ClaimedByOther: the cause"),
        ),
        (
            wrong(ConditionType::ProfilesInstalled, "Failed"),
            State::NotReady,
            Some("Failed: the cause"),
        ),
        (
            wrong(ConditionType::CredentialValid, "ExpiresSoon"),
            State::Healthy,
            Some("ExpiresSoon: the cause"),
        ),
    ] {
        let row = shown(&report, None);
        assert_eq!((row.state, row.why.as_deref()), (state, why), "{report:?}");
        assert_eq!(row.since, None, "nothing tells since when");
    }
}

#[test]
fn the_condition_tells_since_when_unless_it_says_something_else() {
    let down = a_report(&[(
        ConditionType::Connected,
        ConditionState::wrong("Unreachable", "refused"),
    )]);
    let well = a_report(&[]);
    for (report, ready, connected, expected) in [
        (&down, ("False", 9), ("False", 7), Some(7)),
        (&down, ("True", 5), ("True", 5), None),
        (&well, ("True", 5), ("True", 3), Some(5)),
        (&well, ("False", 9), ("False", 7), None),
        (&Report::default(), ("Unknown", 4), ("True", 3), Some(4)),
    ] {
        let status = a_status(&[
            ("Ready", ready.0, ready.1),
            ("Connected", connected.0, connected.1),
        ]);
        let row = shown(report, Some(&status));
        assert_eq!(row.since, expected.map(|second| Moment(at(second))));
    }
}

#[test]
fn machine_deployments_are_counted_and_the_last_reconcile_is_told() {
    let mut report = a_report(&[]);
    let existing = ["a", "b", "c", "d", "e", "f"].map(str::to_owned);
    report.existing = Some(BTreeSet::from(existing));
    report.ignored = BTreeSet::from(["f".to_owned()]);
    report.outcomes = BTreeMap::from([
        (
            "a".to_owned(),
            an_outcome(MachineDeploymentState::Served, 1),
        ),
        (
            "b".to_owned(),
            outdated(an_outcome(MachineDeploymentState::Served, 9)),
        ),
        (
            "c".to_owned(),
            an_outcome(MachineDeploymentState::Refused, 3),
        ),
        (
            "d".to_owned(),
            an_outcome(MachineDeploymentState::Waiting, 2),
        ),
        (
            "gone".to_owned(),
            an_outcome(MachineDeploymentState::Failing, 5),
        ),
    ]);
    let row = shown(&report, None);
    let expected = MachineDeployments {
        total: 5,
        current: 1,
        outdated: 1,
        waiting: 2,
        failing: 1,
    };
    assert_eq!(row.machine_deployments, Some(expected));
    assert_eq!(row.state, State::NotReady);
    assert_eq!(row.why.as_deref(), Some("Reason: c: a message"));
    let last = row.last_reconcile.unwrap();
    assert_eq!(
        (last.machine_deployment.as_str(), last.at),
        ("b", Moment(at(9)))
    );
}

#[test]
fn of_a_tenant_that_another_replica_serves_its_status_tells() {
    let status = a_status(&[("Ready", "False", 7)]);
    let row = row_elsewhere("berlin/worker".to_owned(), Some(&status));
    assert_eq!(row.state, State::Elsewhere);
    assert_eq!(row.why.as_deref(), Some("Reason: a message"));
    assert_eq!(row.since, Some(Moment(at(7))));
    assert_eq!(row.version.as_deref(), Some("v1.35.0"));
    assert_eq!(row.machine_deployments, None);
    assert_eq!(row_elsewhere("a/b".to_owned(), None).why, None);
}

#[test]
fn a_long_cause_is_cut() {
    let long = ConditionState::wrong("Unreachable", "é".repeat(5_000));
    let row = shown(&a_report(&[(ConditionType::Connected, long)]), None);
    assert_eq!(row.why.unwrap().chars().count(), WHY_CHARACTERS_MAX);
}

fn names(query: &str, state: &str) -> Vec<String> {
    let down = a_report(&[(
        ConditionType::Connected,
        ConditionState::wrong("Unreachable", "Connection refused"),
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
    let filter = Filter::new(query, state);
    let told = ("osm-0".to_owned(), at(0));
    let summary = FleetSummary::new(told, rows.to_vec(), &filter);
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
        ("", "no such state", &["oslo", "berlin", "lisbon"]),
    ] {
        assert_eq!(names(query, state), expected, "{query:?} {state:?}");
    }
    let long = Filter::new(&"é".repeat(9_999), "");
    assert_eq!(long.query().chars().count(), QUERY_CHARACTERS_MAX);
}
