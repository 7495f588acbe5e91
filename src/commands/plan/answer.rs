//! What a plan says about a machine deployment.

use serde::Serialize;

use crate::api::{change::Class, reason::Reason, worker_cluster::BehindEntry};
use crate::plan::{found::NotServed, machine_rollout::ReplacementState};
use crate::rules::effect::Effect;

const NO_PROFILE: &str = "it names no profile, and spec.profileAnnotation of its WorkerCluster is \
                          RequireAnnotation";

/// The planned result for one machine deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The tenant's namespace.
    pub tenant: String,
    /// The machine deployment, as `namespace/name`. It is absent if the tenant cannot be read, and
    /// for writes that all its machine deployments share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_deployment: Option<String>,
    /// The kind of the result.
    pub verdict: Verdict,
    /// The reason why it is not served, as in its entry of the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Why the result is unknown or refused, or that the WorkerCluster is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The inputs that differ from those of the existing documents.
    pub inputs: Vec<&'static str>,
    /// The planned result for outdated machines, if they are replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<MachinesFate>,
    /// What all changes of the document take together on machines that have an older one, once it
    /// is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<BehindEntry>,
    /// What a change of the documents would take on machines that run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
    /// The writes, in order.
    pub writes: Vec<String>,
    /// The differences of the config, as unified diffs. It contains markers in place of secrets.
    pub diff: String,
}

/// What it would take on running machines to bring a change of their documents into effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    /// The class of the whole change.
    pub class: Class,
    /// The number of machines of the machine deployment. Some may have older documents than those
    /// that exist.
    pub machines_at_most: i64,
    /// The effect of each difference.
    pub effects: Vec<Effect>,
}

/// The kind of a planned result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// Nothing would be written.
    Unchanged,
    /// Objects would be created or annotated, but no document would change.
    Written,
    /// Its documents would be recreated with other bytes.
    Rotated,
    /// It would wait for something that is still missing.
    Waiting,
    /// It would be refused.
    Refused,
    /// It is not served, as the tenant's settings want.
    Ignored,
    /// The result cannot be computed.
    Unknown,
}

/// The planned result for outdated machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum MachinesFate {
    /// They would be replaced when it is their machine deployment's turn.
    Replaced,
    /// They are being replaced already.
    BeingReplaced,
    /// They would be replaced if their machine deployment were at rest and not paused.
    HeldBack,
    /// They would stay: the change takes more than `maxClass`, and is not permitted.
    AboveLimit,
    /// They would stay: the change takes less than `minClass`.
    BelowLimit,
}

impl From<ReplacementState> for MachinesFate {
    fn from(state: ReplacementState) -> Self {
        match state {
            ReplacementState::Outdated => Self::Replaced,
            ReplacementState::Replacing => Self::BeingReplaced,
            ReplacementState::AboveLimit => Self::AboveLimit,
            ReplacementState::BelowLimit => Self::BelowLimit,
            _ => Self::HeldBack,
        }
    }
}

impl Answer {
    pub(in crate::commands) fn new(
        tenant: &str,
        machine_deployment: Option<String>,
        verdict: Verdict,
    ) -> Self {
        Self {
            tenant: tenant.to_owned(),
            machine_deployment,
            verdict,
            reason: None,
            message: None,
            inputs: Vec::new(),
            machines: None,
            behind: None,
            running: None,
            writes: Vec::new(),
            diff: String::new(),
        }
    }

    /// Returns the result for one that we do not serve.
    pub(super) fn ignored(self) -> Self {
        Self {
            verdict: Verdict::Ignored,
            message: Some(NO_PROFILE.to_owned()),
            ..self
        }
    }

    pub(super) fn not_served(self, not_served: &NotServed) -> Self {
        Self {
            verdict: match not_served {
                NotServed::Invalid(_) => Verdict::Refused,
                NotServed::Waiting { .. } => Verdict::Waiting,
            },
            reason: Some(not_served.reason()),
            message: Some(not_served.to_string()),
            ..self
        }
    }
}
