//! Serves one worker cluster that is not registered: the process was started for it. It is served
//! like any other, but without a claim, a WorkerCluster, or the prerequisites that a fleet creates.
//! The operator who started the process has created them. Conditions are written to the log.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::FusedFuture};
use kube::Client;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    adoption::Predecessor,
    cluster_info::{self, InUse},
    engage::{Reading, not_prepared},
    engagement::{Engagement, Home, HomeWatches, ServeFunction, Shared},
    registry::Registry,
    worker_clusters,
};
use crate::api::worker_cluster::FleetId;
use crate::client::{
    clock::Clock,
    connect::{ClientParts, Clients},
    fence::Fence,
    health::Health,
    memory::Memory,
    permits::Permits,
    rate_limit::{Budget, SharedBudget},
    retry_delay::RetryDelay,
    tenant_status::{ConditionLog, TenantStatus},
    token::Tokens,
    transport::{Patience, Transport},
    watch::Scope,
};
use crate::telemetry::metrics::{ClusterKind, Metrics};
use crate::tenant::{
    cluster_info::ClusterInfo, defaults::TenantDefaults, id::RegistrationId, inventory::Inventory,
    mode::Mode, policies::TenantPolicies, policy::TenantPolicy,
};

/// How long running reconciles may take to end: one request timeout and a render.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// A connection to one cluster.
pub struct Reached {
    /// Carries the requests.
    pub transport: Transport,
    /// Checks every write if there may be other processes; otherwise `None`.
    pub fence: Option<Fence>,
}

/// The arguments of [`run`].
pub struct Params {
    /// The namespace of profiles and configs, and a name for the log.
    pub id: RegistrationId,
    /// The cluster's policy.
    pub policy: Arc<TenantPolicy>,
    /// The mode.
    pub mode: Mode,
    /// What the flags say, since there is no WorkerCluster.
    pub defaults: TenantDefaults,
    /// The cluster of profiles and configs.
    pub management: Reached,
    /// What is watched there.
    pub watches: HomeWatches,
    /// The cluster of machine deployments and Secrets. It may be the same.
    pub worker: Reached,
    /// The certificate authority of the worker cluster, in PEM.
    pub certificate_authority: Arc<[u8]>,
    /// The timeout of a call.
    pub request_timeout: Duration,
    /// The interval at which the cluster info is read again.
    pub cluster_info_interval: Duration,
    /// The source of the time.
    pub clock: Clock,
    /// Counts everything.
    pub metrics: Metrics,
    /// Serves the cluster.
    pub serve: ServeFunction,
}

/// Serves the cluster until it is cancelled.
pub async fn run(params: Params, cancel: CancellationToken) {
    let tenant_status = Arc::<TenantStatus>::default();
    let registration = params.id.clone();
    let single_cluster = SingleCluster::new(params, &tenant_status);
    tokio::select! {
        biased;
        () = single_cluster.run(&cancel) => {}
        never = log_conditions(&registration, &tenant_status) => match never {},
    }
}

struct SingleCluster {
    shared: Arc<Shared>,
    management: Clients,
    worker: Clients,
    worker_budget: Arc<Budget>,
    health: Arc<Health>,
    tenant_status: Arc<TenantStatus>,
    policy: Arc<TenantPolicy>,
    certificate_authority: Arc<[u8]>,
    id: RegistrationId,
    watches: HomeWatches,
    mode: Mode,
}

impl SingleCluster {
    fn new(params: Params, tenant_status: &Arc<TenantStatus>) -> Self {
        let health = Arc::new(Health::new(
            Arc::clone(tenant_status),
            params.clock.clone(),
            (
                params.id.clone(),
                Patience::of(params.request_timeout).ping_interval,
            ),
        ));
        let worker_budget = Arc::new(Budget::new(params.policy.worker_requests));
        let management = Clients::new(ClientParts {
            transport: params.management.transport.clone(),
            budget: Arc::new(Budget::new(params.policy.management_requests)),
            share: None,
            timeout: params.request_timeout,
            health: None,
            fence: params.management.fence.clone(),
            memory: None,
            kind: ClusterKind::Management,
            metrics: params.metrics.clone(),
        });
        let worker = Clients::new(ClientParts {
            transport: params.worker.transport.clone(),
            budget: Arc::clone(&worker_budget),
            share: None,
            timeout: params.request_timeout,
            health: Some(Arc::clone(&health)),
            fence: params.worker.fence.clone(),
            memory: None,
            kind: ClusterKind::Worker,
            metrics: params.metrics.clone(),
        });
        Self {
            policy: Arc::clone(&params.policy),
            certificate_authority: Arc::clone(&params.certificate_authority),
            id: params.id.clone(),
            watches: params.watches.clone(),
            mode: params.mode,
            shared: Arc::new(shared(params, &management.client())),
            management,
            worker,
            worker_budget,
            health,
            tenant_status: Arc::clone(tenant_status),
        }
    }

