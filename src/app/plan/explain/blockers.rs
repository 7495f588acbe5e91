//! Finds what keeps a machine deployment from being served, or the tenant as a whole.

use super::super::{Answer, Verdict};
use super::Blocker;
use crate::api::{reason::Reason, worker_cluster::WorkerCluster};

/// Conditions that sum up others, or warn of what is to come.
const NO_BLOCKERS: [&str; 3] = ["Ready", "MachineDeploymentsServed", "CredentialValid"];
/// Reasons of conditions that hold nothing up, or that are told otherwise.
const NO_OBSTACLES: [Option<Reason>; 2] = [Some(Reason::Paused), Some(Reason::MachinesOutdated)];
/// Reasons of machine deployments that are served.
const SERVED: [Option<Reason>; 2] = [Some(Reason::Current), Some(Reason::KeptAsFound)];

/// What holds the tenant up, and what the machine deployment itself.
pub(super) fn blockers(own: Option<&WorkerCluster>, name: &str, answer: &Answer) -> Vec<Blocker> {
    let blocker = |reason: &str, message: &str| Blocker {
        reason: reason.to_owned(),
        message: message.to_owned(),
        fix: Reason::named(reason).and_then(Reason::remediation),
    };
    let mut blockers = Vec::new();
    if own.is_some_and(|own| own.spec.paused) {
        let fix = "set spec.paused of the WorkerCluster to false";
        blockers.push(Blocker {
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
        let is_none = NO_BLOCKERS.contains(&condition.type_.as_str())
            || NO_OBSTACLES.contains(&Reason::named(&condition.reason));
        if condition.status == "False" && !is_none {
            let message = format!("{}: {}", condition.type_, condition.message);
            blockers.push(blocker(&condition.reason, &message));
        }
    }
    let mut entries = status.iter().flat_map(|status| &status.machine_deployments);
    let entry = entries.find(|entry| entry.name == name);
    let next = entry.and_then(|entry| entry.profile.as_ref()?.next.as_deref());
    let installed = conditions().find(|it| it.type_ == "ProfilesInstalled");
    if let (Some(next), Some(installed)) = (next, installed)
        && installed.reason != Reason::Installed
    {
        let message = format!("{next} of its profile is to come: {}", installed.message);
        blockers.push(blocker(&installed.reason, &message));
    }
    let entry = entry.filter(|it| !SERVED.contains(&Reason::named(&it.reason)));
    match (entry, answer.verdict) {
        (Some(entry), _) => {
            let message = entry.message.as_deref().unwrap_or_default();
            blockers.push(blocker(&entry.reason, message));
        }
        (None, Verdict::Refused) => {
            let message = answer.message.as_deref().unwrap_or_default();
            blockers.push(blocker("Refused", message));
        }
        _ => {}
    }
    blockers
}
