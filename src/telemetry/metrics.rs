//! Every metric of the process, declared in one place.
//!
//! Names are `osm_<noun>_<unit>`, and labels come from closed sets, so that the number of series
//! does not grow with the fleet. The exception is the label `cluster`, which three gauges carry:
//! three series per cluster, removed when it is disengaged.

mod declared;
mod labels;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use crate::telemetry::metrics::declared::{
    ApiRequestLabels, Category, Cluster, Clusters, DocumentLabel, FenceLabel, Kind, OutcomeLabel,
    Reconciles, Requests, ReviewLabels, Reviews, Rollout, SecretLabel, State, UserData,
    WebhookLabel,
};
pub use crate::telemetry::metrics::labels::{
    ClusterKind, CodeClass, Connection, Document, Fence, Outcome, Paused, RolloutState, SecretKind,
    TenantState, Verb, Verdict, Webhook,
};

/// All metrics; a clone is the same metrics.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<All>);

#[derive(Debug)]
struct All {
    registry: Registry,
    reconciles: Reconciles,
    requests: Requests,
    user_data: UserData,
    clusters: Clusters,
    reviews: Reviews,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Declares them all. Counters of small label sets start at zero, so that the first event is
    /// already a rate.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        declared::build(&mut registry);
        let all = All {
            reconciles: Reconciles::declare(&mut registry),
            requests: Requests::declare(&mut registry),
            user_data: UserData::declare(&mut registry),
            clusters: Clusters::declare(&mut registry),
            reviews: Reviews::declare(&mut registry),
            registry,
        };
        Self(Arc::new(all))
    }

    /// A reconcile ended like this after so long.
    pub fn reconciled(&self, outcome: Outcome, duration: Duration) {
        let label = OutcomeLabel { outcome };
        self.0.reconciles.count.get_or_create(&label).inc();
        self.0
            .reconciles
            .duration
            .get_or_create(&label)
            .observe(duration.as_secs_f64());
    }

    /// A reconcile waited so long for its turn.
    pub fn queue_waited(&self, wait: Duration) {
        self.0.reconciles.queue_wait.observe(wait.as_secs_f64());
    }

    /// Something failed; the category is that of its error type, never a text.
    pub fn failed(&self, category: &'static str) {
        self.0
            .reconciles
            .failures
            .get_or_create(&Category { category })
            .inc();
    }

    /// A request was answered, or was not.
    pub fn api_request(&self, cluster_kind: ClusterKind, verb: Verb, code: CodeClass) {
        let labels = ApiRequestLabels {
            cluster_kind,
            verb,
            code,
        };
        self.0.requests.count.get_or_create(&labels).inc();
    }

    /// A request waited so long for its cluster's budget.
    pub fn throttled(&self, cluster_kind: ClusterKind, wait: Duration) {
        let label = Kind { cluster_kind };
        self.0
            .requests
            .throttle_wait
            .get_or_create(&label)
            .observe(wait.as_secs_f64());
    }

    /// A write was not sent.
    pub fn fenced(&self, reason: Fence) {
        let label = FenceLabel { reason };
        self.0.requests.fenced.get_or_create(&label).inc();
    }

    /// A document was rendered.
    pub fn user_data_rendered(&self, document: Document, bytes: usize) {
        let bytes = f64::from(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.0
            .user_data
            .size
            .get_or_create(&DocumentLabel { document })
            .observe(bytes);
    }

    /// A Secret was created, replaced or updated.
    pub fn secret_written(&self, kind: SecretKind) {
        self.0
            .user_data
            .secrets_written
            .get_or_create(&SecretLabel { kind })
            .inc();
    }

    /// The end of a bootstrap token was moved on.
    pub fn token_renewed(&self) {
        self.0.user_data.tokens_renewed.inc();
    }

    /// So many tenants are in this state now.
    pub fn set_tenants(&self, state: TenantState, count: usize) {
        self.0
            .clusters
            .tenants
            .get_or_create(&State { state })
            .set(gauge(count));
    }

    /// So many tenants stand here in the rollout of default profiles.
    pub fn set_rollout(&self, state: RolloutState, count: usize) {
        self.0
            .clusters
            .rollout
            .get_or_create(&Rollout { state })
            .set(gauge(count));
    }

    /// Whether the rollout of default profiles is paused.
    pub fn set_rollout_paused(&self, paused: Paused) {
        let paused = match paused {
            Paused::Yes => 1,
            Paused::No => 0,
        };
        self.0.clusters.rollout_paused.set(paused);
    }

    /// So many tasks have not ended.
    pub fn set_tasks(&self, count: usize) {
        self.0.clusters.tasks.set(gauge(count));
    }

    /// Whether a worker cluster (`namespace/name`) answers.
    pub fn set_cluster(&self, cluster: &str, connection: Connection) {
        let up = match connection {
            Connection::Up => 1,
            Connection::Down => 0,
        };
        self.0
            .clusters
            .up
            .get_or_create(&Cluster::named(cluster))
            .set(up);
    }

    /// A reconcile in this worker cluster succeeded.
    pub fn cluster_succeeded(&self, cluster: &str, at: Timestamp) {
        let seconds = at.duration_since(Timestamp::UNIX_EPOCH).as_secs_f64();
        self.0
            .clusters
            .last_success
            .get_or_create(&Cluster::named(cluster))
            .set(seconds);
    }

    /// So many objects of this worker cluster are kept in memory.
    pub fn set_cluster_objects(&self, cluster: &str, count: usize) {
        self.0
            .clusters
            .objects
            .get_or_create(&Cluster::named(cluster))
            .set(gauge(count));
    }

    /// Forgets a worker cluster. Whoever reports on the cluster must have stopped: a report after
    /// this makes the series again.
    pub fn remove_cluster(&self, cluster: &str) {
        let label = Cluster::named(cluster);
        self.0.clusters.up.remove(&label);
        self.0.clusters.last_success.remove(&label);
        self.0.clusters.objects.remove(&label);
    }

    /// An admission webhook answered like this after so long.
    pub fn reviewed(&self, webhook: Webhook, verdict: Verdict, duration: Duration) {
        let reviews = &self.0.reviews;
        let labels = ReviewLabels { webhook, verdict };
        reviews.count.get_or_create(&labels).inc();
        let duration_of = reviews.duration.get_or_create(&WebhookLabel { webhook });
        duration_of.observe(duration.as_secs_f64());
    }

    /// The admission webhooks have a certificate that ends then.
    pub fn set_certificate_end(&self, at: Timestamp) {
        let seconds = at.duration_since(Timestamp::UNIX_EPOCH).as_secs_f64();
        let ends = &self.0.reviews.certificate_ends;
        ends.get_or_create(&[]).set(seconds);
    }

    /// All metrics in the `OpenMetrics` text format.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        text::encode(&mut text, &self.0.registry).expect("writing to a String cannot fail");
        text
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
