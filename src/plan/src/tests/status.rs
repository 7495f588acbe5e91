//! The status as computed from the report and the previous status.

use super::*;
use crate::status::{Params, status};
use osm_api::{
    condition::ConditionType,
    reason::Reason,
    worker_cluster::{MachineDeploymentState, WorkerClusterStatus},
};
use osm_tenant::report::{ConditionState, Outcome, ProfileTried, Report};

const ALL: [ConditionType; 5] = [
    ConditionType::Registered,
    ConditionType::Connected,
    ConditionType::Claimed,
    ConditionType::Prepared,
    ConditionType::ProfilesInstalled,
];

fn an_outcome(state: MachineDeploymentState, reason: Reason, trace: &str) -> Outcome {
    Outcome {
        state,
        reason,
        message: None,
        at: now(),
        waits_since: None,
        trace_id: Some(trace.to_owned()),
        profile: None,
        behind: None,
    }
}

/// The report of a tenant whose conditions are all true.
fn a_report() -> Report {
    let name = "kube-system/workers".to_owned();
    let outcome = an_outcome(MachineDeploymentState::Served, Reason::Current, "trace-1");
    Report {
        findings: ALL
            .map(|kind| (kind, ConditionState::well(Reason::Accepted)))
            .into(),
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
fn nothing_is_known_of_a_cluster_whose_registration_is_refused() {
    let accepted = fresh(&a_report());
    let mut report = a_report();
    let refused = ConditionState::wrong(Reason::KubeconfigRefused, "it is empty");
    report.findings.insert(ConditionType::Registered, refused);
    // Also after a restart, when nothing else was observed.
    let mut restarted = report.clone();
    restarted
        .findings
        .retain(|kind, _| *kind == ConditionType::Registered);
    restarted.existing = None;
    for report in [&report, &restarted] {
        let status = status_at(report, &accepted, 1);
        assert_eq!(
            ready(&status),
            ("False".to_owned(), "KubeconfigRefused".to_owned())
        );
        for condition in &status.conditions {
            let expected = match condition.type_.as_str() {
                "Ready" | "Registered" => ("False", "KubeconfigRefused"),
                _ => ("Unknown", "NotRegistered"),
            };
            let found = (condition.status.as_str(), condition.reason.as_str());
            assert_eq!(found, expected, "{}", condition.type_);
        }
        // Once it is accepted, what was not observed yet is not false.
        let mut again = restarted.clone();
        again.findings.insert(
            ConditionType::Registered,
            ConditionState::well(Reason::Accepted),
        );
        let status = status_at(&again, &status, 2);
        assert_eq!(
            ready(&status),
            ("Unknown".to_owned(), "Engaging".to_owned())
        );
    }
}

#[test]
fn what_needs_a_connection_is_unknown_while_there_is_none() {
    let connected = fresh(&a_report());
    let mut report = a_report();
    for (reason, is_known) in [
        (Reason::Unreachable, false),
        (Reason::Degraded, false),
        // The cluster answers, and refuses one list.
        (Reason::WatchFailed, true),
    ] {
        let lost = ConditionState::retried(reason, "no answer");
        report.findings.insert(ConditionType::Connected, lost);
        let status = status_at(&report, &connected, 60);
        assert_eq!(ready(&status), ("False".to_owned(), reason.to_string()));
        for condition in &status.conditions {
            let since = condition.last_transition_time.0.as_second() - now().as_second();
            let (expected, seconds) = match condition.type_.as_str() {
                "Ready" | "Connected" => ("False", 60),
                "Registered" | "Adopted" | "ProfilesInstalled" => ("True", 0),
                _ if is_known => ("True", 0),
                _ => ("Unknown", 60),
            };
            let found = (condition.status.as_str(), since);
            assert_eq!(found, (expected, seconds), "{} {reason}", condition.type_);
        }
        // What was known before holds again at once.
        let well = ConditionState::well(Reason::Healthy);
        report.findings.insert(ConditionType::Connected, well);
        let again = status_at(&report, &status, 61);
        assert_eq!(ready(&again), ("True".to_owned(), "Ready".to_owned()));
    }
}

#[test]
fn ready_names_the_commonest_cause_and_what_else_is_false() {
    let mut report = a_report();
    let named = ["b/one", "b/two", "c/three", "c/four", "c/five"];
    for (name, reason) in named.into_iter().zip([
        Reason::SettingsRefused,
        Reason::ProfileNotFound,
        Reason::ProfileNotFound,
        Reason::ProfileNotFound,
        Reason::ProfileNotFound,
    ]) {
        let mut outcome = an_outcome(MachineDeploymentState::Refused, reason, "trace");
        outcome.message = Some(format!("why {name}"));
        report.outcomes.insert(name.to_owned(), outcome);
        report.existing.as_mut().unwrap().insert(name.to_owned());
    }
    let cannot = ConditionState::wrong(Reason::FetchRefused, "403");
    report
        .findings
        .insert(ConditionType::MachinesCanJoin, cannot);
    let status = fresh(&report);
    assert_eq!(
        status.conditions[0].message,
        "5 not served, among them b/two, c/five, c/four: why b/two; 1 for another reason \
         (SettingsRefused); MachinesCanJoin is also False (FetchRefused)"
    );
    report.existing.as_mut().unwrap().retain(|it| it == "b/one");
    let status = fresh(&report);
    let message = &status.conditions[0].message;
    assert!(
        message.starts_with("1 not served: b/one: why b/one;"),
        "{message}"
    );
}

#[test]
fn what_is_served_is_unknown_while_the_cluster_cannot_be_engaged() {
    let served = fresh(&a_report());
    let mut report = a_report();
    report.not_engaged = Some(Reason::RightsMissing);
    report.forget(&ConditionType::OF_ENGAGED);
    let missing = ConditionState::retried(Reason::RightsMissing, "a right is missing");
    report.findings.insert(ConditionType::Prepared, missing);
    let status = status_at(&report, &served, 1);
    let what = |kind: ConditionType| {
        let mut conditions = status.conditions.iter();
        let found = conditions.find(|it| it.type_ == kind.as_str()).unwrap();
        (found.status.clone(), found.reason.clone())
    };
    let expected = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
    assert_eq!(ready(&status), expected("False", "RightsMissing"));
    assert_eq!(
        what(ConditionType::MachineDeploymentsServed),
        expected("Unknown", "NotEngaged")
    );
    assert_eq!(what(ConditionType::Claimed).0, "True");
    // Once it is engaged, what was not observed yet is not false.
    report.not_engaged = None;
    let prepared = ConditionState::well(Reason::Prepared);
    report.findings.insert(ConditionType::Prepared, prepared);
    let status = status_at(&report, &status, 2);
    assert_eq!(ready(&status), expected("Unknown", "Engaging"));
}

#[test]
fn a_restart_changes_no_timestamps_and_no_trace_ids() {
    let before = fresh(&a_report());
    assert_eq!(ready(&before), ("True".to_owned(), "Ready".to_owned()));
    // First nothing is known, then some conditions, then all, each later and with another trace.
    let mut report = Report::default();
    assert_eq!(status_at(&report, &before, 60), before);
    let first = (
        ConditionType::Registered,
        ConditionState::well(Reason::Accepted),
    );
    report.findings.insert(first.0, first.1);
    let partly = status_at(&report, &before, 61);
    assert_eq!(partly.machine_deployments, before.machine_deployments);
    for kind in ALL {
        let found = (kind, ConditionState::well(Reason::Accepted));
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
fn ready_has_the_reason_of_the_first_condition_that_is_false() {
    let mut report = a_report();
    for (kind, reason) in [
        (ConditionType::ProfilesInstalled, Reason::InstallFailed),
        (ConditionType::Claimed, Reason::ClaimedByOther),
        (ConditionType::Connected, Reason::Unreachable),
        (ConditionType::Registered, Reason::KubeconfigRefused),
    ] {
        report
            .findings
            .insert(kind, ConditionState::wrong(reason, "why"));
        assert_eq!(
            ready(&fresh(&report)),
            ("False".to_owned(), reason.to_string())
        );
    }
}

#[test]
fn ready_says_that_a_refused_credential_has_expired() {
    let mut report = a_report();
    let refused = ConditionState::retried(Reason::CredentialRefused, "401");
    report.findings.insert(ConditionType::Connected, refused);
    assert_eq!(ready(&fresh(&report)).1, "CredentialRefused");
    let expired = ConditionState::wrong(Reason::Expired, "since May");
    report
        .findings
        .insert(ConditionType::CredentialValid, expired);
    assert_eq!(ready(&fresh(&report)).1, "Expired");
    let silent = ConditionState::retried(Reason::Unreachable, "no answer");
    report.findings.insert(ConditionType::Connected, silent);
    assert_eq!(ready(&fresh(&report)).1, "Unreachable");
}

#[test]
fn ready_is_unknown_until_all_conditions_are_known() {
    let mut report = a_report();
    report.findings.remove(&ConditionType::Prepared);
    assert_eq!(
        ready(&fresh(&report)),
        ("Unknown".to_owned(), "Engaging".to_owned())
    );
}

#[test]
fn the_transition_time_of_a_condition_changes_only_with_its_status() {
    let before = fresh(&a_report());
    let mut report = a_report();
    let kind = ConditionType::Connected;
    report
        .findings
        .insert(kind, ConditionState::wrong(Reason::Unreachable, "why"));
    let broken = status_at(&report, &before, 10);
    report
        .findings
        .insert(kind, ConditionState::wrong(Reason::Degraded, "why"));
    let later = status_at(&report, &broken, 20);
    let time = |status: &WorkerClusterStatus, kind: &str| {
        let found = status.conditions.iter().find(|found| found.type_ == kind);
        found.unwrap().last_transition_time.0.as_second() - now().as_second()
    };
    assert_eq!(time(&broken, "Connected"), 10);
    assert_eq!(time(&later, "Connected"), 10);
    assert_eq!(time(&later, "ProfilesInstalled"), 0);
    assert_eq!(time(&later, "Ready"), 10);
    let well = status_at(&a_report(), &later, 30);
    assert_eq!(time(&well, "Connected"), 30);
}

#[test]
fn conditions_are_listed_in_the_order_in_which_they_become_true() {
    let mut report = a_report();
    let adopted = (
        ConditionType::Adopted,
        ConditionState::well(Reason::Accepted),
    );
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
fn entries_name_their_profile_and_those_with_a_pending_version_are_counted() {
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
        let mut outcome = an_outcome(MachineDeploymentState::Served, Reason::Current, "trace");
        outcome.profile = tried(next);
        report.existing.as_mut().unwrap().insert(name.to_owned());
        report.outcomes.insert(name.to_owned(), outcome);
    }
    // The second time, the entries are the same as before.
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
fn at_most_100_entries_are_kept_and_failing_ones_come_first() {
    let mut report = a_report();
    for index in 0..150 {
        let (name, outcome) = match index {
            149 => (
                "z/refused",
                (MachineDeploymentState::Refused, Reason::ProfileNotFound),
            ),
            148 => (
                "z/failing",
                (MachineDeploymentState::Failing, Reason::CallFailed),
            ),
            147 => (
                "z/waiting",
                (MachineDeploymentState::Waiting, Reason::AwaitingRevision),
            ),
            _ => ("", (MachineDeploymentState::Served, Reason::Current)),
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
        Some(
            "2 not served, among them z/refused: the cause of z/refused; 1 for another reason \
             (CallFailed)"
        )
    );
}

#[test]
fn a_deleted_machine_deployment_is_removed_from_the_status() {
    let before = fresh(&a_report());
    let mut report = a_report();
    report.existing = Some(std::collections::BTreeSet::new());
    report.outcomes.clear();
    let after = status_at(&report, &before, 1);
    assert_eq!(after.machine_deployments, []);
    assert_eq!(after.served.as_deref(), Some("0/0"));
}

/// No text of a cluster makes the status large. Texts that an earlier release wrote are read, and
/// truncated.
#[test]
fn all_texts_of_a_cluster_are_truncated() {
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
        ..an_outcome(MachineDeploymentState::Served, Reason::Current, "trace-1")
    }
}

#[test]
fn messages_of_conditions_are_truncated() {
    let mut report = a_report();
    let long = ConditionState::wrong(Reason::Unreachable, "é".repeat(5_000));
    report.findings.insert(ConditionType::Connected, long);
    let status = fresh(&report);
    for kind in ["Ready", "Connected"] {
        let found = status.conditions.iter().find(|found| found.type_ == kind);
        assert_eq!(found.unwrap().message, "é".repeat(1_023) + "…");
    }
}
