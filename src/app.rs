//! The composition root: creates the management client, starts the watches of the whole fleet, and
//! passes the fleet the function that serves each cluster.

mod container;
mod dedicated_runtime;
mod fleet_page;
mod gates;
pub(crate) mod management;
mod process_tasks;
pub mod single;
pub mod webhook;

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt, runtime::watcher};
use tokio::{net::TcpListener, runtime::Handle};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use self::{
    dedicated_runtime::DedicatedRuntime,
    process_tasks::{ProcessTasks, a_task_panicked},
};
use crate::admin::{AdminState, Gate, Readiness};
use crate::api::{names::KUBE_SYSTEM, profile::OperatingSystemProfile};
use crate::client::{
    clock::Clock,
    connect::{self, ClientParts, Connector},
    fence::Fence,
    memory::Memory,
    permits::Permits,
    rate_limit::SharedBudget,
    recurring::Recurring,
    retry_delay::RetryDelay,
    token::Tokens,
    transport::{self, Audience, Caller, Patience, Transport},
    watch::Scope,
};
use crate::controllers::{
    context::Rules, profile_store::content_digest, rollout::Tenants, serve::Controllers,
    worker_cluster,
};
use crate::fleet::{
    self, Source, Sources,
    engagement::{ServeFunction, Shared},
    fleet_summary,
    registry::Registry,
    sharding::{
        Holder,
        lease::Leases,
        membership::{self, Membership, Placement, Terms},
    },
    worker_clusters,
};
use crate::plan::default_profile::DefaultProfile;
use crate::render::{Limits, default_profiles::default_profiles};
use crate::render_worker::{Pool, Renderer};
use crate::settings::{Settings, drop_in::deployed::spec_of};
use crate::telemetry::{
    chain::chain,
    heartbeat::Heartbeat,
    metrics::{ClusterKind, Component, Metrics},
};
use crate::tenant::{inventory::Inventory, policy::RequestBudget};

/// What the process is given. Tests use in-memory clusters and their own clock.
pub struct Dependencies {
    /// Carries requests to the management cluster.
    pub management: Transport,
    /// Carries requests for the replica's own Lease, on a separate connection: no list or watch
    /// delays a renewal.
    pub leases: Transport,
    /// Creates transports to worker clusters.
    pub connector: Connector,
    /// The source of the time.
    pub clock: Clock,
    /// The default profiles: [`built_in_profiles`], or a test's own.
    pub default_profiles: Arc<[DefaultProfile]>,
    /// The socket of the admin port; `None` in tests without one.
    pub admin: Option<TcpListener>,
    /// The runtime of the admin port and the Lease, so that nothing delays them: a separate thread,
    /// or the only one in tests that control the clock.
    pub runtime: Handle,
    /// Counts everything.
    pub metrics: Metrics,
    /// Renders templates that tenants wrote.
    pub renderer: Renderer,
    /// The memory that tenants share.
    pub memory: Arc<Memory>,
}

/// The dependencies that need no cluster.
#[derive(Debug)]
pub struct LocalDependencies {
    /// The socket of the admin port.
    pub admin: TcpListener,
    /// Counts everything.
    pub metrics: Metrics,
    /// Renders templates that tenants wrote.
    pub renderer: Renderer,
}

/// The budget of the watches of the whole fleet: four watches, and their pages.
pub(crate) const FLEET_REQUESTS: RequestBudget = RequestBudget {
    per_second: std::num::NonZeroU32::MIN.saturating_add(99),
    burst: std::num::NonZeroU32::MIN.saturating_add(199),
};

/// The budget of reads of user clusters, two for each change: as many as all tenants have, and a
/// burst for a thousand that change at once.
const INVENTORY_REQUESTS: RequestBudget = RequestBudget {
    per_second: std::num::NonZeroU32::MIN.saturating_add(499),
    burst: std::num::NonZeroU32::MIN.saturating_add(1_999),
};

/// Runs the manager until cancelled.
///
/// # Errors
///
/// The process cannot start, loses its Lease, or one of its own tasks panics.
pub async fn run(settings: Settings, cancel: CancellationToken) -> anyhow::Result<()> {
    let address = settings.admin_address;
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on --admin-address {address}"))?;
    tracing::info!(address = %listener.local_addr()?, "the admin port listens");
    let local = LocalDependencies {
        admin: listener,
        metrics: Metrics::of(Component::Manager, Some(&settings.replica.fleet)),
        renderer: Renderer::Workers(Arc::new(Pool::of_this_program())),
    };
    run_on(settings, local, cancel).await
}

