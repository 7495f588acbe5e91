//! Tests of what a tenant's task leaves behind when its tenant moves to another replica.

use std::num::NonZeroU32;

use base64::{Engine, engine::general_purpose::STANDARD};
use fake_cluster::Cluster;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
    runtime::watcher,
};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tower::{ServiceExt, util::BoxCloneSyncService};

use crate::api::worker_cluster::FleetId;
use crate::client::{
    clock::Clock, memory::Memory, permits::Permits, rate_limit::SharedBudget, token::Tokens,
    transport::Transport, watch::Scope,
};
use crate::fleet::{
    self, Source, Sources,
    engagement::Engagement,
    registry::Registry,
    sharding::{Holder, View, precautions::Precautions, shard::Shard},
    supervisor::*,
    worker_clusters::WorkerClusters,
};
use crate::telemetry::metrics::Metrics;
use crate::tenant::{
    defaults::TenantDefaults, inventory::Inventory, policies::TenantPolicies, policy::RequestBudget,
};

pub(super) fn put(cluster: &Cluster, object: Value) {
    cluster.put_raw(object).expect("the kind is served");
}

/// Creates a management cluster with one registration.
fn a_management_cluster(worker: &Cluster) -> Cluster {
    let management = an_empty_management_cluster();
    put(
        &management,
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "berlin",
                "namespace": "berlin",
                "labels": {"operatingsystemmanager.k8c.io/worker-cluster": "true"},
            },
            "data": {"kubeconfig": a_kubeconfig(worker, "a-token")},
        }),
    );
    management
}

/// Creates a management cluster with the namespace of a tenant.
pub(super) fn an_empty_management_cluster() -> Cluster {
    let management = Cluster::default();
    for definition in [
        include_str!("../../../../manifests/crds/workerclusters.yaml"),
        include_str!("../../../../manifests/crds/operatingsystemprofiles.yaml"),
    ] {
        management.apply_yaml(definition).unwrap();
    }
    put(
        &management,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "berlin"}}),
    );
    management
}

/// Returns a kubeconfig with a token, as a Secret has it.
pub(super) fn a_kubeconfig(worker: &Cluster, token: &str) -> String {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "there",
        "clusters": [{"name": "there", "cluster": {
            "server": "https://berlin.example:6443",
            "certificate-authority-data": STANDARD.encode(worker.ca_pem()),
        }}],
        "contexts": [{"name": "there", "context": {"cluster": "there", "user": "osm"}}],
        "users": [{"name": "osm", "user": {"token": token}}],
    });
    STANDARD.encode(kubeconfig.to_string())
}

/// A fleet that runs.
pub(super) struct Running {
    pub(super) engagements: mpsc::UnboundedReceiver<Engagement>,
    shards: watch::Sender<Shard>,
    let_go: watch::Sender<Shard>,
    _tasks: JoinSet<()>,
}

