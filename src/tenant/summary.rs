//! The whole fleet in rows: what people and programs see who ask how all tenants are doing.
//!
//! Made of what is known anyway when somebody asks, and of nothing secret. Times are those of the
//! WorkerClusters' conditions, so that they outlive a restart.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Serialize, Serializer};

use super::report::{ConditionState, Outcome, Report, excerpt};
use crate::api::{
    condition::ConditionType,
    reason::Reason,
    worker_cluster::{MachineDeploymentState, WorkerClusterStatus},
};

/// A cause is cut to this many characters: a page of a thousand tenants stays a page.
const WHY_CHARACTERS_MAX: usize = 300;
/// What somebody looks for is cut to this many characters.
const QUERY_CHARACTERS_MAX: usize = 200;

/// How a tenant is doing, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Its worker cluster does not answer.
    Unreachable,
    /// Its worker cluster answers, and badly.
    Degraded,
    /// Its registration, or its claim on the cluster, is refused: a person must mend it.
    Refused,
    /// It is served, and something of it fails.
    NotReady,
    /// It is not served yet.
    NotEngaged,
    /// It is not served because somebody wants it so.
    Paused,
    /// It is served, and all is well.
    Healthy,
}

impl State {
    /// All of them, worst first.
    pub const ALL: [Self; 7] = [
        Self::Unreachable,
        Self::Degraded,
        Self::Refused,
        Self::NotReady,
        Self::NotEngaged,
        Self::Paused,
        Self::Healthy,
    ];

    /// The name, for people and programs.
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
    /// The replica that tells.
    pub replica: String,
    /// When, by its clock.
    pub taken_at: Moment,
    /// How many tenants there are, whatever was asked for.
    pub total: usize,
    /// How many of them are in which state.
    pub states: BTreeMap<&'static str, usize>,
    /// How many of them another replica serves.
    pub served_elsewhere: usize,
    /// Those that were asked for, worst first.
    pub tenants: Vec<Row>,
}

/// One tenant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The registration, as `namespace/name`.
    pub name: String,
    /// How it is doing.
    pub state: State,
    /// Whether this replica serves it. Another one knows more than its WorkerCluster says.
    pub served_here: bool,
    /// Since when, as its condition says.
    pub since: Option<Moment>,
    /// What is wrong first: a word for programs, and a sentence.
    pub why: Option<String>,
    /// The version of its API server.
    pub version: Option<String>,
    /// Its machine deployments; none where they have not been listed here.
    pub machine_deployments: Option<MachineDeployments>,
    /// The reconcile that ended last.
    pub last_reconcile: Option<LastReconcile>,
    /// Reconciles that wait for their turn, and those under way.
    pub queue: Option<Queue>,
    /// The largest document that was found or made since it was engaged.
    pub user_data_bytes_max: Option<u32>,
    /// How long its API server takes to answer, as a moving average.
    pub call_latency_milliseconds: Option<f64>,
}

/// How many machine deployments of a tenant are how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MachineDeployments {
    /// Those that are ours.
    pub total: usize,
    /// Served, with the newest default profile where they use one.
    pub current: usize,
    /// A newer version of their default profile is to come.
    pub outdated: usize,
    /// Something is still missing, or they have not been looked at.
    pub waiting: usize,
    /// Refused, or tried again and again.
    pub failing: usize,
}

/// The reconcile of a tenant that ended last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastReconcile {
    /// When it ended.
    pub at: Moment,
    /// Whose, as `namespace/name`.
    pub machine_deployment: String,
    /// What became of it.
    pub outcome: MachineDeploymentState,
    /// The machine-readable CamelCase reason.
    pub reason: &'static str,
}

/// Reconciles of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// Resyncs that wait for a slot of the tenant.
    pub waiting: u32,
    /// Reconciles of any kind that have begun.
    pub under_way: u32,
}

/// A time of day, to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Timestamp);

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:.0}", self.0))
    }
}

/// What the process counts for a tenant, as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Reconciles.
    pub queue: Queue,
    /// The largest document, in bytes.
    pub user_data_bytes_max: Option<u32>,
    /// How long calls to its worker cluster take.
    pub call_latency: Option<Duration>,
}

/// What is known of a tenant that this replica serves.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The report about it.
    pub report: &'a Report,
    /// What its WorkerCluster says, for the times.
    pub status: Option<&'a WorkerClusterStatus>,
    /// What is counted.
    pub statistics: Statistics,
}

/// The row of a tenant that this replica serves.
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

/// The row of a tenant that another replica serves: what its WorkerCluster says.
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
    /// Of these rows, those that are asked for, worst first.
    pub fn new(told: (String, Timestamp), mut rows: Vec<Row>, filter: &Filter) -> Self {
        let (replica, taken_at) = told;
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

/// Which tenants are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// What name, cause or version contains, in any case; nothing keeps all.
    query: String,
    /// In which state; none keeps all.
    state: Option<State>,
}

impl Filter {
    /// Reads what somebody typed. A state that nobody knows is none.
    pub fn new(query: &str, state: &str) -> Self {
        let query = query.trim().to_lowercase();
        Self {
            query: query.chars().take(QUERY_CHARACTERS_MAX).collect(),
            state: State::parse(state.trim()),
        }
    }

    /// What is looked for, in lower case.
    pub fn query(&self) -> &str {
        &self.query
    }

    /// The state that is looked for.
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
            let ours = existing.difference(&report.ignored);
            let mut outcomes = ours.filter_map(|name| report.outcomes.get(name));
            outcomes.any(|it| is_failing(it.state))
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

/// The first thing that is wrong, in the order in which a tenant comes to life; a remark where
/// nothing else is.
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

/// The same of a WorkerCluster: `Ready` has the cause of the first condition that is false.
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

/// To a tenth: more is noise.
fn milliseconds(latency: Duration) -> f64 {
    (latency.as_secs_f64() * 10_000.0).round() / 10.0
}

#[cfg(test)]
mod tests;
