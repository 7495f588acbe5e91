//! The status of a WorkerCluster, from the report about its tenant and from what it said before.
//!
//! What has not been observed keeps what it said; times change only with what they date. Texts of
//! tenants and their clusters are cut here: all WorkerClusters share one watch, which one status of
//! many megabytes would end for the whole fleet.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::api::worker_cluster::{
    FULL_NAME_CHARACTERS_MAX, MESSAGE_CHARACTERS_MAX, MachineDeploymentEntry,
    MachineDeploymentState, ProfileEntry, TEXT_CHARACTERS_MAX, UID_CHARACTERS_MAX,
    URL_CHARACTERS_MAX, VERSION_CHARACTERS_MAX, WorkerClusterStatus,
};
use crate::tenant::report::{ConditionType, Finding, Outcome, ProfileTried, Report, excerpt};

/// Entries beyond this many are left out, served ones first: a status must stay far below the
/// 1.5 MiB of an object, and people read the first screen.
const ENTRIES_MAX: usize = 100;

/// The condition that sums up the others.
const READY: &str = "Ready";

/// The others, in the order in which a tenant comes to life and in which they stand.
const ORDER: [ConditionType; 8] = [
    ConditionType::Registered,
    ConditionType::Connected,
    ConditionType::Adopted,
    ConditionType::Claimed,
    ConditionType::Prepared,
    ConditionType::ProfilesInstalled,
    ConditionType::NodeCredentials,
    ConditionType::MachineDeploymentsServed,
];

/// Those that not every tenant has: nobody waits for them.
const OPTIONAL: [ConditionType; 2] = [ConditionType::Adopted, ConditionType::NodeCredentials];

/// What a status is made from.
#[derive(Clone, Copy, Debug)]
pub struct Params<'a> {
    /// What is known of the tenant.
    pub report: &'a Report,
    /// The status as it stands.
    pub before: &'a WorkerClusterStatus,
    /// The generation of the WorkerCluster that the report is about.
    pub generation: Option<i64>,
    /// The time of day.
    pub now: Timestamp,
}

/// The status as it should stand.
pub fn status(params: Params<'_>) -> WorkerClusterStatus {
    let Params {
        report,
        before,
        generation,
        now,
    } = params;
    let entries = entries(report, &before.machine_deployments);
    let mut findings = report.findings.clone();
    if report.existing.is_some() {
        findings.insert(
            ConditionType::MachineDeploymentsServed,
            served_finding(&entries),
        );
    }
    let mut conditions: Vec<Condition> = findings
        .iter()
        .map(|(kind, finding)| condition(kind.as_str(), finding))
        .collect();
    let kept = kept(report, &before.conditions, &conditions);
    conditions.extend(kept);
    // After a restart they are found one by one.
    conditions.sort_by_key(|condition| {
        let place = |kind: &ConditionType| kind.as_str() == condition.type_;
        ORDER.iter().position(place).unwrap_or(ORDER.len())
    });
    conditions.insert(0, summary(&conditions));
    // The API server keeps the order that it has: another one would be written at each restart.
    let place = |it: &Condition| {
        let mut kept = before.conditions.iter();
        kept.position(|old| old.type_ == it.type_)
    };
    conditions.sort_by_key(|it| place(it).unwrap_or(usize::MAX));
    for condition in &mut conditions {
        condition.last_transition_time = transition(condition, &before.conditions, now);
        condition.observed_generation = generation;
    }
    let served = served(&entries);
    let outdated = outdated(&entries);
    bounded(WorkerClusterStatus {
        conditions,
        observed_generation: generation,
        cluster_uid: report
            .cluster_uid
            .clone()
            .or_else(|| before.cluster_uid.clone()),
        fleet: report.fleet.clone().or_else(|| before.fleet.clone()),
        observed_kubeconfig: report
            .kubeconfig
            .clone()
            .or_else(|| before.observed_kubeconfig.clone()),
        server: report.server.clone().or_else(|| before.server.clone()),
        api_server: report
            .api_server
            .clone()
            .or_else(|| before.api_server.clone()),
        version: report.version.clone().or_else(|| before.version.clone()),
        served: report
            .existing
            .as_ref()
            .map_or_else(|| before.served.clone(), |_| Some(served)),
        outdated: report
            .existing
            .as_ref()
            .map_or(before.outdated, |_| Some(outdated)),
        machine_deployments: entries.into_iter().take(ENTRIES_MAX).collect(),
    })
}

