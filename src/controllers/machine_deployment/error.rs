//! The errors of a reconcile, and their consequence: to wait for a change, or to try again.

use std::time::Duration;

use kube::core::response::StatusCause;

use crate::api::{reason::Reason, worker_cluster::MachineDeploymentState};
use crate::client::health::HeldBack;
use crate::plan::{found::NotServed, invalid::Invalid};
use crate::render_worker::WorkerError;

/// The reason why a machine deployment is not served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be served until something changes.
    #[error("{0}")]
    Invalid(#[from] Invalid),
    /// The render panicked, which is a bug. Nothing else is affected.
    #[error("the render panicked; please report this")]
    RenderPanicked,
    /// The worker was killed at one of its limits, or could not be started.
    #[error(transparent)]
    RenderStopped(#[from] WorkerError),
    /// Something is still missing.
    #[error("waiting: {reason}")]
    Waiting {
        /// The reason.
        reason: Reason,
        /// How long to wait before the next attempt.
        until: Duration,
    },
    /// The registry credentials cannot be used.
    #[error("{0}")]
    RegistryCredentials(String),
    /// There is no token to bootstrap with.
    #[error("ServiceAccount {0} of -bootstrap-token-service-account-name names no token Secret")]
    BootstrapAccount(String),
    /// Nothing was sent, because the worker cluster fails and calls to it are held back.
    #[error("not sent: the circuit to the worker cluster is open; next probe within a minute")]
    HeldBack,
    /// Another writer changed an object.
    #[error("conflict: another client changed the object ({what}); retrying")]
    Conflict {
        /// The object, or the attempted action.
        what: String,
    },
    /// A call failed.
    #[error("cannot {what}")]
    Call {
        /// The attempted action.
        what: String,
        /// The cause.
        source: kube::Error,
    },
}

impl From<NotServed> for Error {
    fn from(not_served: NotServed) -> Self {
        match not_served {
            NotServed::Invalid(invalid) => Self::Invalid(invalid),
            NotServed::Waiting {
                reason,
                retry_after: until,
            } => Self::Waiting { reason, until },
        }
    }
}

impl Error {
    /// Returns a function that converts the error of a failed call. A conflict and a call that was
    /// held back have their own variants.
    pub fn call(what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| match &source {
            kube::Error::Api(status) if status.is_conflict() => Self::Conflict { what },
            source if HeldBack::is_cause_of(source) => Self::HeldBack,
            _ => Self::Call { what, source },
        }
    }

    /// Returns true if a call failed because a right is missing.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Call { source: kube::Error::Api(status), .. } if status.is_forbidden())
    }

    /// Returns true if a Secret was rejected only because fields of the existing one cannot be
    /// changed: it is immutable, or has another type.
    pub fn is_of_fixed_fields(&self) -> bool {
        let Self::Call {
            source: kube::Error::Api(status),
            ..
        } = self
        else {
            return false;
        };
        let causes = status.details.as_ref().map(|details| &*details.causes);
        let causes = causes.unwrap_or_default();
        let is_fixed = |cause: &StatusCause| ["data", "immutable", "type"].contains(&&*cause.field);
        status.code == 422 && !causes.is_empty() && causes.iter().all(is_fixed)
    }

    /// Returns true if a write was rejected because another program writes the same object.
    pub fn is_of_another_writer(&self) -> bool {
        match self {
            Self::Conflict { .. } => true,
            Self::Call {
                source: kube::Error::Api(status),
                ..
            } => status.is_already_exists(),
            _ => false,
        }
    }

    /// Returns the machine-readable CamelCase reason for status and Events.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Invalid(invalid) => invalid.reason(),
            Self::RenderPanicked => Reason::RenderPanicked,
            Self::RenderStopped(_) => Reason::RenderStopped,
            Self::Waiting { reason, .. } => *reason,
            Self::RegistryCredentials(_) => Reason::RegistryCredentialsRefused,
            Self::BootstrapAccount(_) => Reason::BootstrapAccountWithoutToken,
            Self::HeldBack => Reason::AwaitingCluster,
            Self::Conflict { .. } => Reason::Conflict,
            Self::Call { .. } => Reason::CallFailed,
        }
    }

    /// Returns the category for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Invalid(invalid) => invalid.category(),
            Self::RenderPanicked => "render_panicked",
            Self::RenderStopped(_) => "render_stopped",
            Self::Waiting { .. } | Self::HeldBack => "waiting",
            Self::RegistryCredentials(_) => "registry_credentials_refused",
            Self::BootstrapAccount(_) => "bootstrap_account_without_token",
            Self::Conflict { .. } => "conflict",
            Self::Call { .. } => "call_failed",
        }
    }

    /// Returns the state that the status shows for the machine deployment.
    pub const fn state(&self) -> MachineDeploymentState {
        match self {
            Self::Invalid(_) => MachineDeploymentState::Refused,
            Self::Waiting { .. } | Self::HeldBack | Self::Conflict { .. } => {
                MachineDeploymentState::Waiting
            }
            Self::RenderPanicked
            | Self::RenderStopped(_)
            | Self::RegistryCredentials(_)
            | Self::BootstrapAccount(_)
            | Self::Call { .. } => MachineDeploymentState::Failing,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{Status, response::StatusDetails};

    use super::*;

    fn failed(source: kube::Error) -> Error {
        Error::call("write")(source)
    }

    fn answered(code: u16, reason: &str) -> Error {
        let status = Status::failure("no", reason).with_code(code);
        failed(kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn what_a_failed_call_means_depends_on_its_answer() {
        for (error, reason, category, is_forbidden, is_of_another_writer) in [
            (
                answered(409, "Conflict"),
                "Conflict",
                "conflict",
                false,
                true,
            ),
            (
                answered(409, "AlreadyExists"),
                "CallFailed",
                "call_failed",
                false,
                true,
            ),
            (
                answered(403, "Forbidden"),
                "CallFailed",
                "call_failed",
                true,
                false,
            ),
            (
                answered(500, "InternalError"),
                "CallFailed",
                "call_failed",
                false,
                false,
            ),
            (
                failed(kube::Error::Service(Box::new(HeldBack))),
                "AwaitingCluster",
                "waiting",
                false,
                false,
            ),
            (
                failed(kube::Error::Service("refused".into())),
                "CallFailed",
                "call_failed",
                false,
                false,
            ),
        ] {
            assert_eq!(error.reason(), reason, "{error:?}");
            assert_eq!(error.category(), category, "{error:?}");
            assert_eq!(error.is_forbidden(), is_forbidden, "{error:?}");
            assert_eq!(
                error.is_of_another_writer(),
                is_of_another_writer,
                "{error:?}"
            );
        }
    }

    #[test]
    fn only_fields_that_never_change_are_a_reason_to_create_a_secret_again() {
        let refused = |code: u16, fields: &[&str]| {
            let causes = fields.iter().map(|field| StatusCause {
                field: (*field).to_owned(),
                reason: String::new(),
                message: String::new(),
            });
            let details = StatusDetails {
                name: String::new(),
                group: String::new(),
                kind: "secrets".to_owned(),
                uid: String::new(),
                causes: causes.collect(),
                retry_after_seconds: 0,
            };
            let status = Status::failure("no", "Invalid").with_code(code);
            let status = status.with_details(details);
            failed(kube::Error::Api(Box::new(status)))
        };
        for (causes, is_fixed) in [
            (&["data"][..], true),
            (&["immutable", "data"], true),
            (&["type"], true),
            (&["data[a key]"], false),
            (&["data", "metadata.annotations"], false),
            (&[], false),
        ] {
            let error = refused(422, causes);
            assert_eq!(error.is_of_fixed_fields(), is_fixed, "{causes:?}");
            assert!(!refused(403, causes).is_of_fixed_fields(), "{causes:?}");
        }
    }
}
