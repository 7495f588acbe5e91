//! The labels, and the closed sets that their values are taken from.

use std::fmt;
use std::hash::Hash;

use prometheus_client::encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder};

/// The values that a label may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// These.
    Closed(&'static [&'static str]),
    /// As many as the source has words for, whatever the fleet does.
    Words(&'static str),
    /// As many as the settings name, which may name only a few.
    Configured(&'static str),
    /// One per cluster of the fleet.
    PerCluster(&'static str),
}

/// A label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub values: Values,
}

/// A label whose values are a closed set, so that its series can start at zero.
pub(super) trait Closed: EncodeLabelSet + Copy + Hash + Eq + 'static {
    /// Every value.
    const EVERY: &[Self];
}

/// Writes an enum whose values are those of the label with this name.
macro_rules! label {
    ($(#[$about:meta])* $name:ident($label:literal) {
        $($(#[$meaning:meta])* $value:ident = $text:literal,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$meaning])* $value,)+
        }

        impl $name {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$value),+];

            /// The text of every value.
            pub const VALUES: &[&str] = &[$($text),+];

            /// The label.
            pub const LABEL: Label = Label {
                name: $label,
                values: Values::Closed(Self::VALUES),
            };

            /// The text of the value.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }
        }

        impl Closed for $name {
            const EVERY: &[Self] = Self::ALL;
        }

        impl EncodeLabelSet for $name {
            fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), fmt::Error> {
                ($label, self.as_str()).encode(encoder.encode_label())
            }
        }
    };
}

label! {
    /// What a process is for.
    Component("component") {
        /// It serves worker clusters.
        Manager = "manager",
        /// It answers API servers.
        Webhook = "webhook",
    }
}

label! {
    /// How a reconcile ended.
    Outcome("outcome") {
        /// Everything that the machine deployment needs is there and current.
        Served = "served",
        /// Something is still missing, and it is waited for.
        Waiting = "waiting",
        /// It cannot be served until something changes.
        Refused = "refused",
        /// Something went wrong, and it is tried again.
        Failing = "failing",
    }
}

label! {
    /// Why a machine deployment was reconciled.
    Trigger("trigger") {
        /// It changed itself.
        Change = "change",
        /// A profile that it is made from changed.
        Profile = "profile",
        /// A config or Secret that was made for it changed or went.
        Made = "made",
        /// One whose names overlap with its own changed or went.
        Overlap = "overlap",
        /// All were listed.
        Listed = "listed",
        /// Something that concerns all of the tenant changed, such as a setting.
        Everywhere = "everywhere",
        /// Its last reconcile failed or had to wait, and this is the retry.
        Retry = "retry",
        /// The time that its last reconcile had set, such as a token's renewal.
        Time = "time",
        /// None that is known.
        Other = "other",
    }
}

label! {
    /// The result of a render.
    RenderResult("result") {
        /// Documents that fit.
        Rendered = "rendered",
        /// The profile or the machine deployment cannot be rendered.
        Refused = "refused",
        /// A document or the config is larger than its limit.
        TooLarge = "too_large",
        /// A defect of this program.
        Panicked = "panicked",
        /// The worker was killed at one of its limits.
        Stopped = "stopped",
    }
}

label! {
    /// Which limit a template ran into.
    TemplateLimit("limit") {
        /// Of instructions.
        Instructions = "instructions",
        /// Of what one file may render to.
        Output = "output",
        /// Of what is made on the way.
        Work = "work",
    }
}

label! {
    /// The result of a join check.
    JoinCheck("outcome") {
        /// A machine can join.
        Can = "can",
        /// A machine cannot.
        Cannot = "cannot",
        /// The address that machines use is not reached from here.
        Unknown = "unknown",
    }
}

label! {
    /// The result of an attempt.
    Attempted("result") {
        /// It succeeded.
        Success = "success",
        /// It did not.
        Failure = "failure",
    }
}

impl Attempted {
    /// Returns the label of a result.
    pub const fn of<T, E>(result: &Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::Success,
            Err(_) => Self::Failure,
        }
    }
}

label! {
    /// How long a credential in a kubeconfig still holds.
    CredentialState("state") {
        /// It expires within the days that conditions call soon.
        Soon = "soon",
        /// It expires within the days that conditions call very soon.
        VerySoon = "very_soon",
        /// It has expired.
        Expired = "expired",
    }
}

label! {
    /// The progress of a tenant whose machines are replaced.
    MachineState("state") {
        /// All machines are current.
        Current = "current",
        /// Some are being replaced, or wait.
        Outdated = "outdated",
        /// A change takes more than is permitted.
        AboveLimit = "above_limit",
        /// One that replaces its machines makes no progress.
        HeldUp = "held_up",
        /// A template could not be written.
        Failed = "failed",
    }
}

