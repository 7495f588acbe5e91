//! One scenario's part of the world: a selector of its own, so that its manager sees no other
//! scenario's registrations, and tenants with a worker cluster each.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1 as coordination;
use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use osm::api::config::OperatingSystemConfig;
use osm::api::machine_deployment::MachineDeployment;
use osm::api::names::{
    CLOUD_INIT_SETTINGS, DerivedNames, KUBE_SYSTEM, MADE_FOR_REVISION, TOKEN_LABEL,
    WORKER_CLUSTER_LABEL,
};
use osm::api::profile::OperatingSystemProfile;
use osm::api::worker_cluster::{MachineDeploymentEntry, WorkerCluster};
use serde_json::{Value, json};

pub use crate::administrator::merge;
use crate::administrator::{create, delete};
use crate::audit::{Request, told};
use crate::server::ok;
use crate::world::{IN_WORKER, Lease, MANAGER, World};
use crate::{fixtures, wait};

/// The name of each tenant's registration, and of its WorkerCluster.
pub const WORKER: &str = "worker";

/// One scenario's part of the world.
pub struct Stage {
    /// The world.
    pub world: &'static World,
    name: &'static str,
}

/// A tenant, registered or not.
pub struct Tenant {
    /// The namespace in the management cluster.
    pub namespace: String,
    /// The worker cluster.
    pub worker: Lease,
    /// The management cluster, as an administrator.
    pub management: Client,
    /// The worker cluster, as an administrator.
    pub admin: Client,
    world: &'static World,
    labels: BTreeMap<String, String>,
    opened: Timestamp,
}

impl Stage {
    /// Opens it. The name is the scenario's alone.
    pub fn open(world: &'static World, name: &'static str) -> Self {
        Self { world, name }
    }

    /// The name of the stage, and of the fleet that serves it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Selects the stage's registrations.
    pub fn selector(&self) -> String {
        format!("{WORKER_CLUSTER_LABEL}=true,scenario={}", self.name)
    }

    /// Makes tenants, each with a namespace and a worker cluster.
    pub async fn tenants<const N: usize>(&self, names: [&str; N]) -> [Tenant; N] {
        let management = self.world.management.admin().await;
        let namespaces: Api<Namespace> = Api::all(management.clone());
        self.begin(&management).await;
        let leases = self.world.workers::<N>().await;
        let mut tenants = Vec::new();
        for (name, worker) in names.into_iter().zip(leases) {
            let namespace = format!("{}-{name}", self.name);
            let made = fixtures::a_namespace(&namespace);
            create(&namespaces, &made).await;
            tenants.push(Tenant {
                namespace,
                admin: worker.admin().await,
                worker,
                management: management.clone(),
                world: self.world,
                opened: Timestamp::now(),
                labels: BTreeMap::from([
                    (WORKER_CLUSTER_LABEL.to_owned(), "true".to_owned()),
                    ("scenario".to_owned(), self.name.to_owned()),
                ]),
            });
        }
        tenants.try_into().ok().expect("that many were made")
    }

    /// The fleet's last replica has left in order: who comes needs not wait for anybody unseen.
    async fn begin(&self, management: &Client) {
        let leases: Api<coordination::Lease> =
            Api::namespaced(management.clone(), MANAGER.namespace);
        let last = fixtures::the_last_lease(self.name);
        match leases.create(&PostParams::default(), &last).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            created => drop(ok(created, "a stage's name is its own")),
        }
    }

    /// Makes one tenant.
    pub async fn tenant(&self) -> Tenant {
        let [tenant] = self.tenants(["tenant"]).await;
        tenant
    }
}

impl Tenant {
    /// Registers the worker cluster with the rights of `manifests/rbac/worker.yaml`.
    pub async fn register(&self) {
        let kubeconfig = self.worker.kubeconfig(IN_WORKER).await;
        self.register_as(WORKER, &kubeconfig).await;
    }

