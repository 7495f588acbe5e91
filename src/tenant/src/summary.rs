//! A summary of the whole fleet in rows, for people and programs.
//!
//! It is computed on request from what is in memory, and contains no secrets. Times are those of
//! the WorkerClusters' conditions, so that they survive a restart.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Serialize, Serializer};

use super::report::{ConditionState, Outcome, Report, excerpt};
use osm_api::{
    condition::ConditionType,
    reason::Reason,
    worker_cluster::{MachineDeploymentState, WorkerClusterStatus},
};

/// The highest number of characters of a cause, which keeps a page of a thousand tenants small.
const WHY_CHARACTERS_MAX: usize = 300;
/// The highest number of characters of a query.
const QUERY_CHARACTERS_MAX: usize = 200;

/// The state of a tenant, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Its worker cluster does not answer.
    Unreachable,
    /// Its worker cluster answers, but with errors.
    Degraded,
    /// Its registration or its claim on the cluster is refused. A person must fix it.
    Refused,
    /// It is served, but something fails.
    NotReady,
    /// It is not served yet.
    NotEngaged,
    /// It is not served because it is paused.
    Paused,
    /// It is served, and nothing fails.
    Healthy,
}

impl State {
    /// All states, worst first.
    pub const ALL: [Self; 7] = [
        Self::Unreachable,
        Self::Degraded,
        Self::Refused,
        Self::NotReady,
        Self::NotEngaged,
        Self::Paused,
        Self::Healthy,
    ];

    /// Returns the name of the state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "Unreachable",
            Self::Degraded => "Degraded",
            Self::Refused => "Refused",
            Self::NotReady => "NotReady",
            Self::NotEngaged => "NotEngaged",
            Self::Paused => "Paused",
            Self::Healthy => "Healthy",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|state| state.as_str().eq_ignore_ascii_case(text))
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The fleet, as one replica knows it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetSummary {
    /// The replica that created the summary.
    pub replica: String,
    /// The time of the summary, by the replica's clock.
    pub taken_at: Moment,
    /// The number of all tenants. The filter does not affect it.
    pub total: usize,
    /// The number of tenants in each state.
    pub states: BTreeMap<&'static str, usize>,
    /// The number of tenants that another replica serves.
    pub served_elsewhere: usize,
    /// The tenants that match the filter, worst first.
    pub tenants: Vec<Row>,
}

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
    /// The time since when it is in this state, according to its condition.
    pub since: Option<Moment>,
    /// The first problem: a reason and a message.
    pub why: Option<String>,
    /// The version of its API server.
    pub version: Option<String>,
    /// Its machine deployments; absent if they have not been listed here.
    pub machine_deployments: Option<MachineDeployments>,
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
    pub at: Moment,
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

/// A time, to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Timestamp);

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:.0}", self.0))
    }
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
pub struct Known<'a> {
    /// Its report.
    pub report: &'a Report,
    /// The status of its WorkerCluster, for the times.
    pub status: Option<&'a WorkerClusterStatus>,
    /// Its statistics.
    pub statistics: Statistics,
}

/// Returns the row of a tenant that this replica serves.
pub fn row(name: String, known: Known<'_>) -> Row {
    let Known {
        report,
        status,
        statistics,
    } = known;
    let machine_deployments = report.existing.as_ref().map(|it| count(it, report));
    let found = Findings::of_report(report).state();
    Row {
        name,
        state: found.0,
        served_here: true,
        since: status.and_then(|status| since(status, found)),
        why: why(report, machine_deployments),
        version: report.version.clone(),
        machine_deployments,
        last_reconcile: last_reconcile(report),
        queue: Some(statistics.queue),
        user_data_bytes_max: statistics.user_data_bytes_max,
        call_latency_milliseconds: statistics.call_latency.map(milliseconds),
    }
}

/// Returns the row of a tenant that another replica serves, from its WorkerCluster's status.
pub fn row_elsewhere(name: String, status: Option<&WorkerClusterStatus>) -> Row {
    let conditions = status.map_or(&[][..], |status| &status.conditions);
    let found = Findings::of_conditions(conditions).state();
    Row {
        name,
        state: found.0,
        served_here: false,
        since: status.and_then(|status| since(status, found)),
        why: why_elsewhere(conditions),
        version: status.and_then(|status| status.version.clone()),
        machine_deployments: None,
        last_reconcile: None,
        queue: None,
        user_data_bytes_max: None,
        call_latency_milliseconds: None,
    }
}

