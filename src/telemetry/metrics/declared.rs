//! The declarations: name, help, unit, labels and buckets of each metric.
//!
//! The encoder appends the unit, the `_total` of a counter and the full stop of the help.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::telemetry::metrics::labels::{
    ClusterKind, CodeClass, Document, Fence, Outcome, RolloutState, SecretKind, TenantState, Verb,
    Verdict, Webhook,
};

/// From a millisecond to half a minute. The targets (50 ms, 250 ms) are boundaries, so that an
/// alert on them is exact.
const SECONDS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// Powers of two from 1 KiB to 1 MiB, the most that a Secret takes. Among them are the most that
/// providers take: 16 KiB and 64 KiB.
const BYTES: [f64; 11] = [
    1024.0,
    2048.0,
    4096.0,
    8192.0,
    16_384.0,
    32_768.0,
    65_536.0,
    131_072.0,
    262_144.0,
    524_288.0,
    1_048_576.0,
];

/// How reconciles went.
#[derive(Debug)]
pub(super) struct Reconciles {
    pub count: Family<OutcomeLabel, Counter>,
    pub duration: Family<OutcomeLabel, Histogram>,
    pub queue_wait: Histogram,
    pub failures: Family<Category, Counter>,
}

/// What API servers were asked.
#[derive(Debug)]
pub(super) struct Requests {
    pub count: Family<ApiRequestLabels, Counter>,
    pub throttle_wait: Family<Kind, Histogram>,
    pub fenced: Family<FenceLabel, Counter>,
}

/// What was made for nodes.
#[derive(Debug)]
pub(super) struct UserData {
    pub size: Family<DocumentLabel, Histogram>,
    pub secrets_written: Family<SecretLabel, Counter>,
    pub tokens_renewed: Counter,
}

/// How the fleet is.
#[derive(Debug)]
pub(super) struct Clusters {
    pub tenants: Family<State, Gauge>,
    pub up: Family<Cluster, Gauge>,
    pub last_success: Family<Cluster, Gauge<f64, AtomicU64>>,
    pub objects: Family<Cluster, Gauge>,
    pub rollout: Family<Rollout, Gauge>,
    pub rollout_paused: Gauge,
    pub tasks: Gauge,
}

/// What the admission webhooks did; a process that serves none has no series of them.
#[derive(Debug)]
pub(super) struct Reviews {
    pub count: Family<ReviewLabels, Counter>,
    pub duration: Family<WebhookLabel, Histogram>,
    pub certificate_ends: Family<NoLabel, Gauge<f64, AtomicU64>>,
}