/// Does the same as [`run`], with dependencies that the caller provides.
///
/// # Errors
///
/// As for [`run`].
pub async fn run_on(
    settings: Settings,
    local: LocalDependencies,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    let config = management::config(settings.kubeconfig.as_deref()).await?;
    // A kubeconfig of a tenant that leads to the management cluster would turn it into a tenant.
    let mut settings = settings;
    let server = config.cluster_url.authority();
    if let Some(server) = server.and_then(|server| server.as_str().parse().ok()) {
        Arc::make_mut(&mut settings.policies).deny_server(&server);
    }
    let agent = transport::user_agent(&settings.replica.instance);
    let patience = Patience::of(settings.request_timeout);
    let caller = Caller {
        user_agent: agent.clone(),
        audience: Audience::Tenant,
        metrics: local.metrics.clone(),
    };
    let dedicated_runtime = DedicatedRuntime::start().context("cannot start a thread")?;
    let given = Dependencies {
        management: management::transport(&config, agent.clone(), patience)?,
        leases: management::transport(&config, agent, patience)?,
        connector: Arc::new(move |access, rules| {
            transport::connect(access, rules, &caller, patience)
        }),
        clock: Clock::system(),
        default_profiles: built_in_profiles()?,
        admin: Some(local.admin),
        runtime: dedicated_runtime.handle().clone(),
        metrics: local.metrics,
        renderer: local.renderer,
        memory: Arc::new(memory(&settings)),
    };
    Box::pin(run_with(settings, given, cancel)).await
}

/// Returns the memory that tenants share; unlimited if neither a flag nor a cgroup sets a limit.
fn memory(settings: &Settings) -> Memory {
    let limit = settings.memory_limit.or_else(container::memory_limit);
    let Some(limit) = limit else {
        return Memory::unlimited();
    };
    let memory = Memory::within(limit, Pool::BYTES_MAX);
    tracing::info!(
        limit,
        shared = memory.limit(),
        "tenants share memory beyond their guaranteed part"
    );
    memory
}

/// Runs the manager until cancelled, with the dependencies that the caller provides.
///
/// # Errors
///
/// The Lease is lost, or a task of the whole process panics.
pub async fn run_with(
    settings: Settings,
    given: Dependencies,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    let mut tasks = ProcessTasks::new(&cancel);
    let registry = Arc::new(Registry::new(&settings.inventories));
    let heartbeat = Heartbeat::default();
    tasks.spawn(heartbeat.clone().beat());
    let (membership, placement) = membership(&settings, &given, &heartbeat);
    let client = fleet_client((&settings, &given), FLEET_REQUESTS);
    let sources = sources(&settings, &given);
    let readiness = Readiness::waiting_for(&[Gate::ManagementWatches, Gate::Membership]);
    if let Some(listener) = given.admin {
        let known = (&registry, &placement.shards, &given.clock);
        let state = AdminState {
            metrics: given.metrics.clone(),
            heartbeat: Some(heartbeat),
            readiness: readiness.clone(),
            refresh: metrics_update(&registry, &given.memory, &given.metrics),
            fleet: fleet_page::of(&settings, &listener, known),
        };
        tasks.serve_admin(listener, state, &given.runtime);
    }
    let Some(management_uid) = management_uid(&client, &cancel).await else {
        return tasks.finish().await;
    };
    let scope = scope(&settings);
    tasks.spawn(given.renderer.clone().stop_idle());
    let own = (given.default_profiles, given.renderer);
    let place = (client.clone(), settings.replica.lease_namespace.as_str());
    let controllers = controllers(&settings, &scope, own, &given.memory).with_contents_in(place);
    let (worker_clusters, follow) = worker_clusters::follow(&client, &scope, &registry);
    tasks.spawn(follow);
    tasks.watch_management(&client, &scope, &controllers);
    let listed = (&controllers, &worker_clusters);
    tasks.spawn(gates::open_watches(&readiness, listed, (&registry, &scope)));
    tasks.spawn(gates::open_membership(readiness, placement.shards.clone()));
    let defaults = Arc::new(settings.tenant_defaults);
    let tenants = Tenants::new(&registry, &scope, &defaults);
    tasks.pace(&controllers, tenants, (settings.rollout, &given.metrics));
    let shared = Arc::new(Shared {
        fleet: settings.replica.fleet_id(),
        handover_timeout: settings.replica.lease_duration * 2,
        registry,
        worker_clusters,
        management: given.management,
        management_uid: management_uid.into(),
        former_management_clusters: settings.former_management_clusters,
        connector: given.connector,
        policies: settings.policies,
        defaults: defaults.into(),
        request_timeout: settings.request_timeout,
        cluster_info_interval: settings.cluster_info_interval,
        tokens: Tokens::new(settings.token_renewal_age),
        permits: Permits::new(settings.reconciles_max),
        memory: given.memory,
        management_budget: Arc::new(SharedBudget::new(settings.management_requests)),
        clock: given.clock,
        metrics: given.metrics,
        serve: serve_with(controllers),
        report: Arc::new(|reporting| Box::pin(worker_cluster::report(reporting))),
    });
    let fleet = fleet::run(fleet::Params {
        shared,
        placement,
        management: client,
        scope,
        sources,
        cancel,
    });
    serve(fleet, (membership, &given.runtime), tasks).await
}

