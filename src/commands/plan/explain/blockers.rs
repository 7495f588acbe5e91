//! Finds what blocks a machine deployment or the whole tenant.

use super::super::{Answer, Verdict};
use super::Blocker;
use crate::api::{
    condition::ConditionType,
    reason::{Actor, Reason, Severity},
    worker_cluster::WorkerCluster,
};

/// Conditions that summarize others.
const SUMMARIES: [ConditionType; 2] = [
    ConditionType::Ready,
    ConditionType::MachineDeploymentsServed,
];

/// Returns the problems that block the tenant or the machine deployment.
pub(super) fn blockers(own: Option<&WorkerCluster>, name: &str, answer: &Answer) -> Vec<Blocker> {
    let blocker = |reason: &str, message: &str| Blocker {
        reason: reason.to_owned(),
        message: message.to_owned(),
        actor: Reason::named(reason).map_or(Actor::Nobody, Reason::actor),
        fix: Reason::named(reason).and_then(Reason::remediation),
    };
    let mut blockers = Vec::new();
    if own.is_some_and(|own| own.spec.paused) {
        let fix = "set spec.paused of the WorkerCluster to false";
        blockers.push(Blocker {
            actor: Actor::Operator,
            fix: Some(fix.to_owned()),
            ..blocker(
                Reason::Paused.as_str(),
                "the WorkerCluster is paused: nothing is written",
            )
        });
    }
    let status = own.and_then(|own| own.status.as_ref());
    let conditions = || status.iter().flat_map(|status| &status.conditions);
    for condition in conditions() {
        let is_summary = SUMMARIES.iter().any(|it| it.as_str() == condition.type_);
        let is_error = severity(&condition.reason) == Severity::Error;
        if condition.status == "False" && is_error && !is_summary {
            let message = format!("{}: {}", condition.type_, condition.message);
            blockers.push(blocker(&condition.reason, &message));
        }
    }
    let mut entries = status.iter().flat_map(|status| &status.machine_deployments);
    let entry = entries.find(|entry| entry.name == name);
    let next = entry.and_then(|entry| entry.profile.as_ref()?.next.as_deref());
    let installed = own.and_then(|own| own.condition(ConditionType::ProfilesInstalled));
    if let (Some(next), Some(installed)) = (next, installed)
        && installed.reason != Reason::Installed
    {
        let message = format!("{next} of its profile is to come: {}", installed.message);
        blockers.push(blocker(&installed.reason, &message));
    }
    let entry = entry.filter(|it| severity(&it.reason) != Severity::Normal);
    // Without an entry, the manager has not tried yet, or does not run.
    let (reason, message) = match (entry, answer.reason, answer.verdict) {
        (Some(entry), ..) => (entry.reason.as_str(), &entry.message),
        (None, Some(reason), _) => (reason.as_str(), &answer.message),
        (None, None, Verdict::Refused) => ("Refused", &answer.message),
        (None, None, _) => return blockers,
    };
    blockers.push(blocker(reason, message.as_deref().unwrap_or_default()));
    blockers
}

/// Returns the severity of a reason in a status, which another version may have written.
fn severity(reason: &str) -> Severity {
    Reason::named(reason).map_or(Severity::Error, Reason::severity)
}
