//! The status from the report and from what it said before.

use super::*;
use crate::api::worker_cluster::{MachineDeploymentState, WorkerClusterStatus};
use crate::plan::status::{Params, status};
use crate::tenant::report::{ConditionType, Finding, Outcome, ProfileTried, Report};

const ALL: [ConditionType; 5] = [
    ConditionType::Registered,
    ConditionType::Connected,
    ConditionType::Claimed,
    ConditionType::Prepared,
    ConditionType::ProfilesInstalled,
];

fn an_outcome(state: MachineDeploymentState, reason: &'static str, trace: &str) -> Outcome {
    Outcome {
        state,
        reason,
        message: None,
        at: now(),
        trace_id: Some(trace.to_owned()),
        profile: None,
    }
}

/// A tenant with everything in order.
fn a_report() -> Report {
    let name = "kube-system/workers".to_owned();
    let outcome = an_outcome(MachineDeploymentState::Served, "Current", "trace-1");
    Report {
        findings: ALL.map(|kind| (kind, Finding::well("Well"))).into(),
        existing: Some([name.clone()].into()),
        outcomes: [(name, outcome)].into(),
        ..Report::default()
    }
}

fn status_at(report: &Report, before: &WorkerClusterStatus, seconds: i64) -> WorkerClusterStatus {
    status(Params {
        report,
        before,
        generation: Some(1),
        now: Timestamp::from_second(now().as_second() + seconds).unwrap(),
    })
}

fn fresh(report: &Report) -> WorkerClusterStatus {
    status_at(report, &WorkerClusterStatus::default(), 0)
}

fn ready(status: &WorkerClusterStatus) -> (String, String) {
    let ready = &status.conditions[0];
    assert_eq!(ready.type_, "Ready");
    (ready.status.clone(), ready.reason.clone())
}

#[test]
fn a_restart_changes_neither_times_nor_traces() {
    let before = fresh(&a_report());
    assert_eq!(ready(&before), ("True".to_owned(), "Ready".to_owned()));
    // Nothing is known yet, then a part, then all, each under another trace and later.
    let mut report = Report::default();
    assert_eq!(status_at(&report, &before, 60), before);
    let first = (ConditionType::Registered, Finding::well("Well"));
    report.findings.insert(first.0, first.1);
    let partly = status_at(&report, &before, 61);
    assert_eq!(partly.machine_deployments, before.machine_deployments);
    for kind in ALL {
        let found = (kind, Finding::well("Well"));
        let findings = [found].into();
        let report = Report {
            findings,
            ..Report::default()
        };
        assert_eq!(status_at(&report, &before, 61), before);
    }
    let mut report = a_report();
    for outcome in report.outcomes.values_mut() {
        outcome.trace_id = Some("trace-2".to_owned());
        outcome.at = Timestamp::from_second(now().as_second() + 62).unwrap();
    }
    assert_eq!(status_at(&report, &before, 62), before);
}

#[test]
fn ready_says_the_first_thing_that_is_wrong() {
    let mut report = a_report();
    for (kind, reason) in [
        (ConditionType::ProfilesInstalled, "InstallFailed"),
        (ConditionType::Claimed, "ClaimedByOther"),
        (ConditionType::Connected, "Unreachable"),
        (ConditionType::Registered, "KubeconfigRefused"),
    ] {
        report.findings.insert(kind, Finding::wrong(reason, "why"));
        assert_eq!(
            ready(&fresh(&report)),
            ("False".to_owned(), reason.to_owned())
        );
    }
}

#[test]
fn ready_is_unknown_until_everything_is() {
    let mut report = a_report();
    report.findings.remove(&ConditionType::Prepared);
    assert_eq!(
        ready(&fresh(&report)),
        ("Unknown".to_owned(), "Engaging".to_owned())
    );
}