/// Returns the inventories, with what it takes to find their registrations.
fn sources(settings: &Settings, given: &Dependencies) -> Sources {
    let secrets = |inventory: &Inventory, label_selector, field_selector| Source::Secrets {
        inventory: inventory.clone(),
        selected: watcher::Config {
            label_selector,
            field_selector,
            ..watcher::Config::default()
        },
    };
    let source = |inventory: &Inventory| match inventory {
        Inventory::Label => {
            let selector = settings.registration_selector.clone();
            secrets(inventory, Some(selector), None)
        }
        Inventory::Rule(rule) => {
            let labels = rule.label_selector.clone();
            secrets(inventory, labels, rule.field_selector())
        }
        Inventory::Kkp => Source::Kkp {
            reads: fleet_client((settings, given), INVENTORY_REQUESTS),
            read: Arc::new(spec_of),
        },
    };
    Sources {
        inventories: settings.inventories.iter().map(source).collect(),
        except: settings.except_namespaces.clone(),
    }
}

fn serve_with(controllers: Controllers) -> ServeFunction {
    Arc::new(move |engagement| {
        let controllers = controllers.clone();
        Box::pin(async move { controllers.serve(engagement).await })
    })
}

/// Runs the fleet while this replica is a member. The Lease is released after the fleet's last
/// write. If the Lease is lost, the fleet ends at once, with an error.
async fn serve(
    fleet: impl Future<Output = ()>,
    (membership, runtime): (Membership, &Handle),
    mut tasks: ProcessTasks,
) -> anyhow::Result<()> {
    let leave = CancellationToken::new();
    let left = leave.clone();
    let kept = runtime.spawn(async move { membership.run(&left).await });
    let kept = AbortOnDropHandle::new(kept);
    let kept = async { anyhow::Ok(kept.await.map_err(|_| a_task_panicked())??) };
    let work = async {
        fleet.await;
        leave.cancel();
        Ok(())
    };
    tokio::select! {
        ended = async { tokio::try_join!(work, kept) } => {
            ended?;
            tasks.finish().await
        }
        panicked = tasks.panicked() => Err(panicked),
    }
}

/// Creates a client of the management cluster for the whole fleet.
fn fleet_client((settings, given): (&Settings, &Dependencies), budget: RequestBudget) -> Client {
    let counted = (ClusterKind::Management, &given.metrics);
    let budget = (budget, settings.request_timeout);
    process_client(&given.management, budget, counted)
}

/// Creates a client for the whole process, without a tenant's queue and without a fence.
fn process_client(
    transport: &Transport,
    (budget, timeout): (RequestBudget, Duration),
    (kind, metrics): (ClusterKind, &Metrics),
) -> Client {
    let counted = (kind, metrics.clone());
    let transport = transport.clone();
    connect::client(ClientParts::new(transport, budget, timeout, counted))
}

