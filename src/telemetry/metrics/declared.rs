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
            Attempted, Closed, ClusterKind, CodeClass, Component, CredentialState, Document, Fence,
            JoinCheck, MachineState, Outcome, RenderResult, ReportState, RolloutState, SecretKind,
            TemplateLimit, TenantState, Trigger, Verb, Verdict, Webhook,
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
    pub count: Family<Outcome, Counter>,
    pub duration: Latencies<Outcome>,
    pub queue_wait: Latencies<Outcome>,
    pub triggers: Family<Trigger, Counter>,
    pub failures: Family<Category, Counter>,
}

/// How renders went.
#[derive(Debug)]
pub(super) struct Renders {
    pub count: Family<RenderResult, Counter>,
    pub duration: Latency,
    pub permit_wait: Latency,
    pub limits: Family<TemplateLimit, Counter>,
}

/// Requests to API servers.
#[derive(Debug)]
pub(super) struct Requests {
    pub count: Family<(ClusterKind, (Verb, CodeClass)), Counter>,
    pub duration: Latencies<ClusterKind>,
    pub throttle_wait: Latencies<ClusterKind>,
    pub fenced: Family<Fence, Counter>,
}

/// What the objectives limit.
#[derive(Debug)]
pub(super) struct Objectives {
    pub time_to_engaged: Latencies<Class>,
    pub time_to_served: Latencies<Class>,
}

/// Objects that were written for nodes.
#[derive(Debug)]
pub(super) struct UserData {
    pub size: Family<Document, Histogram, fn() -> Histogram>,
    pub secrets_written: Family<SecretKind, Counter>,
    pub tokens: Gauge,
    pub token_end: Family<NoLabel, Seconds>,
    pub tokens_renewed: Counter,
    pub join_checks: Family<JoinCheck, Counter>,
}

/// How the fleet is.
#[derive(Debug)]
pub(super) struct Clusters {
    pub connect: Latencies<Attempted>,
    pub engage: Latencies<Attempted>,
    pub tenants: Family<TenantState, Gauge>,
    pub up: Family<Cluster, Gauge>,
    pub last_success: Family<Cluster, Seconds>,
    pub objects: Family<Cluster, Gauge>,
    pub machine_deployments: Family<Outcome, Gauge>,
    pub kubeconfigs: Family<CredentialState, Gauge>,
    pub rollout: Family<RolloutState, Gauge>,
    pub rollout_paused: Gauge,
    pub machines: Family<MachineState, Gauge>,
    pub reports: Family<ReportState, Gauge>,
    pub tasks: Gauge,
    pub memory_reserved: Gauge,
    pub memory_limit: Family<NoLabel, Gauge>,
}

/// How this replica stands in the fleet; one that serves no fleet has no series but the counter's.
#[derive(Debug)]
pub(super) struct Membership {
    pub renewals: Family<Attempted, Counter>,
    pub end: Family<NoLabel, Seconds>,
    pub members: Family<NoLabel, Gauge>,
}

/// The reviews of admission webhooks; a process that serves none has no series of them.
#[derive(Debug)]
pub(super) struct Reviews {
    pub count: Family<(Webhook, Verdict), Counter>,
    pub duration: Latencies<Webhook>,
    pub certificate_ends: Family<NoLabel, Seconds>,
}

/// No series exists before the first value.
pub(super) type NoLabel = [(&'static str, &'static str); 0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Category {
    pub category: &'static str,
}

/// The tenant's class. The settings limit how many there are.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Class {
    class: String,
}

/// The one label whose values are not limited.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Cluster {
    worker_cluster: String,
    /// The name until the next release.
    cluster: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
    commit: &'static str,
    component: &'static str,
}

impl Class {
    pub fn named(class: &str) -> Self {
        Self {
            class: class.to_owned(),
        }
    }
}

impl Cluster {
    pub fn named(cluster: &str) -> Self {
        Self {
            worker_cluster: cluster.to_owned(),
            cluster: cluster.to_owned(),
        }
    }
}

/// Which build this is: `osm_build_info`.
pub(super) fn build(registry: &mut Registry, component: Component) {
    let build = Build {
        version: build::VERSION,
        commit: build::COMMIT,
        component: component.as_str(),
    };
    registry.register(
        reference::BUILD.stem,
        reference::BUILD.help,
        Info::new(build),
    );
}

impl Reconciles {
    pub fn declare(registry: &mut Registry) -> Self {
        Self {
            count: from_zero(registry, &reference::RECONCILES),
            duration: latencies(registry, &reference::RECONCILE_DURATION, latency::fine),
            queue_wait: latencies(registry, &reference::RECONCILE_QUEUE_WAIT, latency::coarse),
            triggers: from_zero(registry, &reference::RECONCILE_TRIGGERS),
            failures: absent(registry, &reference::FAILURES),
        }
    }
}

impl Renders {
    pub fn declare(registry: &mut Registry) -> Self {
        Self {
            count: from_zero(registry, &reference::RENDERS),
            duration: add(registry, &reference::RENDER_DURATION, latency::coarse()),
            permit_wait: add(registry, &reference::RENDER_PERMIT_WAIT, latency::coarse()),
            limits: from_zero(registry, &reference::TEMPLATE_LIMITS),
        }
    }
}

