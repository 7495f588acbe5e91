//! The state of a tenant, and since when it is in it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::{Serialize, Serializer};

use super::Rfc3339Time;
use crate::report::{ConditionState, Report};
use osm_api::{condition::ConditionType, reason::Reason, worker_cluster::WorkerClusterStatus};

/// The state of a tenant, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Its worker cluster does not answer.
    Unreachable,
    /// Its worker cluster does not accept the credential.
    CredentialRefused,
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
    pub const ALL: [Self; 8] = [
        Self::Unreachable,
        Self::CredentialRefused,
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
            Self::CredentialRefused => "CredentialRefused",
            Self::Degraded => "Degraded",
            Self::Refused => "Refused",
            Self::NotReady => "NotReady",
            Self::NotEngaged => "NotEngaged",
            Self::Paused => "Paused",
            Self::Healthy => "Healthy",
        }
    }

    /// Returns the state of this name, in any case.
    pub fn parse(text: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|state| state.as_str().eq_ignore_ascii_case(text))
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The inputs of a tenant's state.
pub(super) struct Findings {
    /// The conditions that are false. The reason is absent if this version does not know it.
    wrong: BTreeMap<ConditionType, Option<Reason>>,
    /// True if a machine deployment is refused or fails; absent until they have been listed.
    is_failing: Option<bool>,
}

impl Findings {
    pub(super) fn of_report(report: &Report) -> Self {
        let wrong = wrong(report).map(|(kind, it)| (*kind, Some(it.reason)));
        let has_failing = |existing: &BTreeSet<String>| {
            let is_ours = |name| existing.contains(name) && !report.ignored.contains(name);
            let mut outcomes = report.outcomes.iter();
            outcomes.any(|(name, it)| it.state.is_failing() && is_ours(name))
        };
        Self {
            wrong: wrong.collect(),
            is_failing: report.existing.as_ref().map(has_failing),
        }
    }

    pub(super) fn of_conditions(conditions: &[Condition]) -> Self {
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

    /// Returns true if the machine deployments have been listed.
    pub(super) const fn are_listed(&self) -> bool {
        self.is_failing.is_some()
    }

    /// Returns the state, and the condition whose last transition dates it.
    pub(super) fn state(&self) -> (State, ConditionType) {
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
                Some(Reason::CredentialRefused) => State::CredentialRefused,
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

pub(super) fn wrong(report: &Report) -> impl Iterator<Item = (&ConditionType, &ConditionState)> {
    report.findings.iter().filter(|(_, finding)| !finding.holds)
}

/// Returns when the state began; absent if the status has not been written since.
pub(super) fn since(
    status: &WorkerClusterStatus,
    found: (State, ConditionType),
) -> Option<Rfc3339Time> {
    let (state, dated_by) = found;
    let condition = dated_by.find_in(&status.conditions)?;
    let is_well = condition.status == "True";
    (is_well == (state == State::Healthy)).then_some(Rfc3339Time(condition.last_transition_time.0))
}