#[test]
fn the_time_of_a_condition_changes_with_its_status_only() {
    let before = fresh(&a_report());
    let mut report = a_report();
    let kind = ConditionType::Connected;
    report
        .findings
        .insert(kind, Finding::wrong("Unreachable", "why"));
    let broken = status_at(&report, &before, 10);
    report
        .findings
        .insert(kind, Finding::wrong("Degraded", "why"));
    let later = status_at(&report, &broken, 20);
    let time = |status: &WorkerClusterStatus, kind: &str| {
        let found = status.conditions.iter().find(|found| found.type_ == kind);
        found.unwrap().last_transition_time.0.as_second() - now().as_second()
    };
    assert_eq!(time(&broken, "Connected"), 10);
    assert_eq!(time(&later, "Connected"), 10);
    assert_eq!(time(&later, "Claimed"), 0);
    assert_eq!(time(&later, "Ready"), 10);
    let well = status_at(&a_report(), &later, 30);
    assert_eq!(time(&well, "Connected"), 30);
}

#[test]
fn conditions_stand_in_the_order_in_which_a_tenant_comes_to_life() {
    let mut report = a_report();
    let adopted = (ConditionType::Adopted, Finding::well("Well"));
    report.findings.insert(adopted.0, adopted.1);
    let status = fresh(&report);
    let kinds: Vec<&str> = status.conditions.iter().map(|it| &*it.type_).collect();
    let expected = [
        "Ready",
        "Registered",
        "Connected",
        "Adopted",
        "Claimed",
        "Prepared",
        "ProfilesInstalled",
        "MachineDeploymentsServed",
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn an_entry_names_its_profile_and_those_with_a_newer_one_to_come_are_counted() {
    let tried = |next: Option<&str>| {
        Some(Box::new(ProfileTried {
            name: "own".to_owned(),
            version: "v1.0.0".to_owned(),
            default: Some(("osp-ubuntu".to_owned(), "v2.0.0".to_owned())),
            next: next.map(str::to_owned),
        }))
    };
    let mut report = a_report();
    let mut before = fresh(&report);
    assert_eq!(before.outdated, Some(0));
    for (name, next) in [("a", Some("v2.1.0")), ("b", Some("v2.1.0")), ("c", None)] {
        let mut outcome = an_outcome(MachineDeploymentState::Served, "Current", "trace");
        outcome.profile = tried(next);
        report.existing.as_mut().unwrap().insert(name.to_owned());
        report.outcomes.insert(name.to_owned(), outcome);
    }
    // Also where an entry says the same as before.
    for _ in 0..2 {
        let status = status_at(&report, &before, 0);
        assert_eq!(status.outdated, Some(2));
        let profiles = status.machine_deployments.iter().map(|it| &it.profile);
        let profiles: Vec<_> = profiles.flatten().collect();
        assert_eq!(profiles.len(), 3);
        assert_eq!(profiles[0].default.as_deref(), Some("osp-ubuntu v2.0.0"));
        assert_eq!(profiles[0].next.as_deref(), Some("v2.1.0"));
        before = status;
        for entry in &mut before.machine_deployments {
            entry.profile = None;
        }
    }
}

#[test]
fn what_fails_comes_first_and_a_hundred_are_enough() {
    let mut report = a_report();
    for index in 0..150 {
        let (name, outcome) = match index {
            149 => (
                "z/refused",
                (MachineDeploymentState::Refused, "ProfileNotFound"),
            ),
            148 => ("z/failing", (MachineDeploymentState::Failing, "CallFailed")),
            147 => (
                "z/waiting",
                (MachineDeploymentState::Waiting, "AwaitingRevision"),
            ),
            _ => ("", (MachineDeploymentState::Served, "Current")),
        };
        let name = if name.is_empty() {
            format!("a/{index:03}")
        } else {
            name.to_owned()
        };
        report.existing.as_mut().unwrap().insert(name.clone());
        let mut outcome = an_outcome(outcome.0, outcome.1, "trace");
        outcome.message = Some(format!("the cause of {name}"));
        report.outcomes.insert(name, outcome);
    }
    let status = fresh(&report);
    let names: Vec<&str> = status
        .machine_deployments
        .iter()
        .map(|entry| entry.name.as_str())
        .collect();
    assert_eq!(names.len(), 100);
    assert_eq!(names[..4], ["z/refused", "z/failing", "z/waiting", "a/000"]);
    assert_eq!(status.served.as_deref(), Some("148/151"));
    assert_eq!(
        ready(&status),
        ("False".to_owned(), "SomeNotServed".to_owned())
    );
    let mut conditions = status.conditions.iter();
    let served = conditions.find(|it| it.type_ == "MachineDeploymentsServed");
    assert_eq!(
        served.map(|it| it.message.as_str()),
        Some("2 not served, among them z/refused, z/failing: the cause of z/refused")
    );
}

#[test]
fn what_is_gone_leaves_the_status() {
    let before = fresh(&a_report());
    let mut report = a_report();
    report.existing = Some(std::collections::BTreeSet::new());
    report.outcomes.clear();
    let after = status_at(&report, &before, 1);
    assert_eq!(after.machine_deployments, []);
    assert_eq!(after.served.as_deref(), Some("0/0"));
}

/// Nothing that a cluster says of itself makes the status large, and what an earlier release wrote
/// is read and cut.
#[test]
fn texts_of_a_cluster_are_cut_wherever_they_stand() {
    let long = "é".repeat(30_000);
    let report = Report {
        cluster_uid: Some(long.clone()),
        server: Some(long.clone()),
        api_server: Some(long.clone()),
        version: Some(long.clone()),
        existing: Some([long.clone()].into()),
        outcomes: [(long.clone(), a_long_outcome(&long))].into(),
        ..a_report()
    };
    let cut = |characters: usize| "é".repeat(characters - 1) + "…";
    let check = |status: &WorkerClusterStatus| {
        assert_eq!(status.cluster_uid, Some(cut(64)));
        assert_eq!(status.server, Some(cut(512)));
        assert_eq!(status.api_server, Some(cut(512)));
        assert_eq!(status.version, Some(cut(64)));
        let [entry] = status.machine_deployments.as_slice() else {
            panic!("one entry: {}", status.machine_deployments.len());
        };
        assert_eq!(entry.name, cut(317));
        assert_eq!(entry.message, Some(cut(1_024)));
        let profile = entry.profile.as_ref().expect("it was tried");
        assert_eq!(profile.name, cut(256));
        assert_eq!(profile.version, cut(256));
        assert_eq!(profile.default, Some(cut(256)));
        assert_eq!(profile.next, Some(cut(256)));
    };
    let status = fresh(&report);
    check(&status);
    assert_eq!(status_at(&Report::default(), &status, 60), status);
    let whole = json!({
        "clusterUid": long, "server": long, "apiServer": long, "version": long,
        "machineDeployments": [{
            "name": long, "state": "Served", "reason": "Current", "message": long,
            "since": "2026-01-01T00:00:00Z",
            "profile": { "name": long, "version": long, "default": long, "next": long },
        }],
    });
    let before: WorkerClusterStatus = serde_json::from_value(whole).unwrap();
    check(&status_at(&Report::default(), &before, 60));
}

fn a_long_outcome(long: &str) -> Outcome {
    let text = || long.to_owned();
    Outcome {
        message: Some(text()),
        profile: Some(Box::new(ProfileTried {
            name: text(),
            version: text(),
            default: Some((text(), text())),
            next: Some(text()),
        })),
        ..an_outcome(MachineDeploymentState::Served, "Current", "trace-1")
    }
}

#[test]
fn a_message_is_cut_to_what_fits() {
    let mut report = a_report();
    let long = Finding::wrong("Unreachable", "é".repeat(5_000));
    report.findings.insert(ConditionType::Connected, long);
    let status = fresh(&report);
    for kind in ["Ready", "Connected"] {
        let found = status.conditions.iter().find(|found| found.type_ == kind);
        assert_eq!(found.unwrap().message, "é".repeat(1_023) + "…");
    }
}
