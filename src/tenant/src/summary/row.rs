//! The rows of a summary.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::Serialize;

use super::{
    Rfc3339Time,
    cause::{self, Cause},
    state::{Findings, State, since},
};
use crate::report::{Outcome, Report};
use osm_api::{
    change::Class,
    worker_cluster::{MachineDeploymentState, WorkerClusterStatus},
};

/// One tenant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The registration, as `namespace/name`.
    pub name: String,
    /// Its state.
    pub state: State,
    /// True if this replica serves it. Otherwise, the row contains only what its WorkerCluster
    /// says.
    pub served_here: bool,
    /// The replica that serves it, according to this one; absent until the replicas have agreed.
    pub served_by: Option<String>,
    /// The time since when it is in this state, according to its condition.
    pub since: Option<Rfc3339Time>,
    /// The machine-readable CamelCase reason of the first problem.
    pub reason: Option<String>,
    /// The first problem: a reason and a message.
    pub why: Option<String>,
    /// The version of its API server.
    pub version: Option<String>,
    /// Its machine deployments; absent if they have not been listed.
    pub machine_deployments: Option<MachineDeployments>,
    /// The number of machine deployments whose machines may have an older document, by what it
    /// takes to bring the current one into effect on them.
    pub behind: BTreeMap<Class, usize>,
    /// The reconcile that ended last.
    pub last_reconcile: Option<LastReconcile>,
    /// Its waiting and running reconciles.
    pub queue: Option<Queue>,
    /// The size in bytes of the largest document that was found or rendered since it was engaged.
    pub user_data_bytes_max: Option<u32>,
    /// The latency of its API server, as a moving average.
    pub call_latency_milliseconds: Option<f64>,
}

/// The numbers of a tenant's machine deployments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MachineDeployments {
    /// All, except those that we do not serve.
    pub total: usize,
    /// Those that are served, with the newest default profile if they use one.
    pub current: usize,
    /// Those whose default profile has a newer version that is not installed yet.
    pub outdated: usize,
    /// Those that lack something, or have not been reconciled yet.
    pub waiting: usize,
    /// Those that are refused or fail.
    pub failing: usize,
}

/// The reconcile of a tenant that ended last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastReconcile {
    /// When it ended.
    pub at: Rfc3339Time,
    /// The machine deployment, as `namespace/name`.
    pub machine_deployment: String,
    /// Its state afterwards.
    pub outcome: MachineDeploymentState,
    /// The machine-readable CamelCase reason.
    pub reason: &'static str,
}

/// The waiting and running reconciles of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// Resyncs that wait for a slot of the tenant.
    pub waiting: u32,
    /// Running reconciles of any priority.
    pub under_way: u32,
}

/// The current statistics of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Its waiting and running reconciles.
    pub queue: Queue,
    /// The largest document, in bytes.
    pub user_data_bytes_max: Option<u32>,
    /// The latency of calls to its worker cluster.
    pub call_latency: Option<Duration>,
}

/// The state in memory of a tenant that this replica serves.
#[derive(Clone, Copy, Debug)]
pub struct ServedTenant<'a> {
    /// Its report.
    pub report: &'a Report,
    /// The status of its WorkerCluster, for the times.
    pub status: Option<&'a WorkerClusterStatus>,
    /// Its statistics.
    pub statistics: Statistics,
}

/// Returns the row of a tenant that this replica serves.
pub fn row(name: String, known: ServedTenant<'_>) -> Row {
    let ServedTenant {
        report,
        status,
        statistics,
    } = known;
    let machine_deployments = report.existing.as_ref().map(|it| count(it, report));
    let failing = machine_deployments.map_or(0, |count| count.failing);
    let (reason, why) = parts(cause::of_report(report, failing));
    let found = Findings::of_report(report).state();
    Row {
        name,
        state: found.0,
        served_here: true,
        served_by: None,
        since: status.and_then(|status| since(status, found)),
        reason,
        why,
        version: report.version.clone(),
        machine_deployments,
        behind: status.map(WorkerClusterStatus::behind).unwrap_or_default(),
        last_reconcile: last_reconcile(report),
        queue: Some(statistics.queue),
        user_data_bytes_max: statistics.user_data_bytes_max,
        call_latency_milliseconds: statistics.call_latency.map(milliseconds),
    }
}

/// Returns the row of a tenant that another replica serves, from its WorkerCluster's status.
pub fn row_elsewhere(name: String, status: Option<&WorkerClusterStatus>) -> Row {
    let conditions = status.map_or(&[][..], |status| &status.conditions);
    let findings = Findings::of_conditions(conditions);
    let found = findings.state();
    let (reason, why) = parts(status.and_then(cause::of_status));
    let listed = status.filter(|_| findings.are_listed());
    Row {
        name,
        state: found.0,
        served_here: false,
        served_by: None,
        since: status.and_then(|status| since(status, found)),
        reason,
        why,
        version: status.and_then(|status| status.version.clone()),
        machine_deployments: listed.and_then(count_elsewhere),
        behind: status.map(WorkerClusterStatus::behind).unwrap_or_default(),
        last_reconcile: None,
        queue: None,
        user_data_bytes_max: None,
        call_latency_milliseconds: None,
    }
}

fn parts(cause: Option<Cause>) -> (Option<String>, Option<String>) {
    cause.map(|it| (it.reason, it.why)).unzip()
}

/// Counts machine deployments as a status does: `2/3` are served. It has at most a hundred entries,
/// the failing ones first, so that of more than a hundred failing ones the rest count as waiting.
fn count_elsewhere(status: &WorkerClusterStatus) -> Option<MachineDeployments> {
    let (served, total) = status.served.as_deref()?.split_once('/')?;
    let (served, total): (usize, usize) = (served.parse().ok()?, total.parse().ok()?);
    let entries = &status.machine_deployments;
    let failing = entries.iter().filter(|it| it.state.is_failing()).count();
    let outdated = status.outdated.unwrap_or_default() as usize;
    Some(MachineDeployments {
        total,
        current: served.saturating_sub(outdated),
        outdated,
        waiting: total.saturating_sub(served).saturating_sub(failing),
        failing,
    })
}

fn count(existing: &BTreeSet<String>, report: &Report) -> MachineDeployments {
    let mut count = MachineDeployments::default();
    for name in existing.difference(&report.ignored) {
        count.total += 1;
        let outcome = report.outcomes.get(name);
        let is_outdated = outcome.is_some_and(is_outdated);
        match outcome.map(|it| it.state) {
            Some(state) if state.is_failing() => count.failing += 1,
            Some(MachineDeploymentState::Served) => count.current += usize::from(!is_outdated),
            _ => count.waiting += 1,
        }
        count.outdated += usize::from(is_outdated);
    }
    count
}

fn is_outdated(outcome: &Outcome) -> bool {
    let profile = outcome.profile.as_deref();
    profile.is_some_and(|profile| profile.next.is_some())
}

fn last_reconcile(report: &Report) -> Option<LastReconcile> {
    let outcomes = report.outcomes.iter();
    let (name, last) = outcomes.max_by_key(|(_, outcome)| outcome.at)?;
    Some(LastReconcile {
        at: Rfc3339Time(last.at),
        machine_deployment: name.clone(),
        outcome: last.state,
        reason: last.reason.as_str(),
    })
}

/// Returns milliseconds, rounded to a tenth.
fn milliseconds(latency: Duration) -> f64 {
    (latency.as_secs_f64() * 10_000.0).round() / 10.0
}
