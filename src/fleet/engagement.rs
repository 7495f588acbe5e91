//! An engaged worker cluster, with everything that the app's function needs to serve it.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource};
use tokio::sync::{Notify, OnceCell, watch};
use tokio_util::sync::CancellationToken;

use super::{
    adoption::Predecessor,
    claim::Claimant,
    registry::{RegisteredCluster, Registry},
    worker_clusters::WorkerClusters,
};
use crate::api::{
    names::KUBE_SYSTEM,
    worker_cluster::{FleetId, WorkerCluster},
};
use crate::client::{
    clock::Clock,
    connect::{Clients, Connector},
    health::Health,
    memory::Memory,
    permits::Permits,
    rate_limit::{Budget, SharedBudget},
    tenant_status::TenantStatus,
    token::Tokens,
    transport::{Patience, Transport},
    watch::Scope,
};
use crate::telemetry::metrics::Metrics;
use crate::tenant::{
    cluster_info::ClusterInfo,
    defaults::TenantDefaults,
    id::{RegistrationId, TenantId},
    mode::Mode,
    policies::TenantPolicies,
    policy::TenantPolicy,
};

/// The state that all tenants of the fleet share.
pub struct Shared {
    /// The fleet.
    pub fleet: FleetId,
    /// How long a fleet that serves a tenant may take to answer another one that asks for it. One
    /// that has lost its Leases has ended by then.
    pub handover_timeout: Duration,
    /// The registry.
    pub registry: Arc<Registry>,
    /// The WorkerClusters.
    pub worker_clusters: WorkerClusters,
    /// Carries requests to the management cluster.
    pub management: Transport,
    /// What identifies the management cluster.
    pub management_uid: ManagementUid,
    /// The uids of management clusters that no longer exist, whose claims are taken over.
    pub former_management_clusters: Vec<String>,
    /// Creates transports to worker clusters.
    pub connector: Connector,
    /// The policies of tenants.
    pub policies: Arc<TenantPolicies>,
    /// The defaults of registered tenants.
    pub defaults: TenantDefaults,
    /// The timeout of a call.
    pub request_timeout: Duration,
    /// The interval at which the cluster info is read again.
    pub cluster_info_interval: Duration,
    /// What the process knows of tokens.
    pub tokens: Tokens,
    /// Permits for reconciles, for all tenants together.
    pub permits: Permits,
    /// The memory that tenants share.
    pub memory: Arc<Memory>,
    /// The budget of requests to the management API, for all tenants together.
    pub management_budget: Arc<SharedBudget>,
    /// The source of the time.
    pub clock: Clock,
    /// Counts everything.
    pub metrics: Metrics,
    /// Serves an engaged cluster.
    pub serve: ServeFunction,
    /// Keeps a WorkerCluster's status current.
    pub report: ReportFunction,
}

/// What identifies the management cluster.
#[derive(Debug)]
pub struct ManagementUid {
    /// The uid of its namespace `kube-system`.
    pub of_namespace: String,
    /// What identifies it beside worker clusters that are homes, once it was read.
    pub as_home: OnceCell<String>,
}

impl From<String> for ManagementUid {
    fn from(of_namespace: String) -> Self {
        Self {
            of_namespace,
            as_home: OnceCell::new(),
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Shared")
    }
}

/// Serves an engaged cluster. Returns once `cancel` is cancelled, or when it cannot continue.
pub type ServeFunction = Arc<dyn Fn(Engagement) -> BoxFuture<'static, ()> + Send + Sync>;

/// Keeps a WorkerCluster's status current. Returns after the last write, once `cancel` is
/// cancelled.
pub type ReportFunction = Arc<dyn Fn(Reporting) -> BoxFuture<'static, ()> + Send + Sync>;

/// The arguments of a [`ReportFunction`].
#[derive(Clone)]
pub struct Reporting {
    /// The registered cluster.
    pub registered: Arc<RegisteredCluster>,
    /// The tenant's share of the management API.
    pub management: Clients,
    /// The source of the time.
    pub clock: Clock,
    /// Cancelled when the cluster's task has ended.
    pub cancel: CancellationToken,
}

/// Where a tenant's profiles and configs are: one namespace of one cluster.
#[derive(Clone)]
pub struct Home {
    /// The API of that cluster.
    pub clients: Clients,
    /// The namespace.
    pub namespace: Arc<str>,
    /// The watches of this tenant alone; `None` if those of the whole process see its home.
    pub watches: Option<HomeWatches>,
}

/// What the watches in a home see.
#[derive(Clone, Debug)]
pub struct HomeWatches {
    /// The namespaces of configs.
    pub configs: Scope,
    /// The namespaces of profiles.
    pub profiles: Scope,
    /// The health of the cluster, if it is the worker cluster.
    pub health: Option<Arc<Health>>,
}

impl HomeWatches {
    /// Returns those of the whole process, in the management cluster.
    pub fn in_management(scope: &Scope) -> Self {
        Self {
            configs: scope.clone(),
            profiles: scope.clone(),
            health: None,
        }
    }
}

impl Home {
    /// Returns a tenant's namespace in the management cluster.
    pub fn in_management(clients: &Clients, tenant: &TenantId) -> Self {
        Self {
            clients: clients.clone(),
            namespace: tenant.namespace().into(),
            watches: None,
        }
    }

