//! The clusters of a run: a management cluster and a worker cluster per tenant, in memory, behind
//! TLS in this process, each on a port of its own. What it does to them stands for operators,
//! tenants and machine-controller; it never asks the manager.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use fake_cluster::{
    AuditEntry, Cluster, Fault, Matcher, ObjectRef, Options, TlsFront, User, cluster_info, object,
};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::real_cluster::RealCluster;
pub(super) use crate::demo::{install::ACCOUNT, revisions::REVISION};

/// The namespace of machine deployments.
pub const KUBE_SYSTEM: &str = "kube-system";
/// The manager's rights in the management cluster.
const ROLES: [&str; 2] = [
    include_str!("../../../manifests/rbac/management.yaml"),
    include_str!("../../../manifests/rbac/management-all-namespaces.yaml"),
];
/// What every worker cluster is given: the kind of machine deployments, and the manager's rights.
pub(super) const WORKER_MANIFESTS: [&str; 3] = [
    include_str!("../../../tenants-example/worker-crds/machinedeployments.yaml"),
    include_str!("../../../tenants-example/worker-crds/kubelet-bootstrap.yaml"),
    include_str!("../../../manifests/rbac/worker.yaml"),
];
/// The kinds of our own.
const GROUP_VERSION: &str = "operatingsystemmanager.k8c.io/v1alpha1";
/// Annotation of a machine deployment: its profile.
pub(super) const PROFILE: &str = "k8c.io/operating-system-profile";
/// Requests that are kept between two counts: a cold start makes some dozens per tenant.
const MANAGEMENT_REQUESTS_MAX: usize = 2_000_000;
/// Watches resume from these; a cold start makes some dozens per tenant.
const MANAGEMENT_CHANGES_MAX: usize = 500_000;
/// A worker cluster sees some dozens of requests until it is served, and few after that.
const WORKER_REQUESTS_MAX: usize = 50_000;
/// Enough to find when each document appeared.
const WORKER_CHANGES_MAX: usize = 5_000;

/// All clusters of a run.
pub struct Fleet {
    /// The management cluster in memory. Where a real one stands in for it, this one stays empty.
    pub management: Server,
    /// The real management cluster, where one was asked for.
    pub real: Option<RealCluster>,
    /// The worker clusters, one per tenant.
    pub workers: Vec<Worker>,
}

/// One cluster and its port.
pub struct Server {
    /// What it holds.
    pub cluster: Cluster,
    /// Where it listens.
    pub front: TlsFront,
}

/// One tenant's worker cluster.
pub struct Worker {
    /// The tenant: its namespace in the management cluster.
    pub tenant: String,
    /// The cluster.
    pub server: Server,
    /// The names of its machine deployments.
    pub machine_deployments: Vec<String>,
    /// How many it has had.
    made: usize,
}

impl Fleet {
    /// A management cluster with definitions (what `osm crds` prints) and roles, and no tenant.
    pub async fn start(definitions: &str) -> anyhow::Result<Self> {
        let management = Server::start(Options {
            audit_max: MANAGEMENT_REQUESTS_MAX,
            changes_max: MANAGEMENT_CHANGES_MAX,
            ..options("management")
        })
        .await?;
        let apply = |yaml: &str| management.cluster.apply_yaml(yaml);
        apply(definitions).context("applying the definitions")?;
        management.put(namespace(ACCOUNT))?;
        management.put(last_lease())?;
        for roles in ROLES {
            apply(roles).context("applying roles")?;
        }
        Ok(Self {
            management,
            real: None,
            workers: Vec::new(),
        })
    }

    /// As [`Self::start`], with a real kube-apiserver and etcd as the management cluster.
    pub async fn start_real(definitions: &str) -> anyhow::Result<Self> {
        let own = namespace(ACCOUNT).to_string();
        let [roles, more_roles] = ROLES;
        let manifests = [definitions, &own, roles, more_roles];
        let real = RealCluster::start("management", &manifests, (ACCOUNT, ACCOUNT)).await?;
        real.put(last_lease()).await?;
        Ok(Self {
            real: Some(real),
            ..Self::start(definitions).await?
        })
    }

    /// The manager's way into the management cluster.
    pub fn management_kubeconfig(&self) -> String {
        let user = User::service_account(ACCOUNT, ACCOUNT);
        match &self.real {
            Some(real) => real.kubeconfig().to_owned(),
            None => self.management.front.kubeconfig(&user),
        }
    }

    /// How many requests the management cluster has seen of some kind, since they were taken.
    pub fn management_requests(
        &self,
        is_one: impl Fn(&AuditEntry) -> bool,
    ) -> anyhow::Result<usize> {
        match &self.real {
            Some(real) => real.count_requests(is_one),
            None => Ok(self.management.cluster.count_requests(is_one)),
        }
    }