/// Cuts every text that may be a tenant's, also where an earlier release wrote it. All fields are
/// named, so that a new one is not forgotten.
fn bounded(status: WorkerClusterStatus) -> WorkerClusterStatus {
    let WorkerClusterStatus {
        conditions,
        observed_generation,
        cluster_uid,
        fleet,
        observed_kubeconfig,
        server,
        api_server,
        version,
        served,
        outdated,
        machine_deployments,
    } = status;
    WorkerClusterStatus {
        conditions: conditions.into_iter().map(bounded_condition).collect(),
        observed_generation,
        cluster_uid: cluster_uid.map(|uid| excerpt(&uid, UID_CHARACTERS_MAX)),
        fleet,
        observed_kubeconfig,
        server: server.map(|url| excerpt(&url, URL_CHARACTERS_MAX)),
        api_server: api_server.map(|url| excerpt(&url, URL_CHARACTERS_MAX)),
        version: version.map(|version| excerpt(&version, VERSION_CHARACTERS_MAX)),
        served,
        outdated,
        machine_deployments: machine_deployments.into_iter().map(bounded_entry).collect(),
    }
}

fn bounded_condition(condition: Condition) -> Condition {
    Condition {
        message: cut(&condition.message),
        ..condition
    }
}

fn bounded_entry(entry: MachineDeploymentEntry) -> MachineDeploymentEntry {
    let MachineDeploymentEntry {
        name,
        state,
        reason,
        message,
        since,
        trace_id,
        profile,
    } = entry;
    MachineDeploymentEntry {
        name: excerpt(&name, FULL_NAME_CHARACTERS_MAX),
        state,
        reason,
        message: message.as_deref().map(cut),
        since,
        trace_id,
        profile: profile.as_ref().map(bounded_profile),
    }
}

fn bounded_profile(profile: &ProfileEntry) -> ProfileEntry {
    let text = |text: &str| excerpt(text, TEXT_CHARACTERS_MAX);
    ProfileEntry {
        name: text(&profile.name),
        version: text(&profile.version),
        default: profile.default.as_deref().map(text),
        next: profile.next.as_deref().map(text),
    }
}

/// What has not been observed stays. What became of the cluster goes with the state that it is
/// about.
fn kept(report: &Report, before: &[Condition], found: &[Condition]) -> Vec<Condition> {
    let is_known = report.findings.contains_key(&ConditionType::Registered);
    let is_over = |old: &Condition| is_known && old.type_ == ConditionType::Released.as_str();
    let kept = before.iter().filter(|old| {
        let is_new = found.iter().any(|new| new.type_ == old.type_);
        old.type_ != READY && !is_new && !is_over(old)
    });
    kept.cloned().collect()
}

fn condition(kind: &str, finding: &Finding) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: if finding.holds { "True" } else { "False" }.to_owned(),
        reason: finding.reason.to_owned(),
        message: cut(&finding.message),
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        observed_generation: None,
    }
}

/// Ready says the first thing that is wrong, in the order in which a tenant comes to life.
fn summary(conditions: &[Condition]) -> Condition {
    let of = |kind: &ConditionType| conditions.iter().find(|found| found.type_ == kind.as_str());
    let wrong = ORDER
        .iter()
        .filter_map(of)
        .find(|found| found.status != "True");
    let missing = ORDER
        .iter()
        .filter(|kind| !OPTIONAL.contains(kind))
        .find(|kind| of(kind).is_none());
    let (status, reason, message) = match (wrong, missing) {
        (Some(wrong), _) => ("False", wrong.reason.clone(), wrong.message.clone()),
        (None, Some(missing)) => (
            "Unknown",
            "Engaging".to_owned(),
            format!("{} is not known yet", missing.as_str()),
        ),
        (None, None) => ("True", "Ready".to_owned(), String::new()),
    };
    Condition {
        type_: READY.to_owned(),
        status: status.to_owned(),
        reason,
        message,
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        observed_generation: None,
    }
}

