//! The first problem of a tenant: the same words, whether this replica serves it or another.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::state::wrong;
use crate::report::{Report, excerpt};
use osm_api::{condition::ConditionType, reason::Reason, worker_cluster::WorkerClusterStatus};

/// The highest number of characters of a cause, which keeps a page of a thousand tenants small.
pub(super) const WHY_CHARACTERS_MAX: usize = 300;

/// The first problem of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    /// The machine-readable CamelCase reason.
    pub(super) reason: String,
    /// The reason and the message.
    pub(super) why: String,
}

impl Cause {
    fn new(reason: &str, message: &str) -> Self {
        let separator = if message.is_empty() { "" } else { ": " };
        let whole = format!("{reason}{separator}{message}");
        Self {
            reason: reason.to_owned(),
            why: excerpt(&whole, WHY_CHARACTERS_MAX),
        }
    }
}

/// What may be wrong with a tenant.
struct Problems<'a> {
    /// The reasons and messages of the conditions that are false, without `Ready`.
    conditions: BTreeMap<ConditionType, (&'a str, &'a str)>,
    /// The name, the reason and the message of the first machine deployment that is refused or
    /// fails.
    failing: Option<(&'a str, &'a str, &'a str)>,
    /// The reason and the message of `Ready`, if it is not true.
    not_ready: Option<(&'a str, &'a str)>,
}

impl Problems<'_> {
    /// Returns the first problem, in the order in which a tenant becomes ready. A machine
    /// deployment says more than the condition that counts them. Returns a remark only if there is
    /// no problem.
    fn cause(&self) -> Option<Cause> {
        let of_conditions = |is_wanted: fn(ConditionType) -> bool| {
            let mut found = self.conditions.iter().filter(|(kind, _)| is_wanted(**kind));
            found
                .next()
                .map(|(_, (reason, message))| Cause::new(reason, message))
        };
        let of_machine_deployment = || {
            let (name, reason, message) = self.failing?;
            Some(Cause::new(reason, &format!("{name}: {message}")))
        };
        let of_ready = || {
            let (reason, message) = self.not_ready?;
            Some(Cause::new(reason, message))
        };
        of_conditions(|kind| !kind.is_remark() && kind != ConditionType::MachineDeploymentsServed)
            .or_else(of_machine_deployment)
            .or_else(of_ready)
            .or_else(|| of_conditions(|_| true))
    }
}

/// Returns the first problem of a tenant that this replica serves. Machine deployments count only
/// if some of those that exist fail.
pub(super) fn of_report(report: &Report, failing: usize) -> Option<Cause> {
    let conditions = wrong(report).map(|(kind, finding)| {
        let exact = report.no_connection.as_deref();
        let exact = exact.filter(|_| finding.reason == Reason::Unreachable);
        let message = exact.unwrap_or(&finding.message);
        (*kind, (finding.reason.as_str(), message))
    });
    let mut outcomes = report.outcomes.iter();
    let failing = (failing > 0)
        .then(|| outcomes.find(|(_, it)| it.state.is_failing()))
        .flatten()
        .map(|(name, it)| {
            let message = it.message.as_deref().unwrap_or_default();
            (name.as_str(), it.reason.as_str(), message)
        });
    let problems = Problems {
        conditions: conditions.collect(),
        failing,
        not_ready: None,
    };
    problems.cause()
}

/// Returns the first problem of a tenant according to its WorkerCluster.
pub(super) fn of_status(status: &WorkerClusterStatus) -> Option<Cause> {
    fn said(condition: &Condition) -> (&str, &str) {
        (&condition.reason, &condition.message)
    }
    let kinds = ConditionType::OF_REGISTERED.into_iter();
    let kinds = kinds.chain([ConditionType::Registered, ConditionType::Adopted]);
    let conditions = kinds.filter_map(|kind| {
        let condition = kind.find_in(&status.conditions)?;
        (condition.status == "False").then(|| (kind, said(condition)))
    });
    let mut entries = status.machine_deployments.iter();
    let failing = entries.find(|it| it.state.is_failing()).map(|it| {
        let message = it.message.as_deref().unwrap_or_default();
        (it.name.as_str(), it.reason.as_str(), message)
    });
    let ready = ConditionType::Ready.find_in(&status.conditions);
    let problems = Problems {
        conditions: conditions.collect(),
        failing,
        not_ready: ready.filter(|it| it.status != "True").map(said),
    };
    problems.cause()
}
