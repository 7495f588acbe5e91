//! The composition root: makes the management client, starts the watches of the whole fleet, and
//! hands the fleet what to do with each cluster.

use std::{path::Path, sync::Arc};

use anyhow::Context as _;
use http_body_util::BodyExt;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{
    client::legacy::{Client as HyperClient, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    client::{Body, ConfigExt},
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, ServiceBuilder, util::BoxCloneSyncService};

use crate::admin::{self, AdminState, Gate, Readiness};
use crate::api::{names::KUBE_SYSTEM, profile::OperatingSystemProfile};
use crate::controllers::{
    context::Rules,
    profile::DefaultProfile,
    profile_store::{self, ProfileStore},
    serve::Controllers,
    subscriptions::Subscriptions,
    watch::follow_configs,
    worker_cluster,
};
use crate::fleet::{
    self,
    clock::Clock,
    connect::{self, ClientParts, Connector, Transport},
    engagement::Shared,
    permits::Permits,
    rate_limit::Budget,
    retry_delay::RetryDelay,
    roster::Roster,
    transport, worker_clusters,
};
use crate::render::{Limits, default_profiles::default_profiles};
use crate::settings::Settings;
use crate::telemetry::{
    logs::chain,
    metrics::{ClusterKind, Metrics},
};
use crate::tenant::{policy::RequestBudget, settings::TenantSettings};

/// What the process meets outside of itself. Tests hand in clusters in memory and a clock of
/// their own.
pub struct Outside {
    /// What carries requests to the management cluster.
    pub management: Transport,
    /// Makes transports to worker clusters.
    pub connector: Connector,
    /// The time of day.
    pub clock: Clock,
    /// Where the admin port listens; none in tests that need none.
    pub admin: Option<TcpListener>,
    /// Where everything is counted.
    pub metrics: Metrics,
}

/// The budget of the watches of the whole fleet: five watches, and their pages.
const FLEET_REQUESTS: RequestBudget = RequestBudget {
    per_second: std::num::NonZeroU32::MIN.saturating_add(99),
    burst: std::num::NonZeroU32::MIN.saturating_add(199),
};

/// Runs until it is cancelled: the real thing.
pub async fn run(settings: Settings, cancel: CancellationToken) -> anyhow::Result<()> {
    let listener = TcpListener::bind(settings.admin_address)
        .await
        .with_context(|| {
            format!(
                "cannot listen on --admin-address {}",
                settings.admin_address
            )
        })?;
    tracing::info!(address = %listener.local_addr()?, "the admin port listens");
    let outside = Outside {
        management: management(settings.kubeconfig.as_deref()).await?,
        connector: Arc::new(transport::connect),
        clock: Clock::system(),
        admin: Some(listener),
        metrics: Metrics::new(),
    };
    run_with(settings, outside, cancel).await
}

/// Runs until it is cancelled, in a world that is handed in.
pub async fn run_with(
    settings: Settings,
    outside: Outside,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    let readiness = Readiness::waiting_for(&[Gate::ManagementWatches]);
    let mut tasks = JoinSet::new();
    let stop = cancel.child_token();
    if let Some(listener) = outside.admin {
        let state = AdminState {
            metrics: outside.metrics.clone(),
            readiness: readiness.clone(),
        };
        let stop = stop.clone();
        tasks.spawn(async move {
            if let Err(error) = admin::run(listener, state, stop).await {
                tracing::error!(error = %chain(&error), "the admin port failed");
            }
        });
    }
    let client = connect::client(ClientParts {
        transport: outside.management.clone(),
        budget: Arc::new(Budget::new(FLEET_REQUESTS)),
        timeout: settings.request_timeout,
        health: None,
        kind: ClusterKind::Management,
        metrics: outside.metrics.clone(),
    });
    let Some(management_uid) = management_uid(&client, &cancel).await else {
        return finish(tasks, &stop).await;
    };
    let controllers = controllers(&settings)?;
    let roster = Arc::new(Roster::default());
    let (worker_clusters, follow_worker_clusters) =
        worker_clusters::follow(client.clone(), Arc::clone(&roster));
    watch_management(
        &mut tasks,
        &stop,
        &client,
        &controllers,
        follow_worker_clusters,
    );
    let ready = {
        let (controllers, worker_clusters) = (controllers.clone(), worker_clusters.clone());
        async move {
            controllers.profiles.ready().await;
            worker_clusters.ready().await;
            readiness.set_ready(Gate::ManagementWatches);
        }
    };
    spawn_until(&mut tasks, &stop, ready);
    let serve = controllers.clone();
    let shared = Arc::new(Shared {
        roster,
        worker_clusters,
        management: outside.management,
        management_uid,
        connector: outside.connector,
        policy: settings.policy,
        defaults: Arc::new(TenantSettings::default()),
        request_timeout: settings.request_timeout,
        facts_interval: settings.facts_interval,
        permits: Permits::new(settings.reconciles_max),
        clock: outside.clock,
        metrics: outside.metrics,
        serve: Arc::new(move |engagement| {
            let controllers = serve.clone();
            Box::pin(async move { controllers.serve(engagement).await })
        }),
        report: Arc::new(|reporting| Box::pin(worker_cluster::report(reporting))),
    });
    fleet::run(fleet::Params {
        shared,
        management: client,
        selector: settings.registration_selector,
        cancel,
    })
    .await;
    finish(tasks, &stop).await
}

fn controllers(settings: &Settings) -> anyhow::Result<Controllers> {
    Ok(Controllers {
        profiles: Arc::new(ProfileStore::default()),
        subscriptions: Arc::new(Subscriptions::default()),
        defaults: parse_default_profiles()?,
        rules: Rules {
            token_lifetime: settings.token_lifetime,
            limits: Limits::default(),
        },
    })
}

fn parse_default_profiles() -> anyhow::Result<Arc<[DefaultProfile]>> {
    default_profiles()
        .iter()
        .map(|default| {
            let profile: OperatingSystemProfile = serde_saphyr::from_str(default.yaml)
                .with_context(|| format!("the default profile {} is broken", default.name))?;
            Ok(DefaultProfile {
                name: default.name.to_owned(),
                spec: profile.spec,
            })
        })
        .collect()
}

fn watch_management(
    tasks: &mut JoinSet<()>,
    stop: &CancellationToken,
    client: &Client,
    controllers: &Controllers,
    worker_clusters: impl Future<Output = ()> + Send + 'static,
) {
    let subscriptions = &controllers.subscriptions;
    spawn_until(tasks, stop, worker_clusters);
    spawn_until(
        tasks,
        stop,
        follow_configs(client.clone(), Arc::clone(subscriptions)),
    );
    let profiles = Arc::clone(&controllers.profiles);
    let follow = profile_store::follow(client.clone(), profiles, Arc::clone(subscriptions));
    spawn_until(tasks, stop, follow);
}

fn spawn_until(
    tasks: &mut JoinSet<()>,
    stop: &CancellationToken,
    work: impl Future<Output = ()> + Send + 'static,
) {
    let stop = stop.clone();
    tasks.spawn(async move {
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = work => {}
        }
    });
}