    /// Returns the API of a kind in this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.clients.client(), &self.namespace)
    }
}

/// An engaged worker cluster.
#[derive(Clone)]
pub struct Engagement {
    /// The registration.
    pub registration: RegistrationId,
    /// The state that all tenants share.
    pub shared: Arc<Shared>,
    /// The tenant's policy.
    pub policy: Arc<TenantPolicy>,
    /// The worker cluster's API.
    pub worker: Clients,
    /// The health of the worker cluster.
    pub health: Arc<Health>,
    /// The budget behind `worker`.
    pub worker_budget: Arc<Budget>,
    /// The tenant's share of the management API.
    pub management: Clients,
    /// Where the tenant's profiles and configs are.
    pub home: Home,
    /// The mode, which decides what we may do in these clusters.
    pub mode: Mode,
    /// The tenant's defaults.
    pub defaults: TenantDefaults,
    /// The certificate authority of the kubeconfig, in PEM.
    pub kubeconfig_ca: Arc<[u8]>,
    /// The cluster info. It is read again from time to time.
    pub cluster_info: watch::Receiver<Arc<ClusterInfo>>,
    /// Notified when the cluster info must be read again before the interval ends.
    pub cluster_info_notify: Arc<Notify>,
    /// Notified when another program wrote an object in the worker cluster that we write.
    pub foreign_write: Arc<Notify>,
    /// The last known WorkerCluster.
    pub worker_cluster: watch::Receiver<Option<Arc<WorkerCluster>>>,
    /// The tenant's status.
    pub tenant_status: Arc<TenantStatus>,
    /// Where the previous manager keeps its objects.
    pub predecessor: Predecessor,
    /// Cancelled when the cluster is disengaged.
    pub cancel: CancellationToken,
}

impl Engagement {
    /// Returns the engagement of a worker cluster that is its tenant's home. What is there is as
    /// the program that osm replaces would have it.
    #[must_use]
    pub fn with_home_in_worker(self) -> Self {
        let watches = HomeWatches {
            configs: Scope::Namespaces(vec![KUBE_SYSTEM.to_owned()]),
            profiles: Scope::All,
            health: Some(Arc::clone(&self.health)),
        };
        Self {
            home: Home {
                clients: self.worker.clone(),
                namespace: KUBE_SYSTEM.into(),
                watches: Some(watches),
            },
            mode: Mode::SingleCluster,
            defaults: TenantDefaults {
                settings: Arc::new(self.defaults.settings.with_home_in_worker()),
                ..self.defaults
            },
            policy: Arc::new(self.policy.with_home_in_worker()),
            ..self
        }
    }

    /// Returns the tenant.
    pub fn tenant(&self) -> TenantId {
        self.registration.tenant.clone()
    }
}

impl Shared {
    /// Creates the health of a registered cluster. It is unknown at first.
    pub fn health_of(&self, registered: &RegisteredCluster) -> Arc<Health> {
        let quiet_max = Patience::of(self.request_timeout).ping_interval;
        Arc::new(Health::new(
            Arc::clone(&registered.status),
            self.clock.clone(),
            (registered.id.clone(), quiet_max),
        ))
    }

    /// Returns the claimant of worker clusters for this tenant.
    pub fn claimant(&self, tenant: TenantId) -> Claimant {
        Claimant {
            management_uid: self.management_uid.of_namespace.clone(),
            tenant,
        }
    }
}