    /// Registers a worker cluster under a name, with any kubeconfig.
    pub async fn register_as(&self, name: &str, kubeconfig: &str) {
        let mut secret = fixtures::a_secret(name, ("kubeconfig", kubeconfig));
        secret.metadata.labels = Some(self.labels.clone());
        let registrations = self.registrations();
        create(&registrations, &secret).await;
    }

    /// Puts another kubeconfig into the registration.
    pub async fn set_kubeconfig(&self, kubeconfig: &str) {
        let patch = json!({ "stringData": { "kubeconfig": kubeconfig } });
        merge(&self.registrations(), WORKER, patch).await;
    }

    /// Removes the registration.
    pub async fn unregister(&self) {
        let registrations = self.registrations();
        delete(&registrations, WORKER).await;
    }

    /// Removes the registration, and waits until the WorkerCluster says so.
    pub async fn leave(&self) {
        self.unregister().await;
        let removed = ("Registered", "False", "RegistrationRemoved");
        drop(self.says_of(WORKER, removed).await);
    }

    /// Says something in the WorkerCluster's spec, made where there is none.
    pub async fn configure(&self, mut spec: Value) {
        let reference = json!({ "name": WORKER });
        spec.as_object_mut()
            .expect("a spec is an object")
            .insert("kubeconfigSecretRef".to_owned(), reference);
        let object = json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
            "metadata": { "name": WORKER }, "spec": spec,
        });
        let params = PatchParams::apply("operator").force();
        let worker_clusters = self.worker_clusters();
        let applied = worker_clusters
            .patch(WORKER, &params, &Patch::Apply(&object))
            .await;
        ok(applied, "the WorkerCluster is applied");
    }

    /// Waits until a condition of the WorkerCluster has the status and reason.
    pub async fn says(&self, condition: &str, status: &str, reason: &str) -> WorkerCluster {
        self.says_of(WORKER, (condition, status, reason)).await
    }

    /// As [`Self::says`], of any WorkerCluster of the tenant.
    pub async fn says_of(&self, name: &str, wanted: (&str, &str, &str)) -> WorkerCluster {
        let what = format!("{} says {wanted:?}", self.namespace);
        wait::for_object(&self.worker_clusters(), name, &what, |found| {
            conditions(found).contains(&wanted)
        })
        .await
    }

    /// Waits until the status has an entry that satisfies the condition.
    pub async fn entry(
        &self,
        machine_deployment: &str,
        (state, reason): (&str, &str),
    ) -> MachineDeploymentEntry {
        let is_it = |entry: &&MachineDeploymentEntry| {
            entry.name == machine_deployment
                && format!("{:?}", entry.state) == state
                && entry.reason == reason
        };
        let what = format!("{machine_deployment} is {state}, {reason}");
        let found = wait::for_object(&self.worker_clusters(), WORKER, &what, |found| {
            entries(found).iter().any(|entry| is_it(&entry))
        })
        .await;
        let entry = entries(&found).iter().find(is_it).cloned();
        entry.expect("it was just seen")
    }

    /// Waits until the status says that a machine deployment of `kube-system` is current.
    pub async fn is_current(&self, name: &str) {
        let name = format!("{KUBE_SYSTEM}/{name}");
        drop(self.entry(&name, ("Served", "Current")).await);
    }

    /// Waits until the status says why a machine deployment of `kube-system` is refused.
    pub async fn is_refused(&self, name: &str, reason: &str) -> MachineDeploymentEntry {
        let name = format!("{KUBE_SYSTEM}/{name}");
        self.entry(&name, ("Refused", reason)).await
    }

    /// Makes a machine deployment in the worker cluster.
    pub async fn create(&self, machine_deployment: &MachineDeployment) -> MachineDeployment {
        let namespace = machine_deployment.namespace().unwrap_or_default();
        let api = self.machine_deployments_in(&namespace);
        let created = api.create(&PostParams::default(), machine_deployment).await;
        ok(created, "the machine deployment is made")
    }

    /// Deletes a machine deployment of `kube-system`.
    pub async fn delete(&self, name: &str) {
        delete(&self.machine_deployments(), name).await;
    }

    /// Makes a machine deployment, and waits until it is served.
    pub async fn serve(&self, machine_deployment: &MachineDeployment) -> Made {
        let created = self.create(machine_deployment).await;
        let revision = created
            .annotations()
            .get(osm::api::names::REVISION)
            .cloned();
        self.made(&created.name_any(), &revision.unwrap_or_default())
            .await
    }

    /// Waits until what is made for a machine deployment in `kube-system` is made for a revision.
    pub async fn made(&self, name: &str, revision: &str) -> Made {
        self.made_when(name, |secret| {
            fixtures::has_annotation(secret, (MADE_FOR_REVISION, revision))
        })
        .await
    }

    /// Waits until the bootstrap Secret, which is written last, satisfies the condition.
    pub async fn made_when(&self, name: &str, condition: impl Fn(&Secret) -> bool) -> Made {
        let names = DerivedNames::new(KUBE_SYSTEM, name);
        let bootstrap = wait::for_object(
            &self.secrets(),
            &names.bootstrap,
            "what is made for it is current",
            condition,
        )
        .await;
        let secrets = self.secrets();
        let provisioning = secrets.get(&names.provisioning).await;
        let kubelet_kubeconfig = secrets.get(&names.kubelet_kubeconfig).await;
        let config = self.configs().get(&names.config).await;
        Made {
            config: ok(config, "the config is there"),
            provisioning: ok(provisioning, "the provisioning Secret is there"),
            bootstrap,
            kubelet_kubeconfig: ok(kubelet_kubeconfig, "the kubelet's kubeconfig is there"),
            names,
        }
    }

    /// The bootstrap tokens of a machine deployment.
    pub async fn tokens_of(&self, names: &DerivedNames) -> Vec<Secret> {
        let ours = kube::api::ListParams::default().labels(&format!("{TOKEN_LABEL}={}", names.key));
        ok(self.tokens().list(&ours).await, "tokens are listed").items
    }

    /// Merges a patch into a machine deployment of `kube-system`.
    pub async fn change(&self, name: &str, patch: Value) {
        merge(&self.machine_deployments(), name, patch).await;
    }

    /// Sets an annotation of a machine deployment of `kube-system`.
    pub async fn annotate(&self, name: &str, (key, value): (&str, &str)) {
        let patch = json!({ "metadata": { "annotations": { key: value } } });
        self.change(name, patch).await;
    }

    /// Every write of the manager to this tenant's clusters since a time.
    pub fn writes(&self, since: Timestamp) -> Vec<Request> {
        let requests = self.requests(since).into_iter();
        requests.filter(Request::is_write).collect()
    }

    /// Every request of the manager to this tenant's clusters since a time.
    pub fn requests(&self, since: Timestamp) -> Vec<Request> {
        let management = self.world.management.requests(MANAGER, since).into_iter();
        let management =
            management.filter(|it| it.namespace == self.namespace || std::thread::panicking());
        let worker = self.worker.requests(IN_WORKER, since);
        management.chain(worker).collect()
    }

    /// A kubeconfig that may do everything in the management cluster.
    pub fn management_admin(&self) -> String {
        self.world.management.admin_in(&self.namespace)
    }

    /// Applies manifests in the management cluster.
    pub async fn apply_in_management(&self, yaml: &str) {
        self.world.management.apply(yaml).await;
    }

    /// Registrations, and other Secrets of the tenant's namespace.
    pub fn registrations(&self) -> Api<Secret> {
        Api::namespaced(self.management.clone(), &self.namespace)
    }

    /// The tenant's WorkerClusters.
    pub fn worker_clusters(&self) -> Api<WorkerCluster> {
        Api::namespaced(self.management.clone(), &self.namespace)
    }

    /// The tenant's profiles.
    pub fn profiles(&self) -> Api<OperatingSystemProfile> {
        Api::namespaced(self.management.clone(), &self.namespace)
    }

    /// The tenant's configs.
    pub fn configs(&self) -> Api<OperatingSystemConfig> {
        Api::namespaced(self.management.clone(), &self.namespace)
    }

    /// Events in the tenant's namespace.
    pub fn events(&self) -> Api<Event> {
        Api::namespaced(self.management.clone(), &self.namespace)
    }

    /// Events in `kube-system` of the worker cluster.
    pub fn worker_events(&self) -> Api<Event> {
        Api::namespaced(self.admin.clone(), KUBE_SYSTEM)
    }

    /// Waits for an Event about a machine deployment, and returns its note.
    pub async fn machine_deployment_event(&self, reason: &str, holds: &str) -> String {
        let is_it = |event: &Event| {
            let note = event.note.as_deref().unwrap_or_default();
            event.reason.as_deref() == Some(reason) && note.contains(holds)
        };
        let what = format!("{}: {reason} says {holds}", self.namespace);
        let events = self.worker_events();
        let seen = wait::for_objects(&events, &what, |seen| seen.values().any(is_it)).await;
        let note = seen.into_values().find(is_it).and_then(|it| it.note);
        note.expect("it was just there")
    }

    /// What nodes fetch.
    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.admin.clone(), CLOUD_INIT_SETTINGS)
    }

    /// The nodes of the worker cluster.
    pub fn nodes(&self) -> Api<Node> {
        Api::all(self.admin.clone())
    }

    /// Where the bootstrap tokens are.
    pub fn tokens(&self) -> Api<Secret> {
        Api::namespaced(self.admin.clone(), KUBE_SYSTEM)
    }

    /// The machine deployments of `kube-system`.
    pub fn machine_deployments(&self) -> Api<MachineDeployment> {
        self.machine_deployments_in(KUBE_SYSTEM)
    }

    /// The machine deployments of a namespace.
    pub fn machine_deployments_in(&self, namespace: &str) -> Api<MachineDeployment> {
        Api::namespaced(self.admin.clone(), namespace)
    }
}