    /// The requests that the management cluster has seen, which are forgotten then.
    pub fn take_management_audit(&self) -> Vec<AuditEntry> {
        match &self.real {
            Some(real) => real.take_audit(),
            None => self.management.cluster.take_audit(),
        }
    }

    /// Whether every worker cluster is watched: machine deployments and Secrets. With both, a
    /// tenant is served again.
    pub fn is_watched(&self) -> bool {
        let mut workers = self.workers.iter();
        workers.all(|worker| worker.server.cluster.open_watches() >= 2)
    }

    async fn put(&self, object: Value) -> anyhow::Result<()> {
        match &self.real {
            Some(real) => real.put(object).await,
            None => self.management.put(object),
        }
    }

    /// Adds worker clusters up to a number, each with this many machine deployments. None is
    /// registered.
    pub async fn grow(&mut self, tenants: usize, machine_deployments: usize) -> anyhow::Result<()> {
        for index in self.workers.len()..tenants {
            let worker = Worker::start(index, machine_deployments).await?;
            self.put(namespace(&worker.tenant)).await?;
            self.workers.push(worker);
        }
        Ok(())
    }

    /// Does what an operator does who registers a tenant, or registers it again.
    pub async fn register(&self, worker: &Worker) -> anyhow::Result<()> {
        let user = User::service_account(KUBE_SYSTEM, ACCOUNT);
        let kubeconfig = worker.server.front.kubeconfig(&user);
        self.put(registration(&worker.tenant, &kubeconfig)).await
    }

    /// Registers a worker cluster that is none of these.
    pub async fn register_other(&self, tenant: &str, kubeconfig: &str) -> anyhow::Result<()> {
        self.put(namespace(tenant)).await?;
        self.put(registration(tenant, kubeconfig)).await
    }

    /// Puts a profile with this spec into a tenant's namespace.
    pub fn give_profile(
        &self,
        worker: &Worker,
        (name, spec): (&str, &Value),
    ) -> anyhow::Result<()> {
        self.management.put(json!({
            "apiVersion": GROUP_VERSION, "kind": "OperatingSystemProfile",
            "metadata": { "name": name, "namespace": worker.tenant },
            "spec": spec,
        }))
    }

    /// Makes the namespace of a tenant, if it is not there.
    pub fn give_namespace(&self, worker: &Worker) -> anyhow::Result<()> {
        self.management.put(namespace(&worker.tenant))
    }

    /// Delays every answer of every cluster.
    pub fn delay(&self, latency: Duration) {
        if !latency.is_zero() {
            for server in self.servers() {
                server.cluster.inject(Matcher::any(), Fault::Delay(latency));
            }
        }
    }

    /// All clusters.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        std::iter::once(&self.management).chain(self.workers.iter().map(|worker| &worker.server))
    }
}

impl Server {
    async fn start(options: Options) -> anyhow::Result<Self> {
        let cluster = Cluster::new(options);
        let front = cluster.serve_tls().await.context("opening a port")?;
        Ok(Self { cluster, front })
    }

    /// Stores an object as it is.
    pub fn put(&self, object: Value) -> anyhow::Result<()> {
        let kind = object.get("kind").cloned().unwrap_or_default();
        let stored = self.cluster.put_raw(object);
        stored
            .map(drop)
            .with_context(|| format!("{kind} is not served"))
    }

    /// Whether an object is there.
    pub fn has(&self, wanted: ObjectRef<'_>) -> bool {
        let history = self.cluster.history(wanted);
        history.last().is_some_and(|last| last.object.is_some())
    }
}

impl Worker {
    async fn start(index: usize, machine_deployments: usize) -> anyhow::Result<Self> {
        Self::of(format!("tenant-{index:05}"), machine_deployments).await
    }

    /// Starts the worker cluster of a tenant with this namespace.
    pub async fn of(tenant: String, machine_deployments: usize) -> anyhow::Result<Self> {
        let server = Server::start(Options {
            audit_max: WORKER_REQUESTS_MAX,
            changes_max: WORKER_CHANGES_MAX,
            ..options(&tenant)
        })
        .await?;
        for object in in_every_worker()? {
            server.put(object.clone())?;
        }
        server.put(cluster_info(&server.front.url(), &server.cluster.ca_pem()))?;
        let mut worker = Self {
            tenant,
            server,
            machine_deployments: Vec::new(),
            made: 0,
        };
        for _ in 0..machine_deployments {
            worker.add_machine_deployment()?;
        }
        Ok(worker)
    }

    /// Makes one more machine deployment.
    pub fn add_machine_deployment(&mut self) -> anyhow::Result<String> {
        let name = format!("pool-{}", self.made);
        self.made += 1;
        self.server.put(machine_deployment(&name))?;
        self.machine_deployments.push(name.clone());
        Ok(name)
    }

