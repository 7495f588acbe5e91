//! A world: a management cluster, worker clusters, and at most one manager at a time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Parser;
use fake_cluster::{AuditEntry, Cluster, Front, Options, User, Verb, object};
use jiff::SignedDuration;
use osm::{
    app::{self, Dependencies},
    client::{clock::Clock, connect::Connector, memory::Memory},
    plan::default_profile::DefaultProfile,
    render_worker::Renderer,
    settings::{RunFlags, Settings},
    telemetry::metrics::Metrics,
    tenant::secret_text::SecretText,
};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use crate::{
    fixtures,
    wire::{Life, transport},
};

/// Longer than any delay between two attempts of the manager: when nothing was asked for this
/// long, nothing will be but what a clock makes due.
pub const QUIET: Duration = Duration::from_secs(65);

/// What the manager runs as, in every cluster.
pub const ACCOUNT: &str = "operating-system-manager";

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    flags: RunFlags,
}

/// The settings of a command line. The clusters have no addresses, so that nothing can be checked
/// as a machine would do it.
pub fn settings(flags: &[&str]) -> Settings {
    let line = CommandLine::try_parse_from(["osm", "--join-check=false"].iter().chain(flags));
    let flags = line.map(|line| line.flags);
    flags
        .expect("the flags exist")
        .check()
        .expect("the flags are right")
}

/// A management cluster and its worker clusters.
pub struct World {
    /// The management cluster.
    pub management: Cluster,
    /// The worker clusters, by name; each is a tenant of the same name.
    pub workers: BTreeMap<&'static str, Cluster>,
    /// The settings of the next manager.
    pub settings: Settings,
    /// How far the clocks of later managers are ahead of the clusters'.
    pub ahead: SignedDuration,
    /// What the next manager is built with.
    pub default_profiles: Arc<[DefaultProfile]>,
    /// Where the profiles of tenants are rendered.
    pub renderer: Renderer,
    begun: Instant,
}

/// One manager.
pub struct Process {
    cancel: CancellationToken,
    /// Its one task.
    pub tasks: JoinSet<anyhow::Result<()>>,
}