/// A failed test tells what the manager did.
impl Drop for Tenant {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let requests = told(&self.requests(self.opened));
            eprintln!("{}, as the servers saw it:\n{requests}", self.namespace);
            eprintln!("and as it was logged:\n{}", crate::logged(&self.namespace));
        }
    }
}

/// Everything that is made for one machine deployment, but the token.
#[derive(Clone, Debug)]
pub struct Made {
    /// The names.
    pub names: DerivedNames,
    /// The config.
    pub config: OperatingSystemConfig,
    /// The provisioning Secret.
    pub provisioning: Secret,
    /// The bootstrap Secret.
    pub bootstrap: Secret,
    /// The Secret with the kubelet's bootstrap kubeconfig.
    pub kubelet_kubeconfig: Secret,
}

impl Made {
    /// The uids of the config, the provisioning, the bootstrap and the kubelet kubeconfig Secret.
    pub fn uids(&self) -> [Option<String>; 4] {
        [
            self.config.uid(),
            self.provisioning.uid(),
            self.bootstrap.uid(),
            self.kubelet_kubeconfig.uid(),
        ]
    }

    /// The provisioning document, with its files decoded.
    pub fn provisioning_text(&self) -> String {
        fixtures::text(&self.provisioning, osm::api::names::CLOUD_CONFIG_KEY)
    }
}

/// The conditions as type, status and reason.
pub fn conditions(found: &WorkerCluster) -> Vec<(&str, &str, &str)> {
    let conditions = found.status.iter().flat_map(|status| &status.conditions);
    conditions
        .map(|it| (it.type_.as_str(), it.status.as_str(), it.reason.as_str()))
        .collect()
}

/// The message of a condition.
pub fn message<'a>(found: &'a WorkerCluster, condition: &str) -> &'a str {
    let mut conditions = found.status.iter().flat_map(|status| &status.conditions);
    conditions
        .find(|it| it.type_ == condition)
        .map_or("", |it| it.message.as_str())
}

/// The entries of the machine deployments.
pub fn entries(found: &WorkerCluster) -> &[MachineDeploymentEntry] {
    found
        .status
        .as_ref()
        .map_or(&[], |status| &status.machine_deployments)
}