/// A task of the whole process that panics ends the process.
async fn finish(mut tasks: JoinSet<()>, stop: &CancellationToken) -> anyhow::Result<()> {
    stop.cancel();
    while let Some(ended) = tasks.join_next().await {
        ended.context("a task of the whole process panicked")?;
    }
    Ok(())
}

/// The identity of the management cluster; asked until it answers or the process ends.
async fn management_uid(client: &Client, cancel: &CancellationToken) -> Option<String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let mut delay = RetryDelay::default();
    loop {
        let asked = tokio::select! {
            biased;
            () = cancel.cancelled() => return None,
            asked = namespaces.get_metadata(KUBE_SYSTEM) => asked,
        };
        match asked {
            Ok(namespace) => return namespace.uid(),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "the management cluster does not answer");
            }
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => return None,
            () = tokio::time::sleep(delay.next().unwrap_or_default()) => {}
        }
    }
}

/// What carries requests to the management cluster: the operator's own kubeconfig is trusted, and
/// read by kube.
async fn management(kubeconfig: Option<&Path>) -> anyhow::Result<Transport> {
    let config = management_config(kubeconfig).await?;
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_connect_timeout(config.connect_timeout);
    http.set_nodelay(true);
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(http);
    let client = HyperClient::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(std::time::Duration::from_secs(30))
        .http2_keep_alive_timeout(std::time::Duration::from_secs(15))
        .http2_keep_alive_while_idle(true)
        .build::<_, Body>(https);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_err(BoxError::from)
        .map_response(|response: http::Response<hyper::body::Incoming>| {
            response.map(|body| body.map_err(std::io::Error::other).boxed_unsync())
        })
        .service(client);
    Ok(BoxCloneSyncService::new(service))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the management client is made here"
)]
async fn management_config(kubeconfig: Option<&Path>) -> anyhow::Result<kube::Config> {
    let Some(path) = kubeconfig else {
        return kube::Config::infer()
            .await
            .context("found no way into the management cluster");
    };
    let read = Kubeconfig::read_from(path)
        .with_context(|| format!("cannot read --kubeconfig {}", path.display()))?;
    kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("cannot use --kubeconfig {}", path.display()))
}