/// Runs a fleet that has all tenants.
pub(super) fn run(
    (management, worker): (&Cluster, &Cluster),
    (inventory, selected): (Inventory, watcher::Config),
) -> Running {
    let clock = Clock::tokio(jiff::Timestamp::UNIX_EPOCH);
    let registry = Arc::new(Registry::new(&[inventory.clone()].into()));
    let scope = Scope::All;
    let (worker_clusters, follow) =
        worker_clusters::follow(&management.client(), &scope, &registry);
    let (sender, engagements) = mpsc::unbounded_channel();
    let clusters = (management, worker);
    let shared = shared(clusters, (registry, worker_clusters), clock.clone(), sender);
    let fence = Fence::closed(clock, Duration::ZERO);
    fence.extend(Duration::from_hours(24));
    let mut all = Shard::nothing("a");
    all.settle(&View([Holder::parse("a_1")].into()));
    let shards = watch::Sender::new(all);
    let let_go = watch::Sender::new(Shard::nothing("a"));
    let placement = Placement {
        shards: shards.subscribe(),
        let_go: let_go.clone(),
        fence,
        precautions: Precautions::default(),
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(follow);
    tasks.spawn(fleet::run(fleet::Params {
        shared: Arc::new(shared),
        placement,
        management: management.client(),
        scope,
        sources: Sources {
            except: std::collections::BTreeSet::new(),
            inventories: vec![Source::Secrets {
                inventory,
                selected,
            }],
        },
        cancel: CancellationToken::new(),
    }));
    Running {
        engagements,
        shards,
        let_go,
        _tasks: tasks,
    }
}

impl Running {
    /// Waits for the next engagement.
    pub(super) async fn engaged(&mut self) -> Engagement {
        let engagement = timeout(Duration::from_mins(1), self.engagements.recv()).await;
        engagement.expect("it is engaged").expect("it is served")
    }
}

/// Creates a transport without authentication.
pub(super) fn transport(cluster: &Cluster) -> Transport {
    let front = cluster.front();
    let front = front.map_response(|answer| {
        answer.map(|body| body.map_err(std::io::Error::other).boxed_unsync())
    });
    BoxCloneSyncService::new(front.map_err(Into::into))
}

/// Creates the state that all tenants share. Each engagement is sent to the test.
pub(super) fn shared(
    (management, worker): (&Cluster, &Cluster),
    (registry, worker_clusters): (Arc<Registry>, WorkerClusters),
    clock: Clock,
    engaged: mpsc::UnboundedSender<Engagement>,
) -> Shared {
    let worker = transport(worker);
    let policies = TenantPolicies {
        rules: Vec::new(),
        default: Arc::default(),
    };
    let many = NonZeroU32::new(100).unwrap();
    Shared {
        fleet: FleetId::default(),
        handover_timeout: Duration::from_secs(30),
        registry,
        worker_clusters,
        management: transport(management),
        management_uid: "m".to_owned().into(),
        former_management_clusters: Vec::new(),
        connector: Arc::new(move |_, _| Ok(worker.clone())),
        policies: Arc::new(policies),
        defaults: TenantDefaults::default(),
        request_timeout: Duration::from_secs(10),
        tokens: Tokens::new(Duration::MAX),
        cluster_info_interval: Duration::from_mins(10),
        permits: Permits::new(4),
        memory: Arc::new(Memory::unlimited()),
        management_budget: Arc::new(SharedBudget::new(RequestBudget {
            per_second: many,
            burst: many,
        })),
        clock,
        metrics: Metrics::new(),
        serve: Arc::new(move |engagement| {
            let cancel = engagement.cancel.clone();
            drop(engaged.send(engagement));
            Box::pin(async move { cancel.cancelled().await })
        }),
        report: Arc::new(|reporting| Box::pin(async move { reporting.cancel.cancelled().await })),
    }
}

async fn write(client: Client, name: &str) -> Result<ConfigMap, kube::Error> {
    let config_map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    let config_maps: Api<ConfigMap> = Api::namespaced(client, "default");
    config_maps
        .create(&PostParams::default(), &config_map)
        .await
}

/// The Lease stays valid: it is the tenant's own fence that closes.
#[tokio::test(start_paused = true)]
async fn what_outlives_a_tenant_that_was_let_go_writes_nothing() {
    let worker = Cluster::default();
    let management = a_management_cluster(&worker);
    let labelled =
        watcher::Config::default().labels("operatingsystemmanager.k8c.io/worker-cluster=true");
    let mut fleet = run((&management, &worker), (Inventory::Label, labelled));
    let engagement = fleet.engaged().await;
    let clients = [&engagement.worker, &engagement.management];
    for clients in clients {
        write(clients.client(), "before")
            .await
            .expect("it is served");
    }
    let nothing = Shard::nothing("a");
    let all = fleet.shards.send_replace(nothing.clone());
    let mut has_let_go = fleet.let_go.subscribe();
    has_let_go.wait_for(|it| *it == all).await.unwrap();
    has_let_go.wait_for(|it| *it == nothing).await.unwrap();
    for clients in clients {
        let refused = write(clients.client(), "after").await;
        let refused = refused.expect_err("another replica may serve the tenant");
        assert!(format!("{refused:?}").contains("LetGo"), "{refused:?}");
    }
}
