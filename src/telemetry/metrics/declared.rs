//! The metrics that are registered, each by its declaration in [`reference`].

use std::hash::Hash;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::telemetry::{
    build,
    metrics::{
        labels::{
            Attempted, ClusterKind, CodeClass, CredentialState, Document, Fence, JoinCheck,
            MachineState, Outcome, RenderResult, RolloutState, SecretKind, TemplateLimit,
            TenantState, Trigger, Verb, Verdict, Webhook,
        },
        latency::{self, Latency},
        reference::{self, Declaration, Measure},
    },
};

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

/// Latencies by label.
pub(super) type Latencies<L> = Family<L, Latency, fn() -> Latency>;

/// Unix time.
pub(super) type Seconds = Gauge<f64, AtomicU64>;

/// How reconciles went.
#[derive(Debug)]
pub(super) struct Reconciles {
    pub count: Family<OutcomeLabel, Counter>,
    pub duration: Latencies<OutcomeLabel>,
    pub queue_wait: Latencies<OutcomeLabel>,
    pub triggers: Family<TriggerLabel, Counter>,
    pub failures: Family<Category, Counter>,
}

/// How renders went.
#[derive(Debug)]
pub(super) struct Renders {
    pub count: Family<RenderLabel, Counter>,
    pub duration: Latency,
    pub permit_wait: Latency,
    pub limits: Family<LimitLabel, Counter>,
}

/// Requests to API servers.
#[derive(Debug)]
pub(super) struct Requests {
    pub count: Family<ApiRequestLabels, Counter>,
    pub duration: Latencies<Kind>,
    pub throttle_wait: Latencies<Kind>,
    pub fenced: Family<FenceLabel, Counter>,
}

/// Objects that were written for nodes.
#[derive(Debug)]
pub(super) struct UserData {
    pub size: Family<DocumentLabel, Histogram, fn() -> Histogram>,
    pub secrets_written: Family<SecretLabel, Counter>,
    pub tokens: Gauge,
    pub token_end: Family<NoLabel, Seconds>,
    pub tokens_renewed: Counter,
    pub join_checks: Family<JoinLabel, Counter>,
}

/// How the fleet is.
#[derive(Debug)]
pub(super) struct Clusters {
    pub connect: Latencies<ResultLabel>,
    pub engage: Latencies<ResultLabel>,
    pub tenants: Family<State, Gauge>,
    pub up: Family<Cluster, Gauge>,
    pub last_success: Family<Cluster, Seconds>,
    pub objects: Family<Cluster, Gauge>,
    pub machine_deployments: Family<OutcomeLabel, Gauge>,
    pub kubeconfigs: Family<Credential, Gauge>,
    pub rollout: Family<Rollout, Gauge>,
    pub rollout_paused: Gauge,
    pub machines: Family<Machines, Gauge>,
    pub tasks: Gauge,
    pub memory_reserved: Gauge,
    pub memory_limit: Family<NoLabel, Gauge>,
}

/// How this replica stands in the fleet; one that serves no fleet has no series but the counter's.
#[derive(Debug)]
pub(super) struct Membership {
    pub renewals: Family<ResultLabel, Counter>,
    pub end: Family<NoLabel, Seconds>,
    pub members: Family<NoLabel, Gauge>,
}

