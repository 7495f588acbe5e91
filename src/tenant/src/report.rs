//! The report about a tenant: the source of its WorkerCluster's status.
//!
//! A part that has not been observed yet is absent, and the status keeps its previous value.
//! Therefore, a restart with everything in order changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use osm_api::{
    condition::ConditionType,
    reason::Reason,
    worker_cluster::{BehindEntry, FleetId, MachineDeploymentState},
};

/// Returns the text, cut to this many characters. If it is longer, it ends with `…`.
pub fn excerpt(text: &str, characters_max: usize) -> String {
    if text.char_indices().nth(characters_max).is_none() {
        return text.to_owned();
    }
    let kept = text.chars().take(characters_max.saturating_sub(1));
    kept.chain(['…']).collect()
}

/// Returns true if two texts about a failed call differ only in numbers, such as times, ports and
/// request IDs. The second text is then not reported.
pub fn is_same_failure(before: &str, after: &str) -> bool {
    let words = |text: &str| {
        let words = text.split(|it: char| !it.is_alphanumeric());
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let has_digit = |word: &String| word.contains(|it: char| it.is_ascii_digit());
    let (before, after) = (words(before), words(after));
    let mut pairs = before.iter().zip(&after);
    before.len() == after.len()
        && pairs.all(|(before, after)| before == after || (has_digit(before) && has_digit(after)))
}

/// The result for a worker cluster whose registration was removed: the reason of the condition
/// `Released`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// The finalizers and the claim were removed. The objects that we created were kept.
    Released,
    /// The finalizers, the claim and the objects that we created were removed.
    Purged,
    /// The cluster was never engaged, so there is nothing to remove.
    NeverEngaged,
    /// `spec.onRemoval` is `Keep`, so the finalizers and the claim were kept.
    Kept,
    /// A call failed. It is retried for a limited time.
    Failed,
    /// The cluster was engaged by another process, and its kubeconfig is gone with the
    /// registration.
    KubeconfigGone,
}

impl Removal {
    const ALL: [Self; 6] = [
        Self::Released,
        Self::Purged,
        Self::NeverEngaged,
        Self::Kept,
        Self::Failed,
        Self::KubeconfigGone,
    ];

    /// Returns the reason in the status.
    pub const fn reason(self) -> Reason {
        match self {
            Self::Released => Reason::Released,
            Self::Purged => Reason::Purged,
            Self::NeverEngaged => Reason::NeverEngaged,
            Self::Kept => Reason::Kept,
            Self::Failed => Reason::ReleaseFailed,
            Self::KubeconfigGone => Reason::KubeconfigGone,
        }
    }

    /// Returns the removal with this reason; `None` if it is unknown, for example from another
    /// release.
    pub fn of(reason: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.reason() == reason)
    }

    /// Returns true if neither our finalizers nor our claim remain in the worker cluster.
    pub const fn is_released(self) -> bool {
        matches!(self, Self::Released | Self::Purged | Self::NeverEngaged)
    }

    /// Returns true if nothing more will be done.
    pub const fn is_final(self) -> bool {
        !matches!(self, Self::Failed)
    }
}

/// The state of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionState {
    /// True if the condition holds.
    pub holds: bool,
    /// The machine-readable CamelCase reason.
    pub reason: Reason,
    /// A message for people, without secrets.
    pub message: String,
    /// True if it is about a call that is retried. The message may then contain other numbers each
    /// time.
    pub is_retried: bool,
    /// True if it is unknown whether the condition holds. It is then not reported as false.
    pub is_unknown: bool,
}

impl ConditionState {
    /// Returns true if `next` contains no news for people.
    pub fn says(&self, next: &Self) -> bool {
        let is_same_try = self.is_retried
            && next.is_retried
            && (self.holds, self.reason) == (next.holds, next.reason)
            && is_same_failure(&self.message, &next.message);
        self == next || is_same_try
    }

    /// Creates the state of a condition after a failed call that is retried.
    pub fn retried(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            is_retried: true,
            ..Self::wrong(reason, message)
        }
    }

    /// Creates the state of a condition that is unknown. The check is repeated.
    pub fn unknown(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            holds: true,
            is_unknown: true,
            ..Self::retried(reason, message)
        }
    }

    /// Creates the state of a condition that holds.
    pub fn well(reason: Reason) -> Self {
        Self {
            holds: true,
            reason,
            message: String::new(),
            is_retried: false,
            is_unknown: false,
        }
    }

    /// Creates the state of a condition that does not hold.
    pub fn wrong(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            holds: false,
            reason,
            message: message.into(),
            is_retried: false,
            is_unknown: false,
        }
    }
}

/// How long a machine deployment may wait for something before that counts as a failure.
pub const WAITS_AT_MOST: SignedDuration = SignedDuration::from_mins(5);

