//! Engage errors, and the Events that report them.

use super::Params;
use crate::api::{condition::ConditionType, reason::Reason, worker_cluster::WorkerCluster};
use crate::client::tenant_status::TenantStatus;
use crate::fleet::{
    cluster_info::ClusterInfoError,
    events::{self, Warning},
    prerequisites::PrerequisiteError,
};
use crate::telemetry::chain::chain;
use crate::tenant::{report::ConditionState, report::is_same_failure};

/// The action of all Events about a registration.
pub(super) const REGISTER: &str = "Register";
/// The reason why an attempt failed.
#[derive(Debug)]
pub struct EngageError {
    /// The condition that is false because of it.
    pub condition: ConditionType,
    /// The machine-readable CamelCase reason.
    pub reason: Reason,
    /// A sentence for people, without secrets.
    pub message: String,
    /// True if a later attempt may succeed without a change.
    pub retry: bool,
}

impl EngageError {
    /// Creates an error that a person must resolve.
    pub fn refused(condition: ConditionType, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            retry: false,
            ..Self::failed(condition, reason, message)
        }
    }

    /// Records the error in the tenant's status. Returns true if the status changed.
    pub fn report_to(&self, status: &TenantStatus) -> bool {
        let state = self.state();
        match self.condition {
            ConditionType::Registered => status.refuse(state),
            ConditionType::Connected => status.set_condition(ConditionType::Connected, state),
            other => status.cannot_engage(other, state),
        }
    }

    fn state(&self) -> ConditionState {
        ConditionState {
            is_retried: self.retry,
            ..ConditionState::wrong(self.reason, self.message.as_str())
        }
    }

    /// Creates an error that may go away by itself.
    pub fn failed(condition: ConditionType, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            condition,
            reason,
            message: message.into(),
            retry: true,
        }
    }
}

/// Creates the error for a cluster that was not reached, or that refused us.
pub fn not_connected(error: &kube::Error) -> EngageError {
    let reason = match error {
        kube::Error::Api(_) => Reason::Degraded,
        _ => Reason::Unreachable,
    };
    EngageError::failed(ConditionType::Connected, reason, chain(error).to_string())
}

/// Creates the error for prerequisites of nodes that could not be created or read.
pub fn prerequisite_failed(error: &PrerequisiteError) -> EngageError {
    EngageError::failed(ConditionType::Prepared, error.reason(), error.message())
}

/// Creates the error for cluster info that could not be read.
pub fn not_prepared(error: &ClusterInfoError) -> EngageError {
    let message = chain(error).to_string();
    EngageError::failed(ConditionType::Prepared, error.reason(), message)
}

/// Sends an Event about an error that a person must mend, once. A lost connection has an Event of
/// its own, after a while. The Event itself may fail: the condition says the same.
pub async fn warn_by_event(params: &Params<'_>, own: &WorkerCluster, engage_error: &EngageError) {
    let is_lost = engage_error.condition == ConditionType::Connected;
    if is_lost || !engage_error.reason.needs_a_person() {
        return;
    }
    let is_known = params.registered.status.read(|report| {
        let finding = report.findings.get(&engage_error.condition);
        finding.is_some_and(|finding| finding.says(&engage_error.state()))
    });
    if is_known || is_in_status(own, engage_error.reason, &engage_error.message) {
        return;
    }
    let warning = Warning {
        action: REGISTER,
        reason: engage_error.reason,
        note: &engage_error.message,
    };
    events::warn(&params.management.client(), own, warning).await;
}

/// Returns true if the status says so already: a restart sends no Event again.
pub(super) fn is_in_status(own: &WorkerCluster, reason: Reason, message: &str) -> bool {
    let mut conditions = own.status.iter().flat_map(|status| &status.conditions);
    conditions
        .any(|condition| condition.reason == reason && is_same_failure(&condition.message, message))
}