    async fn run(&self, cancel: &CancellationToken) {
        let mut again = RetryDelay::default();
        while !cancel.is_cancelled() {
            let cluster_info = tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                cluster_info = self.first_cluster_info() => cluster_info,
            };
            let begun = Instant::now();
            self.serve(cluster_info, cancel).await;
            // The cause that ended this engagement may end the next one as quickly.
            let _ = timeout(again.after(begun.elapsed()), cancel.cancelled()).await;
        }
    }

    async fn first_cluster_info(&self) -> ClusterInfo {
        let mut delay = RetryDelay::default();
        let authority = &self.certificate_authority;
        loop {
            match cluster_info::read(&self.worker.client(), authority, InUse::default()).await {
                Ok(cluster_info) => return cluster_info,
                Err(error) => {
                    not_prepared(&error).report_to(&self.tenant_status);
                }
            }
            tokio::time::sleep(delay.next().unwrap_or_default()).await;
            self.health.due().await;
        }
    }

    /// Serves until cancelled, or until the cluster info or the fetcher's token is gone.
    async fn serve(&self, cluster_info: ClusterInfo, cancel: &CancellationToken) {
        let leave = cancel.child_token();
        let (sender, cluster_info) = watch::channel(Arc::new(cluster_info));
        let notify = Arc::new(Notify::new());
        // There is no WorkerCluster, and none will be created.
        let nobody = watch::Sender::new(None);
        let engagement = Engagement {
            registration: self.id.clone(),
            shared: Arc::clone(&self.shared),
            policy: Arc::clone(&self.policy),
            worker: self.worker.clone(),
            health: Arc::clone(&self.health),
            worker_budget: Arc::clone(&self.worker_budget),
            management: self.management.clone(),
            home: Home {
                clients: self.management.clone(),
                namespace: self.id.tenant.namespace().into(),
                watches: Some(self.watches.clone()),
            },
            mode: self.mode,
            defaults: self.shared.defaults.clone(),
            kubeconfig_ca: Arc::clone(&self.certificate_authority),
            cluster_info,
            cluster_info_notify: Arc::clone(&notify),
            // There is no other manager to look for.
            foreign_write: Arc::default(),
            worker_cluster: nobody.subscribe(),
            tenant_status: Arc::clone(&self.tenant_status),
            predecessor: Predecessor::None,
            cancel: leave.clone(),
        };
        let reading = Reading {
            registration: &self.id,
            worker: &self.worker,
            kubeconfig_ca: &self.certificate_authority,
            interval: self.shared.cluster_info_interval,
            claimant: None,
            tenant_status: &self.tenant_status,
        };
        tracing::info!(registration = %self.id, "serving begins");
        let serving = (self.shared.serve)(engagement).fuse();
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => {}
            () = reading.keep(&sender, &notify) => {}
            () = self.keep_probing() => {}
            () = leave.cancelled() => {}
        }
        leave.cancel();
        if !serving.is_terminated() && timeout(END_TIMEOUT, serving).await.is_err() {
            tracing::warn!(registration = %self.id, "a reconcile was cut short");
        }
    }

    /// Reads the version, which every client may read, whenever the cluster is in doubt and the
    /// delay of the open circuit is over. All other calls wait until the cluster is healthy.
    async fn keep_probing(&self) {
        loop {
            self.health.in_doubt().await;
            self.health.due().await;
            // The client observes the outcome.
            drop(self.worker.client().apiserver_version().await);
        }
    }
}

/// Creates the state that a fleet would share, for a fleet of one.
fn shared(params: Params, management: &Client) -> Shared {
    let registry = Arc::new(Registry::new(&[Inventory::Label].into()));
    let nowhere = Scope::Namespaces(Vec::new());
    let (worker_clusters, _nothing_to_follow) =
        worker_clusters::follow(management, &nowhere, &registry);
    let policies = TenantPolicies {
        rules: Vec::new(),
        default: Arc::clone(&params.policy),
    };
    Shared {
        fleet: FleetId::default(),
        handover_timeout: Duration::ZERO,
        registry,
        worker_clusters,
        management: params.management.transport,
        management_uid: String::new().into(),
        former_management_clusters: Vec::new(),
        connector: Arc::new(|_, _| Err("nothing is registered".into())),
        policies: Arc::new(policies),
        defaults: params.defaults,
        request_timeout: params.request_timeout,
        tokens: Tokens::new(Duration::MAX),
        cluster_info_interval: params.cluster_info_interval,
        permits: Permits::new(params.policy.reconciles_max),
        memory: Arc::new(Memory::unlimited()),
        management_budget: Arc::new(SharedBudget::new(params.policy.management_requests)),
        clock: params.clock,
        metrics: params.metrics,
        serve: params.serve,
        report: Arc::new(|_| Box::pin(async {})),
    }
}

/// Logs conditions whenever they change, because there is no status that could show them.
async fn log_conditions(
    registration: &RegistrationId,
    tenant_status: &TenantStatus,
) -> std::convert::Infallible {
    let mut log = ConditionLog::default();
    loop {
        tenant_status.changed().await;
        tenant_status.read(|report| log.record(registration, &report.findings));
    }
}