/// The outcome of one machine deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its state.
    pub state: MachineDeploymentState,
    /// The machine-readable CamelCase reason.
    pub reason: Reason,
    /// A message for people, without secrets.
    pub message: Option<String>,
    /// The time of this outcome.
    pub at: Timestamp,
    /// The time since which it waits, if it is not served for that reason.
    pub waits_since: Option<Timestamp>,
    /// The trace of the reconcile.
    pub trace_id: Option<String>,
    /// The profile that was used; absent if it was not found.
    pub profile: Option<Box<ProfileTried>>,
    /// What the changes of its document take on machines that have an older one.
    pub behind: Option<Box<BehindEntry>>,
}

impl Outcome {
    /// Returns this outcome after the one before it: who waits for too long fails.
    #[must_use]
    pub fn following(mut self, before: Option<&Self>) -> Self {
        if let Some(waits_since) = self.waits_since {
            let before = before.and_then(|it| it.waits_since);
            self.waits_since = before.or(Some(waits_since));
            if self.at.duration_since(before.unwrap_or(waits_since)) >= WAITS_AT_MOST {
                self.state = MachineDeploymentState::Failing;
            }
        }
        self
    }

    /// Returns true if both are the same failure of a call that is tried again.
    pub fn is_same_failure(&self, next: &Self) -> bool {
        let text = |it: &Self| it.message.clone().unwrap_or_default();
        self.state == MachineDeploymentState::Failing
            && (self.state, self.reason) == (next.state, next.reason)
            && is_same_failure(&text(self), &text(next))
    }
}

/// The profile that a machine deployment was reconciled with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileTried {
    /// The profile's name.
    pub name: String,
    /// The profile's version.
    pub version: String,
    /// The default profile that it is or extends, and the version of that.
    pub default: Option<(String, String)>,
    /// The newer version of that default profile that is not installed yet.
    pub next: Option<String>,
}

/// The report about a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The states of conditions.
    pub findings: BTreeMap<ConditionType, ConditionState>,
    /// The reason why the last attempt to engage the cluster failed, if the cluster answered.
    pub not_engaged: Option<Reason>,
    /// The uid of the worker cluster's kube-system namespace.
    pub cluster_uid: Option<String>,
    /// This fleet, while it serves the tenant. Without it, no status is written.
    pub fleet: Option<FleetId>,
    /// A fingerprint of the kubeconfig that the cluster was last engaged with.
    pub kubeconfig: Option<String>,
    /// The API server that the kubeconfig names.
    pub server: Option<String>,
    /// The API server as nodes reach it.
    pub api_server: Option<String>,
    /// The version of the API server.
    pub version: Option<String>,
    /// Why there is no connection, for operators alone: it may show which ports are open, or what a
    /// name resolves to. No status and no Event has it.
    pub no_connection: Option<String>,
    /// The machine deployments that exist, as `namespace/name`, once they have been listed.
    pub existing: Option<BTreeSet<String>>,
    /// The existing machine deployments that we do not serve.
    pub ignored: BTreeSet<String>,
    /// The outcomes of machine deployments, as `namespace/name`.
    pub outcomes: BTreeMap<String, Outcome>,
}

impl Report {
    /// Drops the states of these conditions, and which machine deployments exist.
    pub fn forget(&mut self, kinds: &[ConditionType]) {
        self.findings.retain(|kind, _| !kinds.contains(kind));
        self.existing = None;
    }
}

/// Returns a number with the words that agree with it, such as `1 object was` or `2 objects were`.
pub fn counted(number: usize, one: &str, many: &str) -> String {
    let words = if number == 1 { one } else { many };
    format!("{number} {words}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_whose_numbers_alone_differ_is_the_same() {
        let expired =
            "x509: certificate has expired: current time 2026-11-25T03:34:43Z is after it";
        let later = "x509: certificate has expired: current time 2026-11-25T03:34:58Z is after it";
        let read = "read tcp 10.0.0.1:54321->10.4.5.6:443: connection reset by peer";
        let again = "read tcp 10.0.0.1:54999->10.4.5.6:443: connection reset by peer";
        for (before, after, expected) in [
            (expired, later, true),
            (read, again, true),
            (
                read,
                "read tcp 10.0.0.1:1->10.4.5.6:443: broken pipe",
                false,
            ),
            ("quota exceeded", "quota exceeded: 1", false),
        ] {
            assert_eq!(is_same_failure(before, after), expected, "{before} {after}");
        }
        let state = |text| ConditionState::retried(Reason::CallFailed, text);
        assert!(state(read).says(&state(again)));
        let refused = |text| ConditionState::wrong(Reason::KubeconfigRefused, text);
        assert!(
            !refused("line 1").says(&refused("line 2")),
            "the line is news"
        );
    }
}
