//! What has become wrong in a status and is the operator's to act on. It is reported in the
//! management cluster, where tenants do not look.

use std::collections::BTreeMap;

use osm_api::{
    condition::ConditionType,
    reason::{Actor, Reason, Severity},
    worker_cluster::{MachineDeploymentEntry, WorkerClusterStatus},
};
use osm_tenant::report::is_same_failure;

/// A change that the operator must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The machine-readable CamelCase reason.
    pub reason: Reason,
    /// A sentence for people.
    pub note: String,
}

/// Returns what is wrong in a status and was not in the one before. A lost connection is left out:
/// it is reported after a while.
pub fn news(before: &WorkerClusterStatus, now: &WorkerClusterStatus) -> Vec<News> {
    let mut news = of_conditions(before, now);
    news.extend(of_machine_deployments(before, now));
    news
}

/// Returns true if the tenant is served, and was not before.
pub fn is_ready_again(before: &WorkerClusterStatus, now: &WorkerClusterStatus) -> bool {
    let is_ready = |status: &WorkerClusterStatus| {
        let ready = ConditionType::Ready.find_in(&status.conditions);
        ready.is_some_and(|it| it.status == "True")
    };
    is_ready(now) && !is_ready(before)
}

fn of_conditions(before: &WorkerClusterStatus, now: &WorkerClusterStatus) -> Vec<News> {
    let left_out = [
        ConditionType::Ready,
        ConditionType::Connected,
        ConditionType::MachineDeploymentsServed,
        // One refused read makes it false, which may be an accident.
        ConditionType::NodeCredentials,
    ];
    let is_reported = |kind: &str| left_out.iter().all(|it| it.as_str() != kind);
    let wrong = now.conditions.iter().filter(|it| it.status == "False");
    let news = wrong.filter(|it| is_reported(&it.type_)).filter(|it| {
        !before.conditions.iter().any(|old| {
            (&old.type_, &old.status, &old.reason) == (&it.type_, &it.status, &it.reason)
                && is_same_failure(&old.message, &it.message)
        })
    });
    let news = news.filter_map(|it| {
        Some(News {
            reason: operators(&it.reason)?,
            note: it.message.clone(),
        })
    });
    news.collect()
}

/// Returns one item per reason, however many machine deployments have it.
fn of_machine_deployments(before: &WorkerClusterStatus, now: &WorkerClusterStatus) -> Vec<News> {
    let was_there = |reason: &str| {
        let mut entries = before.machine_deployments.iter();
        entries.any(|old| old.reason == reason)
    };
    let mut by_reason: BTreeMap<Reason, Vec<&MachineDeploymentEntry>> = BTreeMap::new();
    let entries = now.machine_deployments.iter();
    for entry in entries.filter(|it| it.state.is_failing() && !was_there(&it.reason)) {
        if let Some(reason) = operators(&entry.reason) {
            by_reason.entry(reason).or_default().push(entry);
        }
    }
    let news = by_reason.into_iter().filter_map(|(reason, entries)| {
        let (first, others) = entries.split_first()?;
        let more = match others.len() {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        let cause = first.message.as_deref().unwrap_or_default();
        let note = format!("{}{more}: {cause}", first.name);
        Some(News { reason, note })
    });
    news.collect()
}

/// Returns the reason if it is the operator's to act on.
fn operators(reason: &str) -> Option<Reason> {
    let reason = Reason::named(reason)?;
    let is_wrong = reason.severity() >= Severity::Warning;
    let is_theirs = matches!(reason.actor(), Actor::Operator | Actor::Either);
    (is_wrong && is_theirs).then_some(reason)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(conditions: &[(&str, &str)], entries: &[(&str, &str)]) -> WorkerClusterStatus {
        let time = "2026-01-01T00:00:00Z";
        let condition = |(kind, reason): &(&str, &str)| {
            json!({ "type": kind, "status": "False", "reason": reason, "message": "why",
                    "lastTransitionTime": time })
        };
        let entry = |(name, reason): &(&str, &str)| {
            json!({ "name": name, "state": "Refused", "reason": reason, "message": "why",
                    "since": time })
        };
        serde_json::from_value(json!({
            "conditions": conditions.iter().map(condition).collect::<Vec<_>>(),
            "machineDeployments": entries.iter().map(entry).collect::<Vec<_>>(),
        }))
        .expect("it is well formed")
    }

    #[test]
    fn a_tenant_is_ready_again_once() {
        let waits = status(&[("Ready", "NotConnected")], &[]);
        let mut ready = status(&[("Ready", "Ready")], &[]);
        ready.conditions[0].status = "True".to_owned();
        assert!(is_ready_again(&waits, &ready) && is_ready_again(&status(&[], &[]), &ready));
        assert!(!is_ready_again(&ready, &ready) && !is_ready_again(&ready, &waits));
    }

    #[test]
    fn what_is_the_operators_is_reported_once() {
        let well = status(&[], &[]);
        let wrong = status(
            &[
                ("Ready", "KubeconfigRefused"),
                ("Registered", "KubeconfigRefused"),
                ("Connected", "Unreachable"),
                ("MachineDeploymentsServed", "SomeNotServed"),
                ("CredentialValid", "ExpiresSoon"),
            ],
            &[
                ("a/one", "SettingsRefused"),
                ("a/two", "SettingsRefused"),
                ("a/three", "ProfileNotFound"),
            ],
        );
        let found = news(&well, &wrong);
        let found: Vec<_> = found
            .iter()
            .map(|it| (it.reason, it.note.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                (Reason::KubeconfigRefused, "why"),
                (Reason::ExpiresSoon, "why"),
                (Reason::SettingsRefused, "a/one and 1 more: why"),
            ]
        );
        assert_eq!(news(&wrong, &wrong), []);
        assert_eq!(news(&wrong, &well), []);
        let more = status(&[], &[("a/four", "SettingsRefused")]);
        assert_eq!(news(&wrong, &more), [], "the reason was there");
    }
}
