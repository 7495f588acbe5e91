//! All metrics: of each its name, type, unit, labels with their values, and
//! meaning. What is registered and what the documentation says are both made from these.
//!
//! The encoder appends the unit, the `_total` of a counter and the full stop of the help.

use crate::telemetry::metrics::labels::{
    Attempted, ClusterKind, CodeClass, Component, CredentialState, Document, Fence, JoinCheck,
    MachineState, Outcome, RenderResult, ReportState, RolloutState, SecretKind, TemplateLimit,
    TenantState, Trigger, Verb, Verdict, Webhook,
};
pub use crate::telemetry::metrics::labels::{Label, Values};

/// How a metric moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// It grows, and starts over with the process.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It counts what was observed by its size: `_bucket`, `_sum` and `_count`.
    Histogram,
    /// It is 1, and its labels say something.
    Info,
}

impl Type {
    /// The word of the exposition format.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Things.
    Count,
    /// Seconds; Unix time where the name says `timestamp`.
    Seconds,
    /// Bytes.
    Bytes,
}

impl Measure {
    /// The unit's word, which names end with; none for things.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
        }
    }
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The name without what the encoder appends.
    pub stem: &'static str,
    /// How it moves.
    pub kind: Type,
    /// What is measured.
    pub unit: Measure,
    /// Its labels.
    pub labels: &'static [Label],
    /// The help text, in sentences without the last full stop.
    pub help: &'static str,
}

impl Declaration {
    /// The name in queries; of a histogram without `_bucket`, `_sum` and `_count`.
    pub fn name(&self) -> String {
        let unit = self.unit.as_str();
        let separator = if unit.is_empty() { "" } else { "_" };
        let end = match self.kind {
            Type::Counter => "_total",
            Type::Info => "_info",
            Type::Gauge | Type::Histogram => "",
        };
        format!("{}{separator}{unit}{end}", self.stem)
    }
}

const CATEGORY: Label = Label {
    name: "category",
    values: Values::Words("a word for each kind of error in the source"),
};
const VERSION: Label = Label {
    name: "version",
    values: Values::Words("the release"),
};
const COMMIT: Label = Label {
    name: "commit",
    values: Values::Words("the commit, or `unknown`"),
};
const CLASS: Label = Label {
    name: "class",
    values: Values::Configured("the tenant's class by `--tenant-policies`, or `default`"),
};
const WORKER_CLUSTER: Label = Label {
    name: "worker_cluster",
    values: Values::PerCluster("`namespace/name` of the registration"),
};
/// The name until release 0.2. Prometheus servers of several clusters set a label of this name.
const CLUSTER: Label = Label {
    name: "cluster",
    values: Values::PerCluster("the same, until the next release"),
};

/// Returns a metric's unit and its kind; names read as sentences below.
const fn declaration(
    (kind, unit): (Type, Measure),
    stem: &'static str,
    labels: &'static [Label],
    help: &'static str,
) -> Declaration {
    Declaration {
        stem,
        kind,
        unit,
        labels,
        help,
    }
}

const COUNTER: (Type, Measure) = (Type::Counter, Measure::Count);
const GAUGE: (Type, Measure) = (Type::Gauge, Measure::Count);
const MOMENT: (Type, Measure) = (Type::Gauge, Measure::Seconds);
const DURATION: (Type, Measure) = (Type::Histogram, Measure::Seconds);
const SIZE: (Type, Measure) = (Type::Histogram, Measure::Bytes);

macro_rules! declare {
    ($($name:ident = ($kind:expr, $stem:literal, [$($label:expr),*], $help:literal);)+) => {
        $(pub(super) const $name: Declaration =
            declaration($kind, $stem, &[$($label),*], $help);)+

        /// Every metric, in the order of the documentation.
        pub const ALL: &[Declaration] = &[$($name),+];
    };
}

