//! Serves one worker cluster without a fleet: the process replaces the operating-system-manager of
//! that cluster, with its flags, CRDs and rights.

mod leader;

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use tokio::{net::TcpListener, runtime::Handle};
use tokio_util::sync::CancellationToken;

use self::leader::Leader;
use super::{
    FLEET_REQUESTS, built_in_profiles, management, process_client, process_tasks::ProcessTasks,
};
use crate::admin::{AdminState, Readiness};
use crate::api::names::KUBE_SYSTEM;
use crate::client::{
    clock::Clock,
    fence::Fence,
    transport::{self, Patience, Transport},
    watch::Scope,
};
use crate::controllers::{context::Rules, serve::Controllers};
use crate::fleet::{
    adoption::{LEASE, WORKER_LEASE},
    engagement::HomeWatches,
    single_cluster::{self, Reached},
};
use crate::plan::default_profile::DefaultProfile;
use crate::render::Limits;
use crate::render_worker::{Pool, Renderer};
use crate::settings::drop_in::{DefaultProfileInstallation, DropInSettings, LeaderElection};
use crate::telemetry::metrics::{ClusterKind, Metrics};
use crate::tenant::{
    defaults::TenantDefaults,
    id::RegistrationId,
    mode::Mode,
    policies::TenantPolicies,
    policy::{ProfileQuota, ProfileReach, RequestBudget, TenantPolicy},
};

/// The timeout of a call.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval at which the cluster info is read again.
const CLUSTER_INFO_INTERVAL: Duration = Duration::from_mins(10);
/// The lifetime of a bootstrap token, as it has always been.
const TOKEN_LIFETIME: Duration = Duration::from_hours(1);
/// No other tenants share the cluster's API here, so this limits only a storm of requests and no
/// ordinary work.
const REQUESTS: RequestBudget = RequestBudget {
    per_second: std::num::NonZeroU32::MIN.saturating_add(49),
    burst: std::num::NonZeroU32::MIN.saturating_add(99),
};

/// What the process is given.
pub struct Dependencies {
    /// Carries requests to the cluster of profiles and configs.
    pub management: Transport,
    /// Carries requests to the worker cluster, if that is another one.
    pub worker: Option<Transport>,
    /// The certificate authority of the worker cluster, in PEM.
    pub certificate_authority: Arc<[u8]>,
    /// The source of the time.
    pub clock: Clock,
    /// The sockets on which `/healthz`, `/readyz` and `/metrics` are served.
    pub pages: Vec<TcpListener>,
    /// Counts everything.
    pub metrics: Metrics,
    /// Renders templates that tenants wrote.
    pub renderer: Renderer,
}

/// Runs until cancelled.
///
/// # Errors
///
/// The process cannot start, loses its Lease, or one of its own tasks panics.
pub async fn run(settings: DropInSettings, cancel: CancellationToken) -> anyhow::Result<()> {
    let mut pages = Vec::new();
    for address in settings
        .health_addresses
        .iter()
        .chain(&settings.metrics_addresses)
    {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        tracing::info!(address = %listener.local_addr()?, "pages are served");
        pages.push(listener);
    }
    let agent = transport::user_agent(LEASE);
    let kubeconfig_source = management::kubeconfig_source(settings.kubeconfig.as_deref()).await?;
    let patience = Patience::of(REQUEST_TIMEOUT);
    let management = management::transport(&kubeconfig_source.config, agent.clone(), patience)?;
    let (worker, found) = match &settings.worker_kubeconfig {
        None => (None, kubeconfig_source.certificate_authority),
        Some(path) => {
            let kubeconfig_source = management::kubeconfig_source(Some(path)).await?;
            let worker = management::transport(&kubeconfig_source.config, agent, patience)?;
            (Some(worker), kubeconfig_source.certificate_authority)
        }
    };
    let bundle = settings.tenant.kubernetes_ca_bundle.clone();
    let Some(certificate_authority) = bundle.map(String::into_bytes).or(found) else {
        bail!("no CA certificate found");
    };
    let given = Dependencies {
        management,
        worker,
        certificate_authority: certificate_authority.into(),
        clock: Clock::system(),
        pages,
        metrics: Metrics::new(),
        renderer: Renderer::Workers(Arc::new(Pool::of_this_program())),
    };
    Box::pin(run_with(settings, given, cancel)).await
}