impl World {
    /// Clusters with definitions and roles; nothing is registered.
    pub fn new(workers: &[&'static str]) -> Self {
        let management = a_cluster("management");
        put(&management, fixtures::a_namespace(ACCOUNT));
        put(&management, fixtures::the_last_lease("osm"));
        for object in fixtures::management() {
            put(&management, object.clone());
        }
        let workers = workers.iter().map(|name| {
            put(&management, fixtures::a_namespace(name));
            let worker = a_cluster(name);
            for object in fixtures::worker() {
                put(&worker, object.clone());
            }
            (*name, worker)
        });
        Self {
            workers: workers.collect(),
            management,
            // A Lease that outlasts the quiet: what keeps it is not what these tests look at.
            settings: settings(&["--lease-duration", "1h"]),
            ahead: SignedDuration::ZERO,
            default_profiles: fixtures::default_profiles("v1.0.0", "text\n"),
            renderer: Renderer::InProcess,
            begun: Instant::now(),
        }
    }

    /// A world with these tenants, each registered and with its own profile.
    pub fn with(tenants: &[&'static str]) -> Self {
        let world = Self::new(tenants);
        for name in tenants {
            world.register(name);
            world.add_profile(name, "v1.0.0", "text\n");
        }
        world
    }

    /// A world with one tenant, `berlin`.
    pub fn with_berlin() -> Self {
        Self::with(&["berlin"])
    }

    /// As [`Self::with`], and each tenant has a machine deployment `workers`.
    pub fn with_workers(tenants: &[&'static str]) -> Self {
        let world = Self::with(tenants);
        for name in tenants {
            world.deploy(name, "workers");
        }
        world
    }

    /// A worker cluster.
    pub fn worker(&self, name: &str) -> &Cluster {
        self.workers.get(name).expect("the world has this cluster")
    }

    /// Registers a worker cluster, or registers it again.
    pub fn register(&self, name: &str) {
        let token = self.worker(name).token(&account("kube-system"));
        put(&self.management, fixtures::a_registration(name, &token));
    }

    /// A tenant's own profile, made or replaced.
    pub fn add_profile(&self, tenant: &str, version: &str, text: &str) {
        put(&self.management, fixtures::a_profile(tenant, version, text));
    }

    /// A machine deployment, made or replaced.
    pub fn deploy(&self, tenant: &str, name: &str) {
        put(self.worker(tenant), fixtures::a_machine_deployment(name));
    }

    /// A WorkerCluster, made or replaced.
    pub fn configure(&self, tenant: &str, spec: &Value) {
        put(&self.management, fixtures::a_worker_cluster(tenant, spec));
    }

    /// Gives `berlin` credentials of `registry.example`, in JSON.
    pub fn give_registry_credentials(&self, credentials: &str) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "registries", "namespace": "berlin"},
            "data": {"registry.example": STANDARD.encode(credentials)},
        });
        put(&self.management, secret);
        let spec = json!({"registryCredentialsSecretRef": {"name": "registries"}});
        self.configure("berlin", &spec);
    }

    /// The WorkerCluster of a tenant; null without one.
    pub fn own(&self, tenant: &str) -> Value {
        let own = object("workerclusters", tenant, tenant);
        self.management.get(own).unwrap_or_default()
    }

    /// Changes the WorkerCluster of a tenant as somebody else would.
    pub fn change_own(&self, tenant: &str, change: impl FnOnce(&mut Value)) {
        let mut own = self.own(tenant);
        change(&mut own);
        put(&self.management, own);
    }

    /// A condition of a tenant; null where nothing is said.
    pub fn condition(&self, tenant: &str, kind: &str) -> Value {
        let own = self.own(tenant);
        let conditions = own.pointer("/status/conditions").and_then(Value::as_array);
        let found = conditions
            .into_iter()
            .flatten()
            .find(|it| it["type"] == kind);
        found.cloned().unwrap_or_default()
    }

    /// All clusters, by name.
    pub fn clusters(&self) -> impl Iterator<Item = (&str, &Cluster)> {
        std::iter::once(("management", &self.management))
            .chain(self.workers.iter().map(|(name, worker)| (*name, worker)))
    }

    /// Starts a manager.
    pub fn start(&self) -> Process {
        self.start_as(&Life::new())
    }

    /// Starts a manager with this life.
    pub fn start_as(&self, life: &Arc<Life>) -> Process {
        self.start_measured(life, &Metrics::new())
    }

    /// Starts a manager, and waits until nobody asks for anything any more.
    pub async fn start_settled(&self) -> Process {
        self.start_settled_as(&Life::new()).await
    }

    /// As [`Self::start_settled`], with this life.
    pub async fn start_settled_as(&self, life: &Arc<Life>) -> Process {
        let process = self.start_as(life);
        self.settle().await;
        process
    }

    /// Starts a manager with this life, that counts here.
    pub fn start_measured(&self, life: &Arc<Life>, metrics: &Metrics) -> Process {
        let manager = account(ACCOUNT);
        let front = self.management.front_as(&manager);
        let management = transport("management", front, None, life);
        let given = Dependencies {
            leases: management.clone(),
            management,
            connector: self.connector(life),
            clock: self.clock(),
            default_profiles: Arc::clone(&self.default_profiles),
            admin: None,
            runtime: tokio::runtime::Handle::current(),
            metrics: metrics.clone(),
            renderer: self.renderer.clone(),
            memory: Arc::new(Memory::unlimited()),
        };
        let cancel = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let run = app::run_with(self.settings.clone(), given, cancel.clone());
        tasks.spawn(run);
        Process { cancel, tasks }
    }

    /// A kubeconfig leads to the cluster that has its server's name, or the end of it.
    fn connector(&self, life: &Arc<Life>) -> Connector {
        let fronts: Vec<(&'static str, Front)> = self
            .workers
            .iter()
            .map(|(name, worker)| (*name, worker.front_as(&User::anonymous())))
            .collect();
        let life = Arc::clone(life);
        Arc::new(move |access, _| {
            let url = access.server.url();
            let leads_to = |name: &str| {
                let server = fixtures::server(name);
                url == server || url.ends_with(&server.replace("https://", "."))
            };
            let front = fronts.iter().find(|(name, _)| leads_to(name));
            let (name, front) = front.ok_or_else(|| BoxError::from("no such server"))?;
            let token = access.credential.token().map(SecretText::expose);
            Ok(transport(name, front.clone(), token, &life))
        })
    }

    /// The time of day, as managers see it.
    pub fn clock(&self) -> Clock {
        let now = Options::default().started_at + self.begun.elapsed() + self.ahead;
        Clock::tokio(now)
    }

    /// Waits until nobody asks for anything any more.
    pub async fn settle(&self) {
        let mut attempts_left = 40;
        loop {
            let before = self.asked();
            tokio::time::sleep(QUIET).await;
            if self.asked() == before {
                return;
            }
            attempts_left -= 1;
            let last = || self.last_requests(20);
            assert!(attempts_left > 0, "it does not settle: {:#?}", last());
        }
    }

    fn asked(&self) -> usize {
        self.clusters()
            .map(|(_, cluster)| {
                let audit = cluster.audit();
                audit
                    .iter()
                    .filter(|e| e.verb != Verb::Watch && !is_lease(e))
                    .count()
            })
            .sum()
    }

    /// Every write of every cluster so far, in order.
    pub fn writes(&self) -> Vec<String> {
        let mut writes: Vec<AuditEntry> = self
            .clusters()
            .flat_map(|(_, cluster)| cluster.writes())
            .collect();
        writes.retain(|entry| !is_lease(entry));
        writes.sort_by_key(|entry| entry.at);
        writes.iter().map(line).collect()
    }

    /// The last requests of all clusters, for people.
    pub fn last_requests(&self, count: usize) -> Vec<String> {
        let mut all: Vec<AuditEntry> = self
            .clusters()
            .flat_map(|(_, cluster)| cluster.audit())
            .collect();
        all.sort_by_key(|entry| entry.at);
        let first = all.len().saturating_sub(count);
        all.iter()
            .skip(first)
            .map(|entry| {
                let at = entry.at.duration_since(self.begun);
                format!("{at:?} {} -> {}", line(entry), entry.code)
            })
            .collect()
    }

    /// Forgets the requests so far.
    pub fn clear_audits(&self) {
        for (_, cluster) in self.clusters() {
            cluster.clear_audit();
        }
    }
}