/// No series exists before the first value.
pub(super) type NoLabel = [(&'static str, &'static str); 0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ReviewLabels {
    pub webhook: Webhook,
    pub verdict: Verdict,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct WebhookLabel {
    pub webhook: Webhook,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OutcomeLabel {
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Category {
    pub category: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ApiRequestLabels {
    pub cluster_kind: ClusterKind,
    pub verb: Verb,
    pub code: CodeClass,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Kind {
    pub cluster_kind: ClusterKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct FenceLabel {
    pub reason: Fence,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct DocumentLabel {
    pub document: Document,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct SecretLabel {
    pub kind: SecretKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct State {
    pub state: TenantState,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Rollout {
    pub state: RolloutState,
}

/// The one label whose values are not a closed set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Cluster {
    cluster: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

impl Cluster {
    pub fn named(cluster: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
        }
    }
}

/// Which build this is: `osm_build_info`.
pub(super) fn build(registry: &mut Registry) {
    let build = Build {
        version: env!("CARGO_PKG_VERSION"),
    };
    registry.register("osm_build", "The running release", Info::new(build));
}

impl Reconciles {
    pub fn declare(registry: &mut Registry) -> Self {
        let count = Family::<OutcomeLabel, Counter>::default();
        let duration = Family::<OutcomeLabel, Histogram>::new_with_constructor(seconds);
        for &outcome in Outcome::ALL {
            drop(count.get_or_create(&OutcomeLabel { outcome }));
            drop(duration.get_or_create(&OutcomeLabel { outcome }));
        }
        let help = "Reconciles of machine deployments by outcome";
        plain(registry, "osm_reconciles", help, count.clone());
        let help = "Time that a reconcile took, by outcome";
        in_seconds(registry, "osm_reconcile_duration", help, duration.clone());
        let help = "Time from when a reconcile was due until it started";
        let queue_wait = in_seconds(registry, "osm_reconcile_queue_wait", help, seconds());
        let help = "Failures by the category of their error";
        let failures = plain(registry, "osm_failures", help, Family::default());
        Self {
            count,
            duration,
            queue_wait,
            failures,
        }
    }
}

impl Requests {
    pub fn declare(registry: &mut Registry) -> Self {
        let throttle_wait = Family::<Kind, Histogram>::new_with_constructor(seconds);
        for &cluster_kind in ClusterKind::ALL {
            drop(throttle_wait.get_or_create(&Kind { cluster_kind }));
        }
        let help = "Requests to API servers by kind of cluster, verb and class of status code";
        let count = plain(registry, "osm_api_requests", help, Family::default());
        let help = "Time that requests waited for the budget of their cluster";
        in_seconds(
            registry,
            "osm_api_throttle_wait",
            help,
            throttle_wait.clone(),
        );
        let fenced = Family::<FenceLabel, Counter>::default();
        for &reason in Fence::ALL {
            drop(fenced.get_or_create(&FenceLabel { reason }));
        }
        let help = "Writes that were not sent, since another replica might serve the tenant";
        plain(registry, "osm_fenced_writes", help, fenced.clone());
        Self {
            count,
            throttle_wait,
            fenced,
        }
    }
}

impl UserData {
    pub fn declare(registry: &mut Registry) -> Self {
        let size = Family::<DocumentLabel, Histogram>::new_with_constructor(bytes);
        for &document in Document::ALL {
            drop(size.get_or_create(&DocumentLabel { document }));
        }
        let secrets_written = Family::<SecretLabel, Counter>::default();
        for &kind in SecretKind::ALL {
            drop(secrets_written.get_or_create(&SecretLabel { kind }));
        }
        let help = "Size of rendered user data by document";
        registry.register_with_unit("osm_user_data", help, Unit::Bytes, size.clone());
        let help = "Secrets written to worker clusters by what they are for";
        plain(
            registry,
            "osm_secrets_written",
            help,
            secrets_written.clone(),
        );
        let help = "Bootstrap tokens renewed before their end";
        let name = "osm_bootstrap_tokens_renewed";
        let tokens_renewed = plain(registry, name, help, Counter::default());
        Self {
            size,
            secrets_written,
            tokens_renewed,
        }
    }
}

impl Clusters {
    pub fn declare(registry: &mut Registry) -> Self {
        let tenants = Family::<State, Gauge>::default();
        for &state in TenantState::ALL {
            drop(tenants.get_or_create(&State { state }));
        }
        let help = "Tenants that this replica knows, by state";
        plain(registry, "osm_tenants", help, tenants.clone());
        let help = "Whether the worker cluster answers, 1 or 0";
        let up = plain(registry, "osm_cluster_up", help, Family::default());
        let help = "When a reconcile in the worker cluster last succeeded, in Unix time";
        let name = "osm_cluster_last_success_timestamp";
        let last_success = in_seconds(registry, name, help, Family::default());
        let help = "Objects of the worker cluster that are kept in memory";
        let objects = plain(registry, "osm_cluster_objects", help, Family::default());
        let rollout = Family::<Rollout, Gauge>::default();
        for &state in RolloutState::ALL {
            drop(rollout.get_or_create(&Rollout { state }));
        }
        let help = "Tenants in the rollout of default profiles, by where they stand";
        plain(registry, "osm_rollout_tenants", help, rollout.clone());
        let help = "Whether the rollout of default profiles is paused, 1 or 0";
        let rollout_paused = plain(registry, "osm_rollout_paused", help, Gauge::default());
        let help = "Tasks of this process that have not ended";
        let tasks = plain(registry, "osm_tasks", help, Gauge::default());
        Self {
            tenants,
            up,
            last_success,
            objects,
            rollout,
            rollout_paused,
            tasks,
        }
    }
}

impl Reviews {
    pub fn declare(registry: &mut Registry) -> Self {
        let help = "Writes that admission webhooks were asked about, by webhook and verdict";
        let count = plain(registry, "osm_admission_reviews", help, Family::default());
        let duration = Family::<WebhookLabel, Histogram>::new_with_constructor(seconds);
        let help = "Time until an admission webhook answered, by webhook";
        let name = "osm_admission_review_duration";
        let duration = in_seconds(registry, name, help, duration);
        let help = "When the certificate of the admission webhooks ends, in Unix time";
        let name = "osm_admission_certificate_end_timestamp";
        let certificate_ends = in_seconds(registry, name, help, Family::default());
        Self {
            count,
            duration,
            certificate_ends,
        }
    }
}

fn plain<M>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M
where
    M: Metric + Clone,
{
    registry.register(name, help, metric.clone());
    metric
}

fn in_seconds<M>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M
where
    M: Metric + Clone,
{
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

fn bytes() -> Histogram {
    Histogram::new(BYTES)
}
