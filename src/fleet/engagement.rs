//! An engaged worker cluster: everything that serving it needs, handed to the app's function.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{
    adoption::Predecessor, claim::Claimant, clock::Clock, connect::Clients, connect::Connector,
    health::Health, memory::Memory, permits::Permits, rate_limit::Budget, rate_limit::SharedBudget,
    registry::RegisteredCluster, registry::Registry, tenant_status::TenantStatus,
    transport::Patience, transport::Transport, worker_clusters::WorkerClusters,
};
use crate::api::worker_cluster::WorkerCluster;
use crate::telemetry::metrics::Metrics;
use crate::tenant::{
    cluster_info::ClusterInfo,
    id::{RegistrationId, TenantId},
    policies::TenantPolicies,
    policy::TenantPolicy,
    settings::TenantSettings,
};

/// What all tenants of the fleet share.
pub struct Shared {
    /// The fleet's name.
    pub fleet: Arc<str>,
    /// The registry.
    pub registry: Arc<Registry>,
    /// The WorkerClusters.
    pub worker_clusters: WorkerClusters,
    /// What carries requests to the management cluster.
    pub management: Transport,
    /// The uid of the management cluster's kube-system namespace.
    pub management_uid: String,
    /// The uids of management clusters that are gone, whose claims are taken over.
    pub former_management_clusters: Vec<String>,
    /// Makes transports to worker clusters.
    pub connector: Connector,
    /// The policies of tenants.
    pub policies: Arc<TenantPolicies>,
    /// The settings of a tenant that sets nothing.
    pub defaults: Arc<TenantSettings>,
    /// How long a call may take.
    pub request_timeout: Duration,
    /// The interval at which a cluster's info is read again.
    pub facts_interval: Duration,
    /// Permits for reconciles, for all tenants together.
    pub permits: Permits,
    /// The memory that tenants share.
    pub memory: Arc<Memory>,
    /// What all tenants together may ask of the management API.
    pub management_budget: Arc<SharedBudget>,
    /// The time of day.
    pub clock: Clock,
    /// Where everything is counted.
    pub metrics: Metrics,
    /// What is done with an engaged cluster.
    pub serve: ServeFunction,
    /// What keeps a WorkerCluster's status.
    pub report: ReportFunction,
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Shared")
    }
}

/// What is done with an engaged cluster; returns once `cancel` is set, or when it cannot go on.
pub type ServeFunction = Arc<dyn Fn(Engagement) -> BoxFuture<'static, ()> + Send + Sync>;

/// What keeps a WorkerCluster's status; returns after the last write, once `cancel` is set.
pub type ReportFunction = Arc<dyn Fn(Reporting) -> BoxFuture<'static, ()> + Send + Sync>;

/// What keeping a WorkerCluster's status needs.
#[derive(Clone)]
pub struct Reporting {
    /// The registered cluster.
    pub registered: Arc<RegisteredCluster>,
    /// The tenant's share of the management API.
    pub management: Clients,
    /// The time of day.
    pub clock: Clock,
    /// Cancelled when the cluster's task has ended.
    pub cancel: CancellationToken,
}

/// An engaged worker cluster.
#[derive(Clone)]
pub struct Engagement {
    /// The registration.
    pub registration: RegistrationId,
    /// What all tenants share.
    pub shared: Arc<Shared>,
    /// The tenant's policy.
    pub policy: Arc<TenantPolicy>,
    /// The worker cluster's API.
    pub worker: Clients,
    /// How the worker cluster is doing.
    pub health: Arc<Health>,
    /// The budget behind `worker`.
    pub worker_budget: Arc<Budget>,
    /// The tenant's share of the management API.
    pub management: Clients,
    /// The certificate authority of the kubeconfig, in PEM.
    pub kubeconfig_ca: Arc<[u8]>,
    /// What was observed in the worker cluster; read again from time to time.
    pub cluster_info: watch::Receiver<Arc<ClusterInfo>>,
    /// Notified when the cluster info must be read again before the interval ends.
    pub facts_bell: Arc<Notify>,
    /// Rung when somebody else has written what we write in the worker cluster.
    pub foreign_write: Arc<Notify>,
    /// The WorkerCluster, as it was seen last.
    pub worker_cluster: watch::Receiver<Option<Arc<WorkerCluster>>>,
    /// What is known of the tenant.
    pub tenant_status: Arc<TenantStatus>,
    /// Who served the cluster before.
    pub predecessor: Predecessor,
    /// Set when the cluster is disengaged.
    pub cancel: CancellationToken,
}

impl Engagement {
    /// The tenant.
    pub fn tenant(&self) -> TenantId {
        self.registration.tenant.clone()
    }
}

impl Shared {
    /// Creates the health of a registered cluster, of which nothing is known yet.
    pub fn health_of(&self, registered: &RegisteredCluster) -> Arc<Health> {
        let quiet_max = Patience::of(self.request_timeout).ping_interval;
        Arc::new(Health::new(
            Arc::clone(&registered.status),
            self.clock.clone(),
            (registered.id.clone(), quiet_max),
        ))
    }

    /// Who claims worker clusters for this tenant.
    pub fn claimant(&self, tenant: TenantId) -> Claimant {
        Claimant {
            management_uid: self.management_uid.clone(),
            tenant,
        }
    }
}