impl Requests {
    pub fn declare(registry: &mut Registry) -> Self {
        Self {
            count: absent(registry, &reference::API_REQUESTS),
            duration: latencies(registry, &reference::API_REQUEST_DURATION, latency::fine),
            throttle_wait: latencies(registry, &reference::API_THROTTLE_WAIT, latency::coarse),
            fenced: from_zero(registry, &reference::FENCED_WRITES),
        }
    }
}

impl Objectives {
    pub fn declare(registry: &mut Registry) -> Self {
        let coarse = || Family::new_with_constructor(latency::coarse as fn() -> Latency);
        Self {
            time_to_engaged: add(registry, &reference::TIME_TO_ENGAGED, coarse()),
            time_to_served: add(registry, &reference::TIME_TO_SERVED, coarse()),
        }
    }

    /// Creates the series of a class.
    pub fn begin(&self, class: &str) {
        let class = Class::named(class);
        for family in [&self.time_to_engaged, &self.time_to_served] {
            drop(family.get_or_create(&class));
        }
    }
}

impl UserData {
    pub fn declare(registry: &mut Registry) -> Self {
        let size = Family::new_with_constructor(bytes as fn() -> Histogram);
        Self {
            size: add(registry, &reference::USER_DATA, begun(size)),
            secrets_written: from_zero(registry, &reference::SECRETS_WRITTEN),
            tokens: add(registry, &reference::TOKENS, Gauge::default()),
            token_end: absent(registry, &reference::TOKEN_END),
            tokens_renewed: add(registry, &reference::TOKENS_RENEWED, Counter::default()),
            join_checks: from_zero(registry, &reference::JOIN_CHECKS),
        }
    }
}

impl Clusters {
    pub fn declare(registry: &mut Registry) -> Self {
        Self {
            connect: latencies(registry, &reference::CONNECT_DURATION, latency::coarse),
            engage: latencies(registry, &reference::ENGAGE_DURATION, latency::coarse),
            tenants: from_zero(registry, &reference::TENANTS),
            up: absent(registry, &reference::CLUSTER_UP),
            last_success: absent(registry, &reference::CLUSTER_LAST_SUCCESS),
            objects: absent(registry, &reference::CLUSTER_OBJECTS),
            machine_deployments: from_zero(registry, &reference::MACHINE_DEPLOYMENTS),
            kubeconfigs: from_zero(registry, &reference::KUBECONFIGS),
            rollout: from_zero(registry, &reference::ROLLOUT_TENANTS),
            rollout_paused: add(registry, &reference::ROLLOUT_PAUSED, Gauge::default()),
            machines: from_zero(registry, &reference::MACHINE_TENANTS),
            reports: from_zero(registry, &reference::REPORTING_TENANTS),
            tasks: add(registry, &reference::TASKS, Gauge::default()),
            memory_reserved: add(registry, &reference::MEMORY_RESERVED, Gauge::default()),
            memory_limit: absent(registry, &reference::MEMORY_LIMIT),
        }
    }
}

impl Membership {
    pub fn declare(registry: &mut Registry) -> Self {
        Self {
            renewals: from_zero(registry, &reference::LEASE_RENEWALS),
            end: absent(registry, &reference::LEASE_END),
            members: absent(registry, &reference::FLEET_MEMBERS),
        }
    }
}

impl Reviews {
    pub fn declare(registry: &mut Registry) -> Self {
        let duration = Family::new_with_constructor(latency::fine as fn() -> Latency);
        Self {
            count: absent(registry, &reference::REVIEWS),
            duration: add(registry, &reference::REVIEW_DURATION, duration),
            certificate_ends: absent(registry, &reference::CERTIFICATE_END),
        }
    }
}

/// Declares a metric whose series all start at zero.
fn from_zero<L, M>(registry: &mut Registry, declaration: &Declaration) -> Family<L, M>
where
    L: Closed,
    M: Clone + Default,
    Family<L, M>: Metric,
{
    add(registry, declaration, begun(Family::default()))
}

/// Declares a metric whose series exist from their first value on.
fn absent<L, M>(registry: &mut Registry, declaration: &Declaration) -> Family<L, M>
where
    L: Clone + Hash + Eq,
    M: Default,
    Family<L, M>: Metric,
{
    add(registry, declaration, Family::default())
}

fn latencies<L>(
    registry: &mut Registry,
    declaration: &Declaration,
    of: fn() -> Latency,
) -> Latencies<L>
where
    L: Closed,
    Latencies<L>: Metric,
{
    let family = Family::new_with_constructor(of);
    add(registry, declaration, begun(family))
}

/// Creates the series of every label.
fn begun<L, M, C>(family: Family<L, M, C>) -> Family<L, M, C>
where
    L: Closed,
    M: Clone,
    C: MetricConstructor<M>,
{
    for label in L::EVERY {
        drop(family.get_or_create(label));
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
