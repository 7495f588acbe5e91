//! Computes the status of a WorkerCluster from the report about its tenant and from the previous
//! status.
//!
//! Fields that have not been observed keep their value, and a timestamp changes only together with
//! what it dates. Texts of tenants and their clusters are truncated here: all WorkerClusters share
//! one watch, and one status of many megabytes would end it for the whole fleet.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use osm_api::{
    condition::ConditionType,
    reason::Reason,
    worker_cluster::{
        BehindEntry, FULL_NAME_CHARACTERS_MAX, MESSAGE_CHARACTERS_MAX, MachineDeploymentEntry,
        MachineDeploymentState, ProfileEntry, TEXT_CHARACTERS_MAX, UID_CHARACTERS_MAX,
        URL_CHARACTERS_MAX, VERSION_CHARACTERS_MAX, WorkerClusterStatus,
    },
};
use osm_tenant::report::{ConditionState, Outcome, ProfileTried, Report, excerpt};

/// The maximum number of machine deployments in a status. Served ones are left out first. A status
/// must stay far below 1.5 MiB, the limit of an object, and people read the first screen.
const ENTRIES_MAX: usize = 100;

/// The maximum number of machine deployments that a message names.
const NAMED_MAX: usize = 3;

/// The other conditions, in the order in which they become true for a new tenant. They are listed
/// and summarized in this order.
const ORDER: [ConditionType; 9] = [
    ConditionType::Registered,
    ConditionType::Connected,
    ConditionType::Adopted,
    ConditionType::Claimed,
    ConditionType::Prepared,
    ConditionType::ProfilesInstalled,
    ConditionType::NodeCredentials,
    ConditionType::MachineDeploymentsServed,
    ConditionType::MachinesCanJoin,
];

/// Conditions that not every tenant has. `Ready` does not wait for them.
const OPTIONAL: [ConditionType; 3] = [
    ConditionType::Adopted,
    ConditionType::NodeCredentials,
    ConditionType::MachinesCanJoin,
];

/// The inputs of a status.
#[derive(Clone, Copy, Debug)]
pub struct Params<'a> {
    /// The report about the tenant.
    pub report: &'a Report,
    /// The current status.
    pub before: &'a WorkerClusterStatus,
    /// The generation of the WorkerCluster that the report is about.
    pub generation: Option<i64>,
    /// The current time.
    pub now: Timestamp,
}