/// Creates the replica's membership. Its Lease has its own client and connection.
fn membership(
    settings: &Settings,
    given: &Dependencies,
    heartbeat: &Heartbeat,
) -> (Membership, Placement) {
    // The client spawns its task on the current runtime.
    let _entered = given.runtime.enter();
    let replica = &settings.replica;
    let me = Holder {
        instance: replica.instance.clone(),
        incarnation: format!("{:08x}", rand::random::<u32>()),
    };
    let terms = Terms {
        duration: replica.lease_duration,
        margin: settings.request_timeout,
    };
    let counted = (ClusterKind::Management, &given.metrics);
    let budget = (FLEET_REQUESTS, terms.call_timeout());
    let client = process_client(&given.leases, budget, counted);
    let place = (client, replica.lease_namespace.as_str());
    let holder = (me.clone(), terms.duration);
    let leases = Leases::new(place, &replica.fleet, holder, replica.published.text());
    Membership::new(membership::Params {
        leases,
        me,
        terms,
        clock: given.clock.clone(),
        fence: Fence::closed(given.clock.clone(), terms.margin),
        metrics: given.metrics.clone(),
        heartbeat: heartbeat.clone(),
    })
}

fn metrics_update(
    registry: &Arc<Registry>,
    memory: &Arc<Memory>,
    metrics: &Metrics,
) -> Arc<dyn Fn() + Send + Sync> {
    let (registry, metrics) = (Arc::clone(registry), metrics.clone());
    let memory = Arc::clone(memory);
    let runtime = Handle::current();
    Arc::new(move || {
        metrics.set_tasks(runtime.metrics().num_alive_tasks());
        metrics.set_memory(memory.reserved(), memory.limit());
        fleet_summary::update_metrics(&registry, &metrics);
    })
}

/// Returns the namespaces of tenants, and those from which tenants may use shared profiles.
fn scope(settings: &Settings) -> Scope {
    if settings.namespaces.is_empty() {
        return Scope::All;
    }
    let shared = settings.policies.profile_namespaces();
    let all: BTreeSet<String> = settings.namespaces.iter().cloned().chain(shared).collect();
    Scope::Namespaces(all.into_iter().collect())
}

fn controllers(
    settings: &Settings,
    scope: &Scope,
    (defaults, renderer): (Arc<[DefaultProfile]>, Renderer),
    memory: &Arc<Memory>,
) -> Controllers {
    let policies = (Arc::clone(&settings.policies), Arc::clone(memory));
    let rules = Rules {
        token_lifetime: settings.token_lifetime,
        join_check: settings.join_check,
        limits: Limits::default(),
        renderer,
    };
    Controllers::new(scope, defaults, policies, rules)
}

/// Returns the default profiles that we ship, parsed once per process.
///
/// # Errors
///
/// A shipped profile cannot be parsed, which a test rules out.
pub fn built_in_profiles() -> anyhow::Result<Arc<[DefaultProfile]>> {
    static PARSED: OnceLock<Arc<[DefaultProfile]>> = OnceLock::new();
    if let Some(parsed) = PARSED.get() {
        return Ok(Arc::clone(parsed));
    }
    let parsed = parse_default_profiles()?;
    Ok(Arc::clone(PARSED.get_or_init(|| parsed)))
}

fn parse_default_profiles() -> anyhow::Result<Arc<[DefaultProfile]>> {
    default_profiles()
        .iter()
        .map(|default| {
            let profile: OperatingSystemProfile = serde_saphyr::from_str(default.yaml)
                .with_context(|| format!("the default profile {} is broken", default.name))?;
            Ok(DefaultProfile {
                name: default.name.to_owned(),
                content: content_digest(&profile.spec),
                spec: profile.spec,
            })
        })
        .collect()
}

/// Returns the identity of the management cluster. Retries until it answers or the process ends.
async fn management_uid(client: &Client, cancel: &CancellationToken) -> Option<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let (mut delay, mut failure) = (RetryDelay::default(), Recurring::default());
    loop {
        let asked = tokio::select! {
            biased;
            () = cancel.cancelled() => return None,
            asked = namespaces.get_metadata(KUBE_SYSTEM) => asked,
        };
        match asked {
            Ok(namespace) => return namespace.uid(),
            Err(error) => {
                let cause = chain(&error).to_string();
                if failure.is_news(&cause) {
                    tracing::warn!(error = cause, "the management cluster does not answer");
                }
            }
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => return None,
            () = tokio::time::sleep(delay.next().unwrap_or_default()) => {}
        }
    }
}
