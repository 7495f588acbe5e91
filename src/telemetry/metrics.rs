//! Every metric of the process, declared in one place.
//!
//! Names are `osm_<noun>_<unit>`, and labels come from closed sets, so that the number of series
//! does not grow with the fleet. The exceptions are the label `class`, of which the settings may
//! name a few values, and the label `worker_cluster`, which three gauges carry: three series per
//! cluster, removed when it is disengaged. The label `fleet` has one value in a process.

mod declared;
mod labels;
mod latency;
mod pending;
pub mod reference;
mod tokens;

use std::borrow::Cow;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::text;
use prometheus_client::metrics::{family::Family, gauge::Gauge};
use prometheus_client::registry::Registry;

pub use self::labels::{
    Attempted, ClusterKind, CodeClass, Component, Connection, CredentialState, Document, Fence,
    JoinCheck, MachineState, Outcome, Paused, RenderResult, ReportState, RolloutState, SecretKind,
    TemplateLimit, TenantState, Trigger, Verb, Verdict, Webhook,
};
pub use self::pending::Pending;
pub use self::tokens::TokensKnown;
use self::{
    declared::{
        Category, Class, Cluster, Clusters, Membership, Objectives, Reconciles, Renders, Requests,
        Reviews, UserData,
    },
    latency::observe,
    tokens::Ledger,
};

/// All metrics; a clone is the same metrics.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<All>);

#[derive(Debug)]
struct All {
    registry: Registry,
    reconciles: Reconciles,
    renders: Renders,
    requests: Requests,
    objectives: Objectives,
    user_data: UserData,
    tokens: Ledger,
    clusters: Clusters,
    membership: Membership,
    reviews: Reviews,
}

/// How long a reconcile took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// From when it was due until it began.
    pub queue: Duration,
    /// From its beginning to its end.
    pub work: Duration,
}