/// Returns the desired status.
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
    let previous = unobserved(report, &before.conditions, &conditions);
    conditions.extend(previous);
    forget_unobserved(&mut conditions, report);
    // After a restart, conditions are observed one by one.
    conditions.sort_by_key(|condition| {
        let place = |kind: &ConditionType| kind.as_str() == condition.type_;
        ORDER.iter().position(place).unwrap_or(ORDER.len())
    });
    conditions.insert(0, summary(&conditions));
    // Keep the order of the stored conditions: otherwise each restart would write another one.
    let place = |it: &Condition| {
        let mut kept = before.conditions.iter();
        kept.position(|old| old.type_ == it.type_)
    };
    conditions.sort_by_key(|it| place(it).unwrap_or(usize::MAX));
    for condition in &mut conditions {
        condition.last_transition_time = transition(condition, &before.conditions, now);
        condition.observed_generation = generation;
    }
    let served = served(&entries, untried(report, &entries));
    let outdated = outdated(&entries);
    let fleet = report.fleet.clone().or_else(|| before.fleet());
    truncated(WorkerClusterStatus {
        conditions,
        observed_generation: generation,
        cluster_uid: report
            .cluster_uid
            .clone()
            .or_else(|| before.cluster_uid.clone()),
        fleet: fleet.as_ref().map(|it| it.name.clone()),
        fleet_namespace: fleet.and_then(|it| it.namespace),
        // This is for fleets to ask, and not part of a report.
        requested_by_fleet: before.requested_by_fleet.clone(),
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

/// Makes unknown what is not observed while the registration is refused, while the cluster does not
/// answer, or while it cannot be engaged.
fn forget_unobserved(conditions: &mut [Condition], report: &Report) {
    let wrong = |kind| report.findings.get(&kind).filter(|finding| !finding.holds);
    // A cluster that answers may still refuse a watch.
    let is_lost = |finding: &&ConditionState| finding.reason != Reason::WatchFailed;
    if let Some(refused) = wrong(ConditionType::Registered) {
        let why = format!(
            "not observed while the registration is not accepted ({})",
            refused.reason
        );
        let kinds = &ConditionType::OF_REGISTERED;
        forget(conditions, kinds, (Reason::NotRegistered, &why));
    } else if let Some(lost) = wrong(ConditionType::Connected).filter(is_lost) {
        let why = format!(
            "not observed while the cluster does not answer ({})",
            lost.reason
        );
        let kinds = &ConditionType::OF_CONNECTED;
        forget(conditions, kinds, (Reason::NotConnected, &why));
    } else if let Some(reason) = report.not_engaged {
        let why = format!("not observed while the cluster is not served ({reason})");
        forget(
            conditions,
            &ConditionType::OF_ENGAGED,
            (Reason::NotEngaged, &why),
        );
    }
}

/// Makes conditions of these kinds unknown.
fn forget(
    conditions: &mut [Condition],
    kinds: &[ConditionType],
    (reason, message): (Reason, &str),
) {
    let is_one = |it: &&mut Condition| kinds.iter().any(|kind| kind.as_str() == it.type_);
    for condition in conditions.iter_mut().filter(is_one) {
        "Unknown".clone_into(&mut condition.status);
        reason.as_str().clone_into(&mut condition.reason);
        message.clone_into(&mut condition.message);
    }
}

/// Truncates every text that a tenant may control, even one that an earlier release wrote. All
/// fields are named, so that a new one is not forgotten.
fn truncated(status: WorkerClusterStatus) -> WorkerClusterStatus {
    let WorkerClusterStatus {
        conditions,
        observed_generation,
        cluster_uid,
        fleet,
        fleet_namespace,
        requested_by_fleet,
        observed_kubeconfig,
        server,
        api_server,
        version,
        served,
        outdated,
        machine_deployments,
    } = status;
    WorkerClusterStatus {
        conditions: conditions.into_iter().map(truncated_condition).collect(),
        observed_generation,
        cluster_uid: cluster_uid.map(|uid| excerpt(&uid, UID_CHARACTERS_MAX)),
        fleet,
        fleet_namespace,
        requested_by_fleet,
        observed_kubeconfig,
        server: server.map(|url| excerpt(&url, URL_CHARACTERS_MAX)),
        api_server: api_server.map(|url| excerpt(&url, URL_CHARACTERS_MAX)),
        version: version.map(|version| excerpt(&version, VERSION_CHARACTERS_MAX)),
        served,
        outdated,
        machine_deployments: machine_deployments
            .into_iter()
            .map(truncated_entry)
            .collect(),
    }
}

fn truncated_condition(condition: Condition) -> Condition {
    Condition {
        message: truncated_message(&condition.message),
        ..condition
    }
}

fn truncated_entry(entry: MachineDeploymentEntry) -> MachineDeploymentEntry {
    let MachineDeploymentEntry {
        name,
        state,
        reason,
        message,
        since,
        trace_id,
        profile,
        behind,
    } = entry;
    MachineDeploymentEntry {
        name: excerpt(&name, FULL_NAME_CHARACTERS_MAX),
        state,
        reason,
        message: message.as_deref().map(truncated_message),
        since,
        trace_id,
        profile: profile.as_ref().map(truncated_profile),
        behind: behind.map(|it| BehindEntry {
            class: it.class,
            parts: truncated_message(&it.parts),
            document: excerpt(&it.document, TEXT_CHARACTERS_MAX),
        }),
    }
}

fn truncated_profile(profile: &ProfileEntry) -> ProfileEntry {
    let text = |text: &str| excerpt(text, TEXT_CHARACTERS_MAX);
    ProfileEntry {
        name: text(&profile.name),
        version: text(&profile.version),
        default: profile.default.as_deref().map(text),
        next: profile.next.as_deref().map(text),
    }
}

/// Returns the previous conditions that have not been observed since. `Released` is dropped once
/// the cluster is registered again.
fn unobserved(report: &Report, before: &[Condition], observed: &[Condition]) -> Vec<Condition> {
    let is_known = report.findings.contains_key(&ConditionType::Registered);
    let is_over = |old: &Condition| is_known && old.type_ == ConditionType::Released.as_str();
    let kept = before.iter().filter(|old| {
        let is_observed = observed.iter().any(|new| new.type_ == old.type_);
        old.type_ != ConditionType::Ready.as_str() && !is_observed && !is_over(old)
    });
    kept.cloned().collect()
}

fn condition(kind: &str, finding: &ConditionState) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: match finding {
            finding if finding.is_unknown => "Unknown",
            finding if finding.holds => "True",
            _ => "False",
        }
        .to_owned(),
        reason: finding.reason.to_string(),
        message: truncated_message(&finding.message),
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        observed_generation: None,
    }
}

/// Returns the condition `Ready`. It has the reason of the first condition in [`ORDER`] that is
/// false, and names the others.
fn summary(conditions: &[Condition]) -> Condition {
    let of = |kind: &ConditionType| kind.find_in(conditions);
    let mut wrong = ORDER
        .iter()
        .filter_map(of)
        .filter(|condition| condition.status == "False");
    let missing = ORDER
        .iter()
        .filter(|kind| !OPTIONAL.contains(kind))
        .find(|kind| of(kind).is_none_or(|it| it.status == "Unknown"));
    let (status, reason, message) = match (wrong.next(), missing) {
        (Some(first), _) => {
            let first = expired(conditions, first).unwrap_or(first);
            let others = wrong.map(|it| format!("; {} is also False ({})", it.type_, it.reason));
            let message = others.fold(first.message.clone(), |message, other| message + &other);
            ("False", first.reason.clone(), message)
        }
        (None, Some(missing)) => (
            "Unknown",
            Reason::Engaging.to_string(),
            format!("{} is not known yet", missing.as_str()),
        ),
        (None, None) => ("True", Reason::Ready.to_string(), String::new()),
    };
    Condition {
        type_: ConditionType::Ready.as_str().to_owned(),
        status: status.to_owned(),
        reason,
        message,
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        observed_generation: None,
    }
}