label! {
    /// What the machines of a tenant report of themselves.
    ReportState("state") {
        /// They are as in their documents.
        Applied = "applied",
        /// Files of one differ, or services fail.
        Differ = "differ",
        /// New machines get another document.
        Behind = "behind",
    }
}

label! {
    /// Why a write was not sent.
    Fence("reason") {
        /// The replica's Lease might have ended before the answer.
        Lease = "lease",
        /// The replica had let go of the tenant.
        LetGo = "let_go",
    }
}

label! {
    /// The state of a tenant's worker cluster on this replica.
    TenantState("state") {
        /// It is being connected to, claimed and read for the first time.
        Engaging = "engaging",
        /// It is served.
        Engaged = "engaged",
        /// It does not answer, and it is tried again.
        Unreachable = "unreachable",
        /// It does not accept the credential, and it is tried again.
        CredentialRefused = "credential_refused",
        /// Its registration, kubeconfig or claim is refused until something changes.
        Refused = "refused",
        /// It is left alone because its settings say so.
        Paused = "paused",
        /// Another replica serves it.
        Elsewhere = "elsewhere",
    }
}

label! {
    /// A tenant's progress in the rollout of default profiles.
    RolloutState("state") {
        /// It has them, and every machine deployment was reconciled.
        Settled = "settled",
        /// It has them, and machine deployments are still to be reconciled.
        Settling = "settling",
        /// It has older ones.
        Waiting = "waiting",
    }
}

label! {
    /// The cluster that a request goes to.
    ClusterKind("cluster_kind") {
        /// The cluster that we run in.
        Management = "management",
        /// A tenant's.
        Worker = "worker",
    }
}

label! {
    /// The verb of a request, in the words of Kubernetes' own authorization.
    Verb("verb") {
        /// Reads one object.
        Get = "get",
        /// Reads all objects.
        List = "list",
        /// Follows the changes.
        Watch = "watch",
        /// Makes an object.
        Create = "create",
        /// Replaces an object.
        Update = "update",
        /// Changes part of an object.
        Patch = "patch",
        /// Removes one object.
        Delete = "delete",
        /// Removes all objects.
        DeleteCollection = "deletecollection",
        /// Anything else.
        Other = "other",
    }
}

label! {
    /// How a request was answered. 429 stands alone: it says something about our budget, and not
    /// about the request.
    CodeClass("code") {
        /// It was done.
        Success = "2xx",
        /// The server sends us elsewhere.
        Redirection = "3xx",
        /// The server refuses the request.
        ClientError = "4xx",
        /// The server throttles the request.
        TooManyRequests = "429",
        /// The server failed, or answers what no server should.
        ServerError = "5xx",
        /// No answer came.
        Unanswered = "none",
    }
}

impl CodeClass {
    /// The class of a status code.
    pub const fn of(status: u16) -> Self {
        match status {
            200..=299 => Self::Success,
            300..=399 => Self::Redirection,
            429 => Self::TooManyRequests,
            400..=499 => Self::ClientError,
            _ => Self::ServerError,
        }
    }
}

label! {
    /// One of the two documents that make a node.
    Document("document") {
        /// Fetches the other one.
        Bootstrap = "bootstrap",
        /// Configures the node.
        Provisioning = "provisioning",
    }
}

label! {
    /// The purpose of a Secret that we write.
    SecretKind("kind") {
        /// The bootstrap document.
        Bootstrap = "bootstrap",
        /// The provisioning document.
        Provisioning = "provisioning",
        /// The kubeconfig that a kubelet joins with.
        BootstrapKubeconfig = "bootstrap-kubeconfig",
        /// The token in that kubeconfig.
        BootstrapToken = "bootstrap-token",
        /// The script that an edge node is set up with by hand.
        EdgeScript = "edge-script",
        /// The token that one machine deployment's machines fetch their documents with.
        GetterToken = "getter-token",
    }
}

/// The state of the rollout of default profiles; the value of a gauge, not a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paused {
    /// It is.
    Yes,
    /// It is not.
    No,
}

/// The state of the connection to a worker cluster; the value of a gauge, not a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// It does.
    Up,
    /// It does not.
    Down,
}

label! {
    /// Which of the admission webhooks was called.
    Webhook("webhook") {
        /// Gives machine deployments their default profile.
        MachineDeployment = "machine_deployment",
        /// Validates profiles.
        Profile = "profile",
        /// Keeps configs as they are.
        Config = "config",
        /// Tells what a changed setting takes.
        WorkerCluster = "worker_cluster",
    }
}

label! {
    /// The answer of a webhook.
    Verdict("verdict") {
        /// The write happens.
        Allowed = "allowed",
        /// The write happens with a change.
        Patched = "patched",
        /// The write does not happen.
        Refused = "refused",
        /// There was no answer: the configuration's `failurePolicy` decides.
        Failed = "failed",
    }
}