/// A request, by its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The cluster that was asked.
    pub cluster_kind: ClusterKind,
    /// The operation.
    pub verb: Verb,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Declares them all, for a process that is no member of a fleet.
    pub fn new() -> Self {
        Self::of(Component::Manager, None)
    }

    /// Declares them all, each with the label `fleet` if there is one. Counters of small label sets
    /// start at zero, so that the first event is already a rate.
    pub fn of(component: Component, fleet: Option<&str>) -> Self {
        let fleet = fleet.map(|fleet| (Cow::from("fleet"), Cow::from(fleet.to_owned())));
        let mut registry = Registry::with_labels(fleet.into_iter());
        declared::build(&mut registry, component);
        let all = All {
            reconciles: Reconciles::declare(&mut registry),
            renders: Renders::declare(&mut registry),
            requests: Requests::declare(&mut registry),
            objectives: Objectives::declare(&mut registry),
            user_data: UserData::declare(&mut registry),
            tokens: Ledger::default(),
            clusters: Clusters::declare(&mut registry),
            membership: Membership::declare(&mut registry),
            reviews: Reviews::declare(&mut registry),
            registry,
        };
        Self(Arc::new(all))
    }

    /// A reconcile began for this.
    pub fn triggered(&self, trigger: Trigger) {
        self.0.reconciles.triggers.get_or_create(&trigger).inc();
    }

    /// A reconcile ended like this after so long.
    pub fn reconciled(&self, outcome: Outcome, took: Took) {
        let reconciles = &self.0.reconciles;
        reconciles.count.get_or_create(&outcome).inc();
        observe(&reconciles.duration.get_or_create(&outcome), took.work);
        observe(&reconciles.queue_wait.get_or_create(&outcome), took.queue);
    }

    /// Starts the series of a class of tenants at zero.
    pub fn begin_class(&self, class: &str) {
        self.0.objectives.begin(class);
    }

    /// A registration of a tenant of this class waited so long until its cluster was engaged.
    pub fn time_to_engaged(&self, class: &str, wait: Duration) {
        let waits = &self.0.objectives.time_to_engaged;
        observe(&waits.get_or_create(&Class::named(class)), wait);
    }

    /// A machine deployment of a tenant of this class waited so long until it was served.
    pub fn time_to_served(&self, class: &str, wait: Duration) {
        let waits = &self.0.objectives.time_to_served;
        observe(&waits.get_or_create(&Class::named(class)), wait);
    }

    /// A render waited so long for its permit.
    pub fn permit_waited(&self, wait: Duration) {
        observe(&self.0.renders.permit_wait, wait);
    }

    /// A render ended like this after so long.
    pub fn rendered(&self, result: RenderResult, took: Duration) {
        let renders = &self.0.renders;
        renders.count.get_or_create(&result).inc();
        observe(&renders.duration, took);
    }

    /// A render ended at a limit.
    pub fn template_limit_hit(&self, limit: TemplateLimit) {
        self.0.renders.limits.get_or_create(&limit).inc();
    }

    /// A join check came to this.
    pub fn join_checked(&self, outcome: JoinCheck) {
        self.0.user_data.join_checks.get_or_create(&outcome).inc();
    }

    /// Something failed; the category is that of its error type, never a text.
    pub fn failed(&self, category: &'static str) {
        let label = Category { category };
        self.0.reconciles.failures.get_or_create(&label).inc();
    }

    /// A request was answered, or was not, after so long.
    pub fn api_request(&self, asked: Asked, code: CodeClass, took: Duration) {
        let Asked { cluster_kind, verb } = asked;
        let labels = (cluster_kind, (verb, code));
        let requests = &self.0.requests;
        requests.count.get_or_create(&labels).inc();
        observe(&requests.duration.get_or_create(&cluster_kind), took);
    }

    /// A request waited so long for its cluster's budget.
    pub fn throttled(&self, cluster_kind: ClusterKind, wait: Duration) {
        let waits = &self.0.requests.throttle_wait;
        observe(&waits.get_or_create(&cluster_kind), wait);
    }

    /// A write was not sent.
    pub fn fenced(&self, reason: Fence) {
        self.0.requests.fenced.get_or_create(&reason).inc();
    }

    /// A document was rendered.
    pub fn user_data_rendered(&self, document: Document, bytes: usize) {
        let bytes = f64::from(u32::try_from(bytes).unwrap_or(u32::MAX));
        let size = self.0.user_data.size.get_or_create(&document);
        size.observe(bytes);
    }

    /// A Secret was created, replaced or updated.
    pub fn secret_written(&self, kind: SecretKind) {
        self.0.user_data.secrets_written.get_or_create(&kind).inc();
    }

    /// The end of a bootstrap token was moved on.
    pub fn token_renewed(&self) {
        self.0.user_data.tokens_renewed.inc();
    }

    /// The bootstrap tokens of an engaged cluster are these now.
    pub fn set_tokens(&self, cluster: &str, tokens: TokensKnown) {
        self.0.tokens.set(cluster, tokens);
    }

    /// The bootstrap tokens of a cluster are not known any more.
    pub fn forget_tokens(&self, cluster: &str) {
        self.0.tokens.remove(cluster);
    }

    /// A connection to a worker cluster came about, or did not, after so long.
    pub fn connected(&self, result: Attempted, took: Duration) {
        observe(&self.0.clusters.connect.get_or_create(&result), took);
    }

    /// A worker cluster was engaged, or was not, after so long.
    pub fn engaged(&self, result: Attempted, took: Duration) {
        observe(&self.0.clusters.engage.get_or_create(&result), took);
    }

    /// Sets the number of machine deployments whose last reconcile had this outcome.
    pub fn set_machine_deployments(&self, outcome: Outcome, count: usize) {
        set(&self.0.clusters.machine_deployments, &outcome, count);
    }

    /// Sets the number of kubeconfigs that expire within this time.
    pub fn set_expiring_kubeconfigs(&self, state: CredentialState, count: usize) {
        set(&self.0.clusters.kubeconfigs, &state, count);
    }

    /// Sets the number of tenants in this state of replacing machines.
    pub fn set_machine_rollout(&self, state: MachineState, count: usize) {
        set(&self.0.clusters.machines, &state, count);
    }

    /// Sets the number of tenants whose machines report this.
    pub fn set_reporting(&self, state: ReportState, count: usize) {
        set(&self.0.clusters.reports, &state, count);
    }

    /// This replica's Lease was written, or was not.
    pub fn lease_written(&self, result: Attempted) {
        self.0.membership.renewals.get_or_create(&result).inc();
    }

    /// This replica's Lease ends then.
    pub fn set_lease_end(&self, at: Timestamp) {
        let end = &self.0.membership.end;
        end.get_or_create(&[]).set(unix_seconds(at));
    }

    /// Sets the number of replicas of the fleet.
    pub fn set_fleet_members(&self, count: usize) {
        set(&self.0.membership.members, &[], count);
    }

    /// Sets the number of tenants in this state.
    pub fn set_tenants(&self, state: TenantState, count: usize) {
        set(&self.0.clusters.tenants, &state, count);
    }

    /// Sets the number of tenants in this state of the rollout of default profiles.
    pub fn set_rollout(&self, state: RolloutState, count: usize) {
        set(&self.0.clusters.rollout, &state, count);
    }

    /// Records whether the rollout of default profiles is paused.
    pub fn set_rollout_paused(&self, paused: Paused) {
        let paused = i64::from(paused == Paused::Yes);
        self.0.clusters.rollout_paused.set(paused);
    }

    /// Sets the number of live Tokio tasks.
    pub fn set_tasks(&self, count: usize) {
        self.0.clusters.tasks.set(gauge(count));
    }

    /// Sets the memory that tenants have reserved, and up to which they may, in bytes.
    pub fn set_memory(&self, reserved: usize, limit: Option<usize>) {
        let clusters = &self.0.clusters;
        clusters.memory_reserved.set(gauge(reserved));
        if let Some(limit) = limit {
            set(&clusters.memory_limit, &[], limit);
        }
    }

    /// Records whether a worker cluster (`namespace/name`) answers.
    pub fn set_cluster(&self, cluster: &str, connection: Connection) {
        let up = usize::from(connection == Connection::Up);
        set(&self.0.clusters.up, &Cluster::named(cluster), up);
    }

    /// A reconcile in this worker cluster succeeded.
    pub fn cluster_succeeded(&self, cluster: &str, at: Timestamp) {
        let last_success = &self.0.clusters.last_success;
        let cluster = Cluster::named(cluster);
        last_success.get_or_create(&cluster).set(unix_seconds(at));
    }

    /// Sets the number of objects of this worker cluster in memory.
    pub fn set_cluster_objects(&self, cluster: &str, count: usize) {
        set(&self.0.clusters.objects, &Cluster::named(cluster), count);
    }

    /// Forgets a worker cluster. Tasks that report on the cluster must have stopped: a report after
    /// this makes the series again.
    pub fn remove_cluster(&self, cluster: &str) {
        let label = Cluster::named(cluster);
        self.0.clusters.up.remove(&label);
        self.0.clusters.last_success.remove(&label);
        self.0.clusters.objects.remove(&label);
        self.0.tokens.remove(cluster);
    }

    /// An admission webhook answered like this after so long.
    pub fn reviewed(&self, webhook: Webhook, verdict: Verdict, duration: Duration) {
        let reviews = &self.0.reviews;
        reviews.count.get_or_create(&(webhook, verdict)).inc();
        observe(&reviews.duration.get_or_create(&webhook), duration);
    }

    /// The admission webhooks have a certificate that ends then.
    pub fn set_certificate_end(&self, at: Timestamp) {
        let ends = &self.0.reviews.certificate_ends;
        ends.get_or_create(&[]).set(unix_seconds(at));
    }

    /// All metrics in the `OpenMetrics` text format.
    pub fn encode(&self) -> String {
        self.sum_tokens();
        let mut text = String::new();
        text::encode(&mut text, &self.0.registry).expect("writing to a String cannot fail");
        text
    }

    fn sum_tokens(&self) {
        let TokensKnown { count, first_end } = self.0.tokens.sum();
        let user_data = &self.0.user_data;
        user_data.tokens.set(gauge(count));
        match first_end {
            Some(at) => {
                let end = user_data.token_end.get_or_create(&[]);
                end.set(unix_seconds(at));
            }
            None => drop(user_data.token_end.remove(&[])),
        }
    }
}

fn unix_seconds(at: Timestamp) -> f64 {
    at.duration_since(Timestamp::UNIX_EPOCH).as_secs_f64()
}

/// Sets the gauge with this label.
fn set<L>(gauges: &Family<L, Gauge>, label: &L, count: usize)
where
    L: Clone + Hash + Eq,
{
    gauges.get_or_create(label).set(gauge(count));
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