fn transition(new: &Condition, before: &[Condition], now: Timestamp) -> Time {
    before
        .iter()
        .find(|old| old.type_ == new.type_ && old.status == new.status)
        .map_or_else(
            || to_the_second(now),
            |old| old.last_transition_time.clone(),
        )
}

/// Times in objects have no fractions: what is written must be what is read back.
fn to_the_second(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

fn served_finding(entries: &[MachineDeploymentEntry]) -> Finding {
    let not_served = entries.iter().filter(|entry| {
        matches!(
            entry.state,
            MachineDeploymentState::Refused | MachineDeploymentState::Failing
        )
    });
    match not_served.clone().count() {
        0 => Finding::well("AllServed"),
        count => {
            let names = not_served.clone().map(|entry| entry.name.as_str());
            let first = names.take(3).collect::<Vec<_>>().join(", ");
            let cause = not_served
                .clone()
                .find_map(|entry| entry.message.as_deref());
            let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
            Finding::wrong(
                "SomeNotServed",
                format!("{count} not served, among them {first}{cause}"),
            )
        }
    }
}

fn served(entries: &[MachineDeploymentEntry]) -> String {
    let served = entries
        .iter()
        .filter(|entry| entry.state == MachineDeploymentState::Served);
    format!("{}/{}", served.count(), entries.len())
}

fn outdated(entries: &[MachineDeploymentEntry]) -> u32 {
    let profiles = entries.iter().filter_map(|entry| entry.profile.as_ref());
    let outdated = profiles.filter(|profile| profile.next.is_some());
    u32::try_from(outdated.count()).unwrap_or(u32::MAX)
}

/// One entry per machine deployment that exists, failing ones first, then by name.
fn entries(report: &Report, before: &[MachineDeploymentEntry]) -> Vec<MachineDeploymentEntry> {
    let old: BTreeMap<&str, &MachineDeploymentEntry> = before
        .iter()
        .map(|entry| (entry.name.as_str(), entry))
        .collect();
    let mut entries: Vec<MachineDeploymentEntry> = match &report.existing {
        None => before.to_vec(),
        Some(existing) => existing
            .iter()
            .filter_map(|name| match report.outcomes.get(name) {
                Some(outcome) => Some(entry(name, outcome, old.get(name.as_str()).copied())),
                None => old.get(name.as_str()).map(|entry| (*entry).clone()),
            })
            .collect(),
    };
    entries.sort_by(|a, b| (a.state, &a.name).cmp(&(b.state, &b.name)));
    entries
}

/// An entry that says the same as before keeps its time and its trace.
fn entry(
    name: &str,
    outcome: &Outcome,
    before: Option<&MachineDeploymentEntry>,
) -> MachineDeploymentEntry {
    let message = outcome.message.as_deref().map(cut);
    let unchanged = before.filter(|old| {
        (old.state, old.reason.as_str(), &old.message) == (outcome.state, outcome.reason, &message)
    });
    let profile = outcome.profile.as_deref().map(profile);
    match unchanged {
        Some(unchanged) => MachineDeploymentEntry {
            profile,
            ..unchanged.clone()
        },
        None => MachineDeploymentEntry {
            name: name.to_owned(),
            state: outcome.state,
            reason: outcome.reason.to_owned(),
            message,
            since: to_the_second(outcome.at),
            trace_id: outcome.trace_id.clone(),
            profile,
        },
    }
}

fn profile(tried: &ProfileTried) -> ProfileEntry {
    let default = tried.default.as_ref();
    ProfileEntry {
        name: tried.name.clone(),
        version: tried.version.clone(),
        default: default.map(|(name, version)| format!("{name} {version}")),
        next: tried.next.clone(),
    }
}

fn cut(message: &str) -> String {
    excerpt(message, MESSAGE_CHARACTERS_MAX)
}
