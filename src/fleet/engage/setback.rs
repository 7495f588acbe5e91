//! Why an attempt failed, and the Event that tells of it.

use super::Params;
use crate::api::worker_cluster::WorkerCluster;
use crate::fleet::{
    events::{self, Warning},
    facts::FactsError,
};
use crate::telemetry::logs::chain;
use crate::tenant::report::ConditionType;

/// What all Events about a registration call their action.
pub(super) const REGISTER: &str = "Register";
/// Reasons of setbacks that a person must mend.
const REFUSALS: [&str; 7] = [
    "KubeconfigRefused",
    "NamespaceTaken",
    "ClusterChanged",
    "ClaimedByOther",
    "UpstreamRunning",
    "LeftoverWebhooks",
    "AdoptionForbidden",
];

/// Why an attempt failed.
#[derive(Debug)]
pub struct Setback {
    /// What was not reached.
    pub condition: ConditionType,
    /// A word for programs.
    pub reason: &'static str,
    /// A sentence for people, without secrets.
    pub message: String,
    /// Whether time may heal it; otherwise a change is waited for.
    pub retry: bool,
}

impl Setback {
    /// A person must mend it.
    pub fn refused(
        condition: ConditionType,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            retry: false,
            ..Self::failed(condition, reason, message)
        }
    }

    /// Time may heal it.
    pub fn failed(
        condition: ConditionType,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Self {
        Self {
            condition,
            reason,
            message: message.into(),
            retry: true,
        }
    }
}

/// The cluster was not reached, or did not let us in.
pub fn not_connected(error: &kube::Error) -> Setback {
    let reason = match error {
        kube::Error::Api(_) => "Degraded",
        _ => "Unreachable",
    };
    Setback::failed(ConditionType::Connected, reason, chain(error).to_string())
}

/// What nodes need could not be read.
pub fn not_prepared(error: &FactsError) -> Setback {
    let reason = match error {
        FactsError::TokenPending => "TokenPending",
        FactsError::NoApiServer => "NoApiServer",
        FactsError::Call { .. } => "FactsFailed",
    };
    Setback::failed(ConditionType::Prepared, reason, chain(error).to_string())
}

/// A refusal is told where people look, once. The Event itself may fail: the condition says the
/// same.
pub async fn warn_by_event(params: &Params<'_>, own: &WorkerCluster, setback: &Setback) {
    if !REFUSALS.contains(&setback.reason) {
        return;
    }
    let on_board = params.member.board.read(|report| {
        let finding = report.findings.get(&setback.condition);
        finding.is_some_and(|finding| finding.message == setback.message)
    });
    if on_board || is_in_status(own, setback.reason, &setback.message) {
        return;
    }
    let warning = Warning {
        action: REGISTER,
        reason: setback.reason,
        note: &setback.message,
    };
    events::warn(&params.management.client(), own, warning).await;
}

/// Whether the status says so already: a restart tells nothing twice.
pub(super) fn is_in_status(own: &WorkerCluster, reason: &str, message: &str) -> bool {
    let mut conditions = own.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| condition.reason == reason && condition.message == message)
}