impl FleetSummary {
    /// Creates a summary of the rows that match the filter, worst first. The totals count all rows.
    pub fn new(
        (replica, taken_at): (String, Timestamp),
        mut rows: Vec<Row>,
        filter: &Filter,
    ) -> Self {
        let mut states: BTreeMap<&'static str, usize> = BTreeMap::new();
        for row in &rows {
            *states.entry(row.state.as_str()).or_default() += 1;
        }
        let served_elsewhere = rows.iter().filter(|row| !row.served_here).count();
        let total = rows.len();
        rows.retain(|row| filter.keeps(row));
        rows.sort_by(|a, b| (a.state, &a.name).cmp(&(b.state, &b.name)));
        Self {
            replica,
            taken_at: Moment(taken_at),
            total,
            states,
            served_elsewhere,
            tenants: rows,
        }
    }
}

/// Selects tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The text that the name, cause or version contains, in lower case. If empty, all tenants
    /// match.
    query: String,
    /// The state; `None` matches all.
    state: Option<State>,
}

impl Filter {
    /// Parses a query and the name of a state. An unknown state is ignored.
    pub fn new(query: &str, state: &str) -> Self {
        let query = query.trim().to_lowercase();
        Self {
            query: query.chars().take(QUERY_CHARACTERS_MAX).collect(),
            state: State::parse(state.trim()),
        }
    }

    /// Returns the query in lower case.
    pub fn query(&self) -> &str {
        &self.query
    }

    /// Returns the state.
    pub const fn state(&self) -> Option<State> {
        self.state
    }

    fn keeps(&self, row: &Row) -> bool {
        if self.state.is_some_and(|state| state != row.state) {
            return false;
        }
        let mut texts = [Some(&row.name), row.why.as_ref(), row.version.as_ref()]
            .into_iter()
            .flatten();
        self.query.is_empty() || texts.any(|text| text.to_lowercase().contains(&self.query))
    }
}

/// The inputs of a tenant's state.
struct Findings {
    /// The conditions that are false. The reason is absent if this version does not know it.
    wrong: BTreeMap<ConditionType, Option<Reason>>,
    /// True if a machine deployment is refused or fails; absent until they have been listed.
    is_failing: Option<bool>,
}

impl Findings {
    fn of_report(report: &Report) -> Self {
        let wrong = wrong(report).map(|(kind, it)| (*kind, Some(it.reason)));
        let has_failing = |existing: &BTreeSet<String>| {
            let is_ours = |name| existing.contains(name) && !report.ignored.contains(name);
            let mut outcomes = report.outcomes.iter();
            outcomes.any(|(name, it)| is_failing(it.state) && is_ours(name))
        };
        Self {
            wrong: wrong.collect(),
            is_failing: report.existing.as_ref().map(has_failing),
        }
    }

    fn of_conditions(conditions: &[Condition]) -> Self {
        let kinds = ConditionType::OF_REGISTERED.into_iter();
        let kinds = kinds.chain([ConditionType::Registered, ConditionType::Adopted]);
        let wrong = kinds.filter_map(|kind| {
            let condition = kind.find_in(conditions);
            let condition = condition.filter(|it| it.status == "False")?;
            Some((kind, Reason::named(&condition.reason)))
        });
        let listed = ConditionType::MachineDeploymentsServed.find_in(conditions);
        Self {
            wrong: wrong.collect(),
            is_failing: listed.and_then(|it| match it.status.as_str() {
                "True" => Some(false),
                "False" => Some(true),
                _ => None,
            }),
        }
    }

    /// Returns the state, and the condition whose last transition dates it.
    fn state(&self) -> (State, ConditionType) {
        let wrong = |kind| self.wrong.get(&kind).copied();
        if let Some(reason) = wrong(ConditionType::Registered) {
            let state = match reason {
                Some(Reason::Paused) => State::Paused,
                _ => State::Refused,
            };
            return (state, ConditionType::Registered);
        }
        if let Some(reason) = wrong(ConditionType::Connected) {
            let state = match reason {
                Some(Reason::Degraded) => State::Degraded,
                _ => State::Unreachable,
            };
            return (state, ConditionType::Connected);
        }
        if wrong(ConditionType::Claimed).is_some() {
            return (State::Refused, ConditionType::Claimed);
        }
        let state = match self.is_failing {
            None => State::NotEngaged,
            Some(true) => State::NotReady,
            Some(false) if self.wrong.keys().any(|kind| !kind.is_remark()) => State::NotReady,
            Some(false) => State::Healthy,
        };
        (state, ConditionType::Ready)
    }
}