declare! {
    BUILD = ((Type::Info, Measure::Count), "osm_build", [VERSION, COMMIT, Component::LABEL],
        "The running release");
    RECONCILES = (COUNTER, "osm_reconciles", [Outcome::LABEL],
        "Reconciles of machine deployments");
    RECONCILE_DURATION = (DURATION, "osm_reconcile_duration", [Outcome::LABEL],
        "Time that a reconcile took, with its calls and waits");
    RECONCILE_QUEUE_WAIT = (DURATION, "osm_reconcile_queue_wait", [Outcome::LABEL],
        "Time from when a machine deployment was due until its reconcile began. A \
         reconcile that follows a change for all machine deployments waits by design");
    TIME_TO_SERVED = (DURATION, "osm_time_to_served", [CLASS],
        "Time from when a machine deployment was due until what it needs was written, over all \
         retries. Counted once, at the latest when a reconcile fails after more than 30 s. Without \
         resyncs, and without the time in which a person had to act, it had no revision, or its \
         cluster did not answer");
    RECONCILE_TRIGGERS = (COUNTER, "osm_reconcile_triggers", [Trigger::LABEL],
        "Reconciles by what they were begun for; of several triggers the first counts");
    FAILURES = (COUNTER, "osm_failures", [CATEGORY],
        "Failures by the category of their error");
    MACHINE_DEPLOYMENTS = (GAUGE, "osm_machine_deployments", [Outcome::LABEL],
        "Machine deployments of this replica's tenants by what became of their last reconcile");
    RENDERS = (COUNTER, "osm_renders", [RenderResult::LABEL], "Renders by what became of them");
    RENDER_DURATION = (DURATION, "osm_render_duration", [],
        "Time that a render took, with the weighing of its documents");
    RENDER_PERMIT_WAIT = (DURATION, "osm_render_permit_wait", [],
        "Time that renders waited for one of the permits of --concurrent-renders");
    TEMPLATE_LIMITS = (COUNTER, "osm_template_limits_hit", [TemplateLimit::LABEL],
        "Renders that ended at a limit of templates. Each is a profile to look at");
    USER_DATA = (SIZE, "osm_user_data", [Document::LABEL], "Size of rendered documents");
    SECRETS_WRITTEN = (COUNTER, "osm_secrets_written", [SecretKind::LABEL],
        "Secrets created or replaced in worker clusters, by what they are for");
    TOKENS = (GAUGE, "osm_bootstrap_tokens", [], "Bootstrap tokens of engaged clusters");
    TOKEN_END = (MOMENT, "osm_bootstrap_token_first_end_timestamp", [],
        "When the first of them ends, in Unix time. Absent without tokens. One that lies in the \
         past is not renewed: its machine deployment or its cluster says why");
    JOIN_CHECKS = (COUNTER, "osm_join_checks", [JoinCheck::LABEL],
        "Checks whether a machine can fetch its configuration and join, by their outcome");
    TOKENS_RENEWED = (COUNTER, "osm_bootstrap_tokens_renewed", [],
        "Bootstrap tokens renewed before their end");
    API_REQUESTS = (COUNTER, "osm_api_requests", [ClusterKind::LABEL, Verb::LABEL, CodeClass::LABEL],
        "Requests to API servers. 429 says that the server wants patience; none, that no answer \
         came");
    API_REQUEST_DURATION = (DURATION, "osm_api_request_duration", [ClusterKind::LABEL],
        "Time from when a request was sent until the head of its answer came");
    API_THROTTLE_WAIT = (DURATION, "osm_api_throttle_wait", [ClusterKind::LABEL],
        "Time that requests waited for the budget of their tenant, and at the management cluster \
         for that of all");
    FENCED_WRITES = (COUNTER, "osm_fenced_writes", [Fence::LABEL],
        "Writes that were not sent, since another replica might serve the tenant: this one's \
         Lease might end before the answer, or the tenant has moved. Some while tenants move are \
         what the fence is for; a rate at rest says that the Lease is not renewed");
    CONNECT_DURATION = (DURATION, "osm_connect_duration", [Attempted::LABEL],
        "Time until a worker cluster was connected to, with its name, TCP and TLS, or until that \
         failed");
    ENGAGE_DURATION = (DURATION, "osm_engage_duration", [Attempted::LABEL],
        "Time until a worker cluster was accepted, identified, claimed and prepared, or until \
         that failed");
    TIME_TO_ENGAGED = (DURATION, "osm_time_to_engaged", [CLASS],
        "Time from when this replica had a new or changed registration, or tried again after an \
         engagement, until its worker cluster was engaged, over all retries. Counted once, at the \
         latest when an attempt fails after more than 30 s. Without the time in which a person had \
         to act, or the cluster did not answer");
    TENANTS = (GAUGE, "osm_tenants", [TenantState::LABEL],
        "Tenants that this replica knows. Elsewhere are those that another replica serves");
    CLUSTER_UP = (GAUGE, "osm_cluster_up", [WORKER_CLUSTER, CLUSTER],
        "Whether the worker cluster answers, 1 or 0");
    CLUSTER_LAST_SUCCESS = (MOMENT, "osm_cluster_last_success_timestamp", [WORKER_CLUSTER, CLUSTER],
        "When a reconcile in the worker cluster last succeeded, in Unix time. A quiet cluster \
         succeeds about twice an hour");
    CLUSTER_OBJECTS = (GAUGE, "osm_cluster_objects", [WORKER_CLUSTER, CLUSTER],
        "Objects of the worker cluster that are kept in memory, as of the last full list");
    KUBECONFIGS = (GAUGE, "osm_expiring_kubeconfigs", [CredentialState::LABEL],
        "Registrations whose kubeconfig expires, by how soon");
    ROLLOUT_TENANTS = (GAUGE, "osm_rollout_tenants", [RolloutState::LABEL],
        "Tenants by where they stand in the rollout of default profiles; each replica counts its \
         own");
    ROLLOUT_PAUSED = (GAUGE, "osm_rollout_paused", [],
        "Whether the rollout of default profiles is paused, 1 or 0");
    MACHINE_TENANTS = (GAUGE, "osm_machine_rollout_tenants", [MachineState::LABEL],
        "Tenants that have their machines replaced, by where they stand");
    REPORTING_TENANTS = (GAUGE, "osm_reporting_tenants", [ReportState::LABEL],
        "Tenants whose machines report whether they are as in their documents, by the worst report");
    LEASE_RENEWALS = (COUNTER, "osm_lease_renewals", [Attempted::LABEL],
        "Writes of this replica's Lease");
    LEASE_END = (MOMENT, "osm_lease_end_timestamp", [],
        "When this replica's Lease ends unless it is renewed, in Unix time");
    FLEET_MEMBERS = (GAUGE, "osm_fleet_members", [],
        "Replicas that this one takes for members of the fleet");
    TASKS = (GAUGE, "osm_tasks", [],
        "Live Tokio tasks of this process: a constant number per tenant, and some for the duration \
         of requests");
    MEMORY_RESERVED = (GAUGE, "osm_memory_reserved_bytes", [],
        "Memory that is reserved for tenants' machine deployments and profiles");
    MEMORY_LIMIT = (GAUGE, "osm_memory_reservable_bytes", [],
        "Memory up to which tenants may reserve more than is guaranteed to each. Absent without a \
         memory limit");
    REVIEWS = (COUNTER, "osm_admission_reviews", [Webhook::LABEL, Verdict::LABEL],
        "Of osm webhook: writes that it was asked about. Of those that failed it had no answer");
    REVIEW_DURATION = (DURATION, "osm_admission_review_duration", [Webhook::LABEL],
        "Of osm webhook: time until it answered");
    CERTIFICATE_END = (MOMENT, "osm_admission_certificate_end_timestamp", [],
        "Of osm webhook: when its certificate ends, in Unix time. It is renewed a month before");
}
