//! The reasons why a cluster could not be engaged.

use crate::api::{condition::ConditionType, reason::Reason};
use crate::client::{health::Health, tenant_status::TenantStatus};
use crate::fleet::{cluster_info::ClusterInfoError, prerequisites::PrerequisiteError};
use crate::telemetry::chain::chain;
use crate::tenant::report::ConditionState;

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
pub fn not_connected(health: &Health, error: &kube::Error) -> EngageError {
    let (reason, message) = match (health.refusal(error), error) {
        (Some(refusal), _) => (Reason::CredentialRefused, refusal),
        (None, kube::Error::Api(_)) => (Reason::Degraded, chain(error).to_string()),
        (None, _) => (Reason::Unreachable, chain(error).to_string()),
    };
    EngageError::failed(ConditionType::Connected, reason, message)
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