/// The reviews of admission webhooks; a process that serves none has no series of them.
#[derive(Debug)]
pub(super) struct Reviews {
    pub count: Family<ReviewLabels, Counter>,
    pub duration: Latencies<WebhookLabel>,
    pub certificate_ends: Family<NoLabel, Seconds>,
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
pub(super) struct TriggerLabel {
    pub trigger: Trigger,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RenderLabel {
    pub result: RenderResult,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct JoinLabel {
    pub outcome: JoinCheck,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LimitLabel {
    pub limit: TemplateLimit,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ResultLabel {
    pub result: Attempted,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Machines {
    pub state: MachineState,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Credential {
    pub state: CredentialState,
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
    commit: &'static str,
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
        version: build::VERSION,
        commit: build::COMMIT,
    };
    registry.register(
        reference::BUILD.stem,
        reference::BUILD.help,
        Info::new(build),
    );
}

impl Reconciles {
    pub fn declare(registry: &mut Registry) -> Self {
        let outcomes = || Outcome::ALL.iter().map(|&outcome| OutcomeLabel { outcome });
        let triggers = Trigger::ALL.iter().map(|&trigger| TriggerLabel { trigger });
        let duration = Family::new_with_constructor(latency::fine as fn() -> Latency);
        let queue_wait = Family::new_with_constructor(latency::coarse as fn() -> Latency);
        Self {
            count: add(
                registry,
                &reference::RECONCILES,
                begun(Family::default(), outcomes()),
            ),
            duration: add(
                registry,
                &reference::RECONCILE_DURATION,
                begun(duration, outcomes()),
            ),
            queue_wait: add(
                registry,
                &reference::RECONCILE_QUEUE_WAIT,
                begun(queue_wait, outcomes()),
            ),
            triggers: add(
                registry,
                &reference::RECONCILE_TRIGGERS,
                begun(Family::default(), triggers),
            ),
            failures: add(registry, &reference::FAILURES, Family::default()),
        }
    }
}

impl Renders {
    pub fn declare(registry: &mut Registry) -> Self {
        let results = RenderResult::ALL
            .iter()
            .map(|&result| RenderLabel { result });
        let limits = TemplateLimit::ALL.iter().map(|&limit| LimitLabel { limit });
        Self {
            count: add(
                registry,
                &reference::RENDERS,
                begun(Family::default(), results),
            ),
            duration: add(registry, &reference::RENDER_DURATION, latency::coarse()),
            permit_wait: add(registry, &reference::RENDER_PERMIT_WAIT, latency::coarse()),
            limits: add(
                registry,
                &reference::TEMPLATE_LIMITS,
                begun(Family::default(), limits),
            ),
        }
    }
}

impl Requests {
    pub fn declare(registry: &mut Registry) -> Self {
        let kinds = || {
            ClusterKind::ALL
                .iter()
                .map(|&cluster_kind| Kind { cluster_kind })
        };
        let fences = Fence::ALL.iter().map(|&reason| FenceLabel { reason });
        let durations = Family::new_with_constructor(latency::fine as fn() -> Latency);
        let waits = Family::new_with_constructor(latency::coarse as fn() -> Latency);
        Self {
            count: add(registry, &reference::API_REQUESTS, Family::default()),
            duration: add(
                registry,
                &reference::API_REQUEST_DURATION,
                begun(durations, kinds()),
            ),
            throttle_wait: add(
                registry,
                &reference::API_THROTTLE_WAIT,
                begun(waits, kinds()),
            ),
            fenced: add(
                registry,
                &reference::FENCED_WRITES,
                begun(Family::default(), fences),
            ),
        }
    }
}

impl UserData {
    pub fn declare(registry: &mut Registry) -> Self {
        let documents = Document::ALL
            .iter()
            .map(|&document| DocumentLabel { document });
        let kinds = SecretKind::ALL.iter().map(|&kind| SecretLabel { kind });
        let size = Family::new_with_constructor(bytes as fn() -> Histogram);
        Self {
            size: add(registry, &reference::USER_DATA, begun(size, documents)),
            secrets_written: add(
                registry,
                &reference::SECRETS_WRITTEN,
                begun(Family::default(), kinds),
            ),
            tokens: add(registry, &reference::TOKENS, Gauge::default()),
            token_end: add(registry, &reference::TOKEN_END, Family::default()),
            tokens_renewed: add(registry, &reference::TOKENS_RENEWED, Counter::default()),
            join_checks: add(
                registry,
                &reference::JOIN_CHECKS,
                begun(
                    Family::default(),
                    JoinCheck::ALL.iter().map(|&outcome| JoinLabel { outcome }),
                ),
            ),
        }
    }
}

impl Clusters {
    pub fn declare(registry: &mut Registry) -> Self {
        let results = || Attempted::ALL.iter().map(|&result| ResultLabel { result });
        let attempts = || Family::new_with_constructor(latency::coarse as fn() -> Latency);
        let tenants = TenantState::ALL.iter().map(|&state| State { state });
        let outcomes = Outcome::ALL.iter().map(|&outcome| OutcomeLabel { outcome });
        let credentials = CredentialState::ALL
            .iter()
            .map(|&state| Credential { state });
        let rollout = RolloutState::ALL.iter().map(|&state| Rollout { state });
        let machines = MachineState::ALL.iter().map(|&state| Machines { state });
        let mut gauge = |declaration| add(registry, declaration, Gauge::default());
        let (rollout_paused, tasks) = (gauge(&reference::ROLLOUT_PAUSED), gauge(&reference::TASKS));
        let memory_reserved = gauge(&reference::MEMORY_RESERVED);
        Self {
            connect: add(
                registry,
                &reference::CONNECT_DURATION,
                begun(attempts(), results()),
            ),
            engage: add(
                registry,
                &reference::ENGAGE_DURATION,
                begun(attempts(), results()),
            ),
            tenants: add(
                registry,
                &reference::TENANTS,
                begun(Family::default(), tenants),
            ),
            up: add(registry, &reference::CLUSTER_UP, Family::default()),
            last_success: add(
                registry,
                &reference::CLUSTER_LAST_SUCCESS,
                Family::default(),
            ),
            objects: add(registry, &reference::CLUSTER_OBJECTS, Family::default()),
            machine_deployments: add(
                registry,
                &reference::MACHINE_DEPLOYMENTS,
                begun(Family::default(), outcomes),
            ),
            kubeconfigs: add(
                registry,
                &reference::KUBECONFIGS,
                begun(Family::default(), credentials),
            ),
            rollout: add(
                registry,
                &reference::ROLLOUT_TENANTS,
                begun(Family::default(), rollout),
            ),
            rollout_paused,
            machines: add(
                registry,
                &reference::MACHINE_TENANTS,
                begun(Family::default(), machines),
            ),
            tasks,
            memory_reserved,
            memory_limit: add(registry, &reference::MEMORY_LIMIT, Family::default()),
        }
    }
}

impl Membership {
    pub fn declare(registry: &mut Registry) -> Self {
        let results = Attempted::ALL.iter().map(|&result| ResultLabel { result });
        Self {
            renewals: add(
                registry,
                &reference::LEASE_RENEWALS,
                begun(Family::default(), results),
            ),
            end: add(registry, &reference::LEASE_END, Family::default()),
            members: add(registry, &reference::FLEET_MEMBERS, Family::default()),
        }
    }
}

impl Reviews {
    pub fn declare(registry: &mut Registry) -> Self {
        let duration = Family::new_with_constructor(latency::fine as fn() -> Latency);
        Self {
            count: add(registry, &reference::REVIEWS, Family::default()),
            duration: add(registry, &reference::REVIEW_DURATION, duration),
            certificate_ends: add(registry, &reference::CERTIFICATE_END, Family::default()),
        }
    }
}

/// Makes the series of these labels, so that they start at zero.
fn begun<L, M, C>(family: Family<L, M, C>, labels: impl Iterator<Item = L>) -> Family<L, M, C>
where
    L: Clone + Hash + Eq,
    M: Clone,
    C: MetricConstructor<M>,
{
    for label in labels {
        drop(family.get_or_create(&label));
    }
    family
}

fn add<M>(registry: &mut Registry, declaration: &Declaration, metric: M) -> M
where
    M: Metric + Clone,
{
    let Declaration { stem, help, .. } = *declaration;
    match declaration.unit {
        Measure::Count => registry.register(stem, help, metric.clone()),
        Measure::Seconds => {
            registry.register_with_unit(stem, help, Unit::Seconds, metric.clone());
        }
        Measure::Bytes => registry.register_with_unit(stem, help, Unit::Bytes, metric.clone()),
    }
    metric
}

fn bytes() -> Histogram {
    Histogram::new(BYTES)
}