    /// Deletes a machine deployment; the manager's finalizer holds it until all is gone.
    pub async fn remove_machine_deployment(&mut self, name: &str) -> anyhow::Result<()> {
        self.machine_deployments.retain(|known| known != name);
        let Revisions(api) = self.revisions();
        let deleted = api.delete(name, &DeleteParams::default()).await;
        deleted
            .map(drop)
            .with_context(|| format!("deleting {name} of {}", self.tenant))
    }

    /// What raises revisions here.
    pub fn revisions(&self) -> Revisions {
        let kind = GroupVersionKind::gvk("cluster.k8s.io", "v1alpha1", "MachineDeployment");
        let (client, kind) = (self.server.cluster.client(), ApiResource::from_gvk(&kind));
        Revisions(Api::namespaced_with(client, KUBE_SYSTEM, &kind))
    }

    /// One of its machine deployments.
    pub fn machine_deployment<'a>(&self, name: &'a str) -> ObjectRef<'a> {
        object("machinedeployments.cluster.k8s.io", KUBE_SYSTEM, name)
    }
}

/// Raises the revisions of one worker cluster's machine deployments.
pub struct Revisions(Api<DynamicObject>);

impl Revisions {
    /// Does what machine-controller does when a machine deployment's template has changed.
    pub async fn raise(&self, name: &str, revision: u64) -> anyhow::Result<()> {
        self.annotate(name, (REVISION, &revision.to_string())).await
    }

    /// Does what upstream's webhook does to a machine deployment that names no profile.
    pub async fn name_profile(&self, name: &str, profile: &str) -> anyhow::Result<()> {
        self.annotate(name, (PROFILE, profile)).await
    }

    async fn annotate(&self, name: &str, (key, value): (&str, &str)) -> anyhow::Result<()> {
        let patch = json!({ "metadata": { "annotations": { key: value } } });
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        let patched = self.0.patch(name, &params, &patch).await;
        patched
            .map(drop)
            .with_context(|| format!("setting {key} of {name}"))
    }
}

fn options(name: &str) -> Options {
    Options {
        name: name.to_owned(),
        // Certificates and tokens are compared with the real time.
        started_at: Timestamp::now(),
        ..Options::default()
    }
}

/// Parsed once: there are thousands of workers.
fn in_every_worker() -> anyhow::Result<&'static [Value]> {
    static OBJECTS: OnceLock<Result<Vec<Value>, String>> = OnceLock::new();
    let parse = || {
        let mut objects = Vec::new();
        for manifest in WORKER_MANIFESTS {
            let documents = serde_saphyr::from_multiple::<Value>(manifest);
            objects.extend(documents.map_err(|error| error.to_string())?);
        }
        objects.retain(Value::is_object);
        Ok(objects)
    };
    match OBJECTS.get_or_init(parse) {
        Ok(objects) => Ok(objects),
        Err(error) => anyhow::bail!("reading the worker's manifests: {error}"),
    }
}

/// With the finalizer that every namespace has: without it nothing would empty it when it goes.
fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
        "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" },
    })
}

/// The Secret that registers a tenant with this kubeconfig.
fn registration(tenant: &str, kubeconfig: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "name": tenant, "namespace": tenant,
            "labels": { "operatingsystemmanager.k8c.io/worker-cluster": "true" },
        },
        "data": { "kubeconfig": STANDARD.encode(kubeconfig) },
    })
}

/// What the last replica of a fleet leaves behind: who comes needs not wait for anybody unseen.
fn last_lease() -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": "osm-last", "namespace": ACCOUNT,
            "labels": { "operatingsystemmanager.k8c.io/fleet": "osm" },
            "annotations": { "operatingsystemmanager.k8c.io/members": "last" },
        },
        "spec": { "holderIdentity": "", "leaseDurationSeconds": 15 },
    })
}

/// Ubuntu on AWS, as machine-controller leaves it once it has made the MachineSet.
pub(super) fn machine_deployment(name: &str) -> Value {
    json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {
            "name": name, "namespace": KUBE_SYSTEM, "generation": 1,
            "annotations": { REVISION: "1" },
        },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "pool": name } },
            "template": {
                "metadata": { "labels": { "pool": name } },
                "spec": {
                    "metadata": { "labels": { "pool": name } },
                    "providerSpec": { "value": {
                        "sshPublicKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKm0 ops@example.com"],
                        "cloudProvider": "aws",
                        "cloudProviderSpec": {
                            "region": "eu-central-1", "availabilityZone": "eu-central-1a",
                            "vpcId": "vpc-0b1e5a7c9d3f24680", "instanceType": "t3.large",
                            "diskType": "gp3", "diskSize": 50,
                        },
                        "operatingSystem": "ubuntu",
                        "operatingSystemSpec": { "distUpgradeOnBoot": false },
                    }},
                    "versions": { "kubelet": "1.35.2" },
                },
            },
        },
    })
}