impl Process {
    /// Ends at once, as by `kill -9`.
    pub async fn kill(mut self) {
        self.tasks.shutdown().await;
    }

    /// Ends in order, as by SIGTERM.
    pub async fn stop(self) {
        self.end().await.expect("the manager ends in order");
    }

    /// As [`Process::stop`], and says how it ended.
    pub async fn end(self) -> anyhow::Result<()> {
        self.cancel.cancel();
        self.ended().await
    }

    /// Waits for its end.
    pub async fn ended(mut self) -> anyhow::Result<()> {
        let ended = self.tasks.join_next().await.expect("there is one task");
        ended.expect("the manager does not panic")
    }
}

/// What keeps a replica's Lease goes by the clock.
fn is_lease(entry: &AuditEntry) -> bool {
    entry.target.resource == "leases"
}

/// One request in short.
pub fn line(entry: &AuditEntry) -> String {
    let subresource = match entry.target.subresource.as_str() {
        "" => String::new(),
        subresource => format!("/{subresource}"),
    };
    format!(
        "{} {}{subresource} {}/{}",
        entry.verb.as_str(),
        entry.target.resource,
        entry.target.namespace,
        entry.target.name,
    )
}

/// Who the manager is in a cluster: its roles are those of `manifests/rbac`.
pub fn account(namespace: &str) -> User {
    User::service_account(namespace, ACCOUNT)
}

fn a_cluster(name: &str) -> Cluster {
    Cluster::new(Options {
        name: name.to_owned(),
        ..Options::default()
    })
}

/// Puts an object into a cluster as it is.
pub fn put(cluster: &Cluster, object: Value) -> Value {
    cluster.put_raw(object).expect("the kind is served")
}
