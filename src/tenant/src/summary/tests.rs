use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use osm_api::{
    condition::ConditionType,
    reason::Reason,
    worker_cluster::{MachineDeploymentEntry, MachineDeploymentState, WorkerClusterStatus},
};

use super::{cause::WHY_CHARACTERS_MAX, *};
use crate::report::{ConditionState, Outcome, ProfileTried, Report};

mod selection;

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
        reason: Reason::CallFailed,
        message: Some("a message".to_owned()),
        at: at(second),
        waits_since: None,
        trace_id: None,
        profile: None,
        behind: None,
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
    let known = ServedTenant {
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
            wrong(ConditionType::Registered, Reason::Paused),
            State::Paused,
            Some("Paused: the cause"),
        ),
        (
            wrong(ConditionType::Registered, Reason::KubeconfigRefused),
            State::Refused,
            Some("KubeconfigRefused: the cause"),
        ),
        (
            wrong(ConditionType::Connected, Reason::Unreachable),
            State::Unreachable,
            Some("Unreachable: the cause"),
        ),
        (
            wrong(ConditionType::Connected, Reason::Degraded),
            State::Degraded,
            Some("Degraded: the cause"),
        ),
        (
            wrong(ConditionType::Claimed, Reason::ClaimedByOther),
            State::Refused,
            Some("ClaimedByOther: the cause"),
        ),
        (
            wrong(ConditionType::ProfilesInstalled, Reason::InstallFailed),
            State::NotReady,
            Some("InstallFailed: the cause"),
        ),
        (
            wrong(ConditionType::CredentialValid, Reason::ExpiresSoon),
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
        ConditionState::wrong(Reason::Unreachable, "refused"),
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
        assert_eq!(row.since, expected.map(|second| Rfc3339Time(at(second))));
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
    assert_eq!(row.why.as_deref(), Some("CallFailed: c: a message"));
    let last = row.last_reconcile.unwrap();
    assert_eq!(
        (last.machine_deployment.as_str(), last.at),
        ("b", Rfc3339Time(at(9)))
    );
}