/// Returns the condition that says why a credential is refused: it has expired.
fn expired<'a>(conditions: &'a [Condition], first: &Condition) -> Option<&'a Condition> {
    let is_refused = first.reason == Reason::CredentialRefused.as_str();
    let valid = ConditionType::CredentialValid.find_in(conditions)?;
    (is_refused && valid.reason == Reason::Expired.as_str()).then_some(valid)
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

/// Truncates a time to seconds. Times in objects have no fractions, and the API server must return
/// the time that was written.
fn to_the_second(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

/// Names the commonest cause, and how many machine deployments have others.
fn served_finding(entries: &[MachineDeploymentEntry]) -> ConditionState {
    let mut by_reason: Vec<(&str, Vec<&MachineDeploymentEntry>)> = Vec::new();
    for entry in entries.iter().filter(|it| it.state.is_failing()) {
        match by_reason.iter_mut().find(|it| it.0 == entry.reason) {
            Some((_, same)) => same.push(entry),
            None => by_reason.push((&entry.reason, vec![entry])),
        }
    }
    let count: usize = by_reason.iter().map(|(_, entries)| entries.len()).sum();
    // Of causes that are as common, that of the first entry comes first.
    by_reason.sort_by_key(|(_, entries)| Reverse(entries.len()));
    let Some(((reason, commonest), others)) = by_reason.split_first() else {
        return ConditionState::well(Reason::AllServed);
    };
    let names = commonest.iter().take(NAMED_MAX).map(|it| it.name.as_str());
    let names: Vec<_> = names.collect();
    let among = match names.len() {
        all if all == count => ":",
        _ => ", among them",
    };
    let mut causes = commonest.iter().filter_map(|it| it.message.as_deref());
    let cause = causes.next().unwrap_or(reason);
    let others = others
        .iter()
        .map(|(reason, entries)| format!("; {} for another reason ({reason})", entries.len()));
    let message = format!("{count} not served{among} {}: {cause}", names.join(", "));
    let message = others.fold(message, |message, other| message + &other);
    ConditionState::wrong(Reason::SomeNotServed, message)
}

/// Returns how many machine deployments exist that nothing is known of yet.
fn untried(report: &Report, entries: &[MachineDeploymentEntry]) -> usize {
    let known: BTreeSet<&String> = entries.iter().map(|entry| &entry.name).collect();
    let existing = report.existing.iter().flatten();
    existing
        .filter(|name| !known.contains(name) && !report.ignored.contains(*name))
        .count()
}

fn served(entries: &[MachineDeploymentEntry], untried: usize) -> String {
    let served = entries
        .iter()
        .filter(|entry| entry.state == MachineDeploymentState::Served);
    format!("{}/{}", served.count(), entries.len() + untried)
}

fn outdated(entries: &[MachineDeploymentEntry]) -> u32 {
    let profiles = entries.iter().filter_map(|entry| entry.profile.as_ref());
    let outdated = profiles.filter(|profile| profile.next.is_some());
    u32::try_from(outdated.count()).unwrap_or(u32::MAX)
}

/// Returns one entry per existing machine deployment: failing ones first, then those whose machines
/// are behind, each by name.
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
    // A status has a hundred of them: those to act on come first.
    entries.sort_by(|a, b| {
        let key = |it: &MachineDeploymentEntry| (it.state, it.behind.is_none());
        (key(a), &a.name).cmp(&(key(b), &b.name))
    });
    entries
}

/// Returns an entry. If its state, reason and message are the same as before, it keeps its time and
/// its trace ID.
fn entry(
    name: &str,
    outcome: &Outcome,
    before: Option<&MachineDeploymentEntry>,
) -> MachineDeploymentEntry {
    let message = outcome.message.as_deref().map(truncated_message);
    let unchanged = before.filter(|old| {
        (old.state, old.reason.as_str(), &old.message)
            == (outcome.state, outcome.reason.as_str(), &message)
    });
    let profile = outcome.profile.as_deref().map(profile);
    // While it is not served, nothing newer is known of its machines.
    let is_served = outcome.state == MachineDeploymentState::Served;
    let kept = before
        .filter(|_| !is_served)
        .and_then(|old| old.behind.clone());
    let behind = outcome.behind.as_deref().cloned().or(kept);
    match unchanged {
        Some(unchanged) => MachineDeploymentEntry {
            profile,
            behind,
            ..unchanged.clone()
        },
        None => MachineDeploymentEntry {
            name: name.to_owned(),
            state: outcome.state,
            reason: outcome.reason.to_string(),
            message,
            since: to_the_second(outcome.at),
            trace_id: outcome.trace_id.clone(),
            profile,
            behind,
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

fn truncated_message(message: &str) -> String {
    excerpt(message, MESSAGE_CHARACTERS_MAX)
}