/// Runs until cancelled, with the dependencies that the caller provides.
///
/// # Errors
///
/// A Lease is lost, or a task of the whole process panics.
pub async fn run_with(
    settings: DropInSettings,
    mut given: Dependencies,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    let mut tasks = ProcessTasks::new(&cancel);
    for listener in std::mem::take(&mut given.pages) {
        // A process that waits to become the leader is as alive and ready as the leader.
        let state = AdminState {
            metrics: given.metrics.clone(),
            heartbeat: None,
            readiness: Readiness::waiting_for(&[]),
            refresh: Arc::new(|| {}),
            fleet: None,
        };
        tasks.serve_admin(listener, state, &Handle::current());
    }
    let mut leaders = leaders(&settings, &given);
    let acquired = tokio::select! {
        biased;
        () = cancel.cancelled() => None,
        acquired = leader::acquire_all(&mut leaders) => Some(acquired),
    };
    let Some(acquired) = acquired else {
        leader::release_all(&mut leaders).await;
        return tasks.finish().await;
    };
    acquired?;
    let [management_fence, worker_fence] = fences(&leaders);
    tasks.spawn(given.renderer.clone().stop_idle());
    let controllers = controllers(&settings, given.renderer.clone())?;
    let worker = given.worker.take();
    let worker = worker.unwrap_or_else(|| given.management.clone());
    let policy = policy(&settings);
    given.metrics.begin_class(policy.class.as_str());
    let params = single_cluster::Params {
        id: RegistrationId::new(&settings.namespace, settings.mode.name()),
        policy,
        watches: HomeWatches {
            configs: scope(&settings),
            profiles: profile_scope(&settings),
            health: None,
        },
        mode: settings.mode,
        defaults: TenantDefaults {
            settings: Arc::new(settings.tenant),
            registry_credentials: settings.registry_credentials,
            bootstrap_account: settings.bootstrap_account,
        },
        management: Reached {
            transport: given.management,
            fence: management_fence,
        },
        worker: Reached {
            transport: worker,
            fence: worker_fence,
        },
        certificate_authority: given.certificate_authority,
        request_timeout: REQUEST_TIMEOUT,
        cluster_info_interval: CLUSTER_INFO_INTERVAL,
        clock: given.clock,
        metrics: given.metrics,
        serve: Arc::new(move |engagement| {
            let controllers = controllers.clone();
            Box::pin(async move { controllers.serve(engagement).await })
        }),
    };
    let serving = Box::pin(single_cluster::run(params, cancel));
    lead(serving, &mut leaders, tasks).await
}

/// Serves as long as every Lease is held, and releases the Leases after the last write.
async fn lead(
    serving: impl Future<Output = ()>,
    leaders: &mut [Leader],
    mut tasks: ProcessTasks,
) -> anyhow::Result<()> {
    tokio::select! {
        biased;
        panicked = tasks.panicked() => return Err(panicked),
        () = serving => {}
        lost = leader::keep_all(leaders) => return Err(lost.into()),
    }
    leader::release_all(leaders).await;
    tasks.finish().await
}

/// Returns the leader elections that must be won before anything is written.
fn leaders(settings: &DropInSettings, given: &Dependencies) -> Vec<Leader> {
    if settings.leader_election == LeaderElection::None {
        return Vec::new();
    }
    let leader = |transport: &Transport, kind, (namespace, name)| {
        let client = process_client(
            transport,
            (FLEET_REQUESTS, REQUEST_TIMEOUT),
            (kind, &given.metrics),
        );
        Leader::new(&client, (namespace, name), &given.clock)
    };
    let place = (settings.namespace.as_str(), LEASE);
    let mut leaders = vec![leader(&given.management, ClusterKind::Management, place)];
    if let Some(worker) = &given.worker {
        leaders.push(leader(
            worker,
            ClusterKind::Worker,
            (KUBE_SYSTEM, WORKER_LEASE),
        ));
    }
    leaders
}

/// Returns the fences for writes to each cluster. With one cluster, both are the same.
fn fences(leaders: &[Leader]) -> [Option<Fence>; 2] {
    let first = leaders.first().map(Leader::fence);
    let last = leaders.last().map(Leader::fence);
    [first, last]
}

/// Returns the policy of the cluster. There are no other tenants, so only the machine limits it.
fn policy(settings: &DropInSettings) -> Arc<TenantPolicy> {
    Arc::new(TenantPolicy {
        worker_requests: REQUESTS,
        management_requests: REQUESTS,
        reconciles_max: settings.reconciles_max,
        resyncs_max: settings.reconciles_max,
        machine_deployments_max: usize::MAX,
        profile_reach: profile_reach(settings.mode),
        profiles: ProfileQuota {
            count_max: usize::MAX,
            bytes_max: usize::MAX,
        },
        ..TenantPolicy::default()
    })
}

/// Returns which profiles may be used. A machine deployment may specify a profile's namespace;
/// beside a worker cluster there is only one.
fn profile_reach(mode: Mode) -> ProfileReach {
    match mode {
        Mode::SingleCluster => ProfileReach::Everywhere,
        Mode::Fleet | Mode::OneWorker => ProfileReach::Listed,
    }
}

fn controllers(settings: &DropInSettings, renderer: Renderer) -> anyhow::Result<Controllers> {
    let defaults: Arc<[DefaultProfile]> = match settings.default_profiles {
        DefaultProfileInstallation::Disabled => Arc::default(),
        DefaultProfileInstallation::Kept => built_in_profiles()?,
    };
    let policies = TenantPolicies {
        rules: Vec::new(),
        default: policy(settings),
    };
    let rules = Rules {
        token_lifetime: TOKEN_LIFETIME,
        // There is no status that could show the condition.
        join_check: false,
        limits: Limits::default(),
        renderer,
    };
    let policies = (Arc::new(policies), Arc::default());
    let scope = profile_scope(settings);
    Ok(Controllers::new(&scope, defaults, policies, rules))
}

fn scope(settings: &DropInSettings) -> Scope {
    Scope::Namespaces(vec![settings.namespace.clone()])
}

fn profile_scope(settings: &DropInSettings) -> Scope {
    match profile_reach(settings.mode) {
        ProfileReach::Everywhere => Scope::All,
        ProfileReach::Listed => scope(settings),
    }
}