/// Returns the state of a tenant that this replica serves.
pub fn state(report: &Report) -> State {
    Findings::of_report(report).state().0
}

fn wrong(report: &Report) -> impl Iterator<Item = (&ConditionType, &ConditionState)> {
    report.findings.iter().filter(|(_, finding)| !finding.holds)
}

/// Returns when the state began; absent if the status has not been written since.
fn since(status: &WorkerClusterStatus, found: (State, ConditionType)) -> Option<Moment> {
    let (state, dated_by) = found;
    let condition = dated_by.find_in(&status.conditions)?;
    let is_well = condition.status == "True";
    (is_well == (state == State::Healthy)).then_some(Moment(condition.last_transition_time.0))
}

/// Returns the first problem, in the order in which a tenant becomes ready. Returns a remark only
/// if there is no problem.
fn why(report: &Report, machine_deployments: Option<MachineDeployments>) -> Option<String> {
    let wrong = || wrong(report);
    let of =
        |(_, finding): (_, &ConditionState)| sentence(finding.reason.as_str(), &finding.message);
    if let Some(first) = wrong().find(|(kind, _)| !kind.is_remark()) {
        return Some(of(first));
    }
    let failing = machine_deployments.map_or(0, |count| count.failing);
    if failing == 0 {
        return wrong().next().map(of);
    }
    let first = report.outcomes.iter().find(|(_, it)| is_failing(it.state));
    first.map(|(name, it)| {
        let message = it.message.as_deref().unwrap_or_default();
        sentence(it.reason.as_str(), &format!("{name}: {message}"))
    })
}

/// Returns the first problem according to a WorkerCluster. `Ready` has the cause of the first
/// condition that is false.
fn why_elsewhere(conditions: &[Condition]) -> Option<String> {
    let ready = ConditionType::Ready.find_in(conditions);
    let not_ready = ready.filter(|it| it.status != "True");
    let first = not_ready.or_else(|| conditions.iter().find(|it| it.status == "False"))?;
    Some(sentence(&first.reason, &first.message))
}

fn sentence(reason: &str, message: &str) -> String {
    let separator = if message.is_empty() { "" } else { ": " };
    let whole = format!("{reason}{separator}{message}");
    excerpt(&whole, WHY_CHARACTERS_MAX)
}

fn count(existing: &BTreeSet<String>, report: &Report) -> MachineDeployments {
    let mut count = MachineDeployments::default();
    for name in existing.difference(&report.ignored) {
        count.total += 1;
        let outcome = report.outcomes.get(name);
        let is_outdated = outcome.is_some_and(is_outdated);
        match outcome.map(|it| it.state) {
            Some(state) if is_failing(state) => count.failing += 1,
            Some(MachineDeploymentState::Served) => count.current += usize::from(!is_outdated),
            _ => count.waiting += 1,
        }
        count.outdated += usize::from(is_outdated);
    }
    count
}

const fn is_failing(state: MachineDeploymentState) -> bool {
    matches!(
        state,
        MachineDeploymentState::Refused | MachineDeploymentState::Failing
    )
}

fn is_outdated(outcome: &Outcome) -> bool {
    let profile = outcome.profile.as_deref();
    profile.is_some_and(|profile| profile.next.is_some())
}

fn last_reconcile(report: &Report) -> Option<LastReconcile> {
    let outcomes = report.outcomes.iter();
    let (name, last) = outcomes.max_by_key(|(_, outcome)| outcome.at)?;
    Some(LastReconcile {
        at: Moment(last.at),
        machine_deployment: name.clone(),
        outcome: last.state,
        reason: last.reason.as_str(),
    })
}

/// Returns milliseconds, rounded to a tenth.
fn milliseconds(latency: Duration) -> f64 {
    (latency.as_secs_f64() * 10_000.0).round() / 10.0
}

#[cfg(test)]
mod tests;