/// A condition as type, status, reason and second.
type ConditionRow = (&'static str, &'static str, &'static str, i64);

fn elsewhere(conditions: &[ConditionRow]) -> Row {
    let conditions = conditions.iter().map(|(kind, state, reason, second)| {
        let made = a_status(&[(*kind, *state, *second)]).conditions.remove(0);
        Condition {
            reason: (*reason).to_owned(),
            ..made
        }
    });
    let status = WorkerClusterStatus {
        conditions: conditions.collect(),
        ..a_status(&[])
    };
    row_elsewhere("berlin/worker".to_owned(), Some(&status))
}

/// The conditions in a healthy tenant's WorkerCluster.
const WELL: [ConditionRow; 6] = [
    ("Ready", "True", "Ready", 5),
    ("Registered", "True", "Accepted", 1),
    ("Connected", "True", "Healthy", 2),
    ("Claimed", "True", "Claimed", 3),
    ("MachineDeploymentsServed", "True", "AllServed", 4),
    ("MachinesCurrent", "True", "MachinesCurrent", 4),
];

/// Differences from those, the resulting state, and since when. The first reason is the cause.
const DIFFERENT: [(&[ConditionRow], State, i64); 9] = [
    (
        &[
            ("Ready", "False", "Unreachable", 9),
            ("Connected", "False", "Unreachable", 8),
        ],
        State::Unreachable,
        8,
    ),
    (
        &[
            ("Ready", "False", "Degraded", 9),
            ("Connected", "False", "Degraded", 8),
        ],
        State::Degraded,
        8,
    ),
    (
        &[
            ("Ready", "False", "KubeconfigRefused", 9),
            ("Registered", "False", "KubeconfigRefused", 7),
            ("Connected", "Unknown", "NotRegistered", 7),
            ("MachineDeploymentsServed", "Unknown", "NotRegistered", 7),
        ],
        State::Refused,
        7,
    ),
    (
        &[
            ("Ready", "False", "Paused", 9),
            ("Registered", "False", "Paused", 7),
            ("Connected", "Unknown", "NotRegistered", 7),
        ],
        State::Paused,
        7,
    ),
    (
        &[
            ("Ready", "False", "ClaimedByOther", 9),
            ("Claimed", "False", "ClaimedByOther", 6),
        ],
        State::Refused,
        6,
    ),
    (
        &[
            ("Ready", "Unknown", "Engaging", 9),
            ("Connected", "Unknown", "NotRegistered", 7),
            ("MachineDeploymentsServed", "Unknown", "NotRegistered", 7),
        ],
        State::NotEngaged,
        9,
    ),
    (
        &[
            ("Ready", "False", "SomeNotServed", 9),
            ("MachineDeploymentsServed", "False", "SomeNotServed", 9),
        ],
        State::NotReady,
        9,
    ),
    (
        &[
            ("Ready", "False", "Failed", 9),
            ("ProfilesInstalled", "False", "Failed", 9),
        ],
        State::NotReady,
        9,
    ),
    (
        &[("MachinesCurrent", "False", "MachinesOutdated", 9)],
        State::Healthy,
        5,
    ),
];

/// The condition hides it from the tenant.
#[test]
fn where_there_is_no_connection_operators_see_the_exact_cause() {
    let silent = |name: &str, cause: &str| {
        let mut report = Report::default();
        let hidden = ConditionState::retried(Reason::Unreachable, "no TLS connection");
        report.findings.insert(ConditionType::Connected, hidden);
        report.no_connection = Some(format!("https://{name}.example: {cause}"));
        let known = ServedTenant {
            report: &report,
            status: None,
            statistics: Statistics::default(),
        };
        row(name.to_owned(), known)
    };
    let rows = [
        silent("a", "tcp connect error: refused"),
        silent("b", "tcp connect error: refused"),
        silent("c", "timed out"),
    ];
    let why = "Unreachable: https://a.example: tcp connect error: refused";
    assert_eq!(rows[0].why.as_deref(), Some(why));
    let causes = Overview::of(&rows, at(9)).causes;
    let causes: Vec<_> = causes
        .iter()
        .map(|it| (it.reason.as_str(), it.detail.as_deref(), it.tenants))
        .collect();
    let expected = [
        ("Unreachable", Some("refused"), 2),
        ("Unreachable", Some("timed out"), 1),
    ];
    assert_eq!(causes, expected);
}

#[test]
fn of_a_tenant_that_another_replica_serves_its_conditions_tell() {
    let well = elsewhere(&WELL);
    assert_eq!((well.state, well.why), (State::Healthy, None));
    assert_eq!(
        (well.since, well.served_here),
        (Some(Rfc3339Time(at(5))), false)
    );
    assert_eq!(well.version.as_deref(), Some("v1.35.0"));
    for (changed, state, since) in DIFFERENT {
        let is_same = |it: &&ConditionRow| changed.iter().all(|(kind, ..)| *kind != it.0);
        let kept = WELL.iter().filter(is_same);
        let row = elsewhere(&changed.iter().chain(kept).copied().collect::<Vec<_>>());
        let why = format!("{}: a message", changed[0].2);
        assert_eq!((row.state, row.why), (state, Some(why)), "{changed:?}");
        assert_eq!(row.since, Some(Rfc3339Time(at(since))), "{changed:?}");
    }
    let unknown = row_elsewhere("a/b".to_owned(), None);
    let found = (unknown.state, unknown.why, unknown.since);
    assert_eq!(found, (State::NotEngaged, None, None));
}

fn an_entry(name: &str, state: MachineDeploymentState) -> MachineDeploymentEntry {
    MachineDeploymentEntry {
        name: name.to_owned(),
        state,
        reason: "ProfileNotFound".to_owned(),
        message: Some("a message".to_owned()),
        since: Time(at(1)),
        trace_id: None,
        profile: None,
        behind: None,
    }
}

#[test]
fn machine_deployments_of_another_replica_are_counted_and_their_cause_is_the_same() {
    let mut status = a_status(&[
        ("Ready", "False", 9),
        ("MachineDeploymentsServed", "False", 9),
    ]);
    status.served = Some("3/5".to_owned());
    status.outdated = Some(1);
    status.machine_deployments = vec![
        an_entry("kube-system/a", MachineDeploymentState::Refused),
        an_entry("kube-system/b", MachineDeploymentState::Waiting),
        an_entry("kube-system/c", MachineDeploymentState::Served),
    ];
    let there = row_elsewhere("berlin/worker".to_owned(), Some(&status));
    let expected = MachineDeployments {
        total: 5,
        current: 2,
        outdated: 1,
        waiting: 1,
        failing: 1,
    };
    assert_eq!(there.machine_deployments, Some(expected));

    let mut report = a_report(&[]);
    report.existing = Some(BTreeSet::from(["kube-system/a".to_owned()]));
    let refused = Outcome {
        reason: Reason::ProfileNotFound,
        ..an_outcome(MachineDeploymentState::Refused, 1)
    };
    report.outcomes = BTreeMap::from([("kube-system/a".to_owned(), refused)]);
    let here = shown(&report, None);
    assert_eq!(here.reason.as_deref(), Some("ProfileNotFound"));
    let why = "ProfileNotFound: kube-system/a: a message";
    assert_eq!(here.why.as_deref(), Some(why));
    assert_eq!((there.reason, there.why), (here.reason, here.why));

    for served in ["3", "a/5", ""] {
        status.served = Some(served.to_owned());
        let row = row_elsewhere("berlin/worker".to_owned(), Some(&status));
        assert_eq!(row.machine_deployments, None, "{served}");
    }
    // They were listed once, and are not known now.
    let unknown = WorkerClusterStatus {
        served: Some("3/5".to_owned()),
        ..a_status(&[("MachineDeploymentsServed", "Unknown", 9)])
    };
    let row = row_elsewhere("berlin/worker".to_owned(), Some(&unknown));
    assert_eq!(row.machine_deployments, None);
}

#[test]
fn a_tenant_of_another_replica_is_counted_and_sorted_by_its_state() {
    let down = elsewhere(&[("Connected", "False", "Unreachable", 8)]);
    let well = Row {
        name: "aachen/worker".to_owned(),
        ..shown(&a_report(&[]), None)
    };
    let taken_by = ("osm-0".to_owned(), at(0));
    let summary = FleetSummary::new(taken_by, vec![well, down], Sort::default());
    let names: Vec<_> = summary
        .tenants
        .iter()
        .map(|row| row.name.as_str())
        .collect();
    assert_eq!(names, ["berlin/worker", "aachen/worker"]);
    let states = BTreeMap::from([("Healthy", 1), ("Unreachable", 1)]);
    assert_eq!((summary.states, summary.served_elsewhere), (states, 1));
}

#[test]
fn a_long_cause_is_cut() {
    let long = ConditionState::wrong(Reason::Unreachable, "é".repeat(5_000));
    let row = shown(&a_report(&[(ConditionType::Connected, long)]), None);
    assert_eq!(row.why.unwrap().chars().count(), WHY_CHARACTERS_MAX);
}
