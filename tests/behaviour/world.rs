//! The clusters of one test binary: a management cluster for all scenarios, and worker clusters
//! that one scenario has at a time. The manager runs as its own ServiceAccount in each.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::coordination::v1 as coordination;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use osm::api::machine_deployment::MachineDeployment;
use osm::api::names::{CLAIM, CLOUD_INIT_SETTINGS, FETCHER, FETCHER_TOKEN, KUBE_SYSTEM};
use osm::fleet::adoption::{LEASE, WORKER_LEASE};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::administrator::list;
use crate::server::{Account, Kind, Server, ok};
use crate::wait;

/// Who the manager is in the management cluster.
pub const MANAGER: Account = Account {
    namespace: "operating-system-manager",
    name: "operating-system-manager",
};
/// Who the manager is in worker clusters.
pub const IN_WORKER: Account = Account {
    namespace: "kube-system",
    name: "operating-system-manager",
};

/// The Role, and its binding, of `manifests/rbac/worker-node-credentials.yaml`.
const NODE_CREDENTIALS: &str = "operating-system-manager-worker-node-credentials";

/// Worker clusters at once; no scenario needs more than three. A real one takes 345 MiB and, to
/// start, five seconds of a core; one in memory costs nothing.
const fn workers_max(kind: Kind) -> usize {
    match kind {
        Kind::Fake => 18,
        Kind::Real => 5,
    }
}

/// The clusters of one test binary.
pub struct World {
    /// Which world.
    pub kind: Kind,
    /// The management cluster.
    pub management: Server,
    /// The manager's way into it.
    pub management_kubeconfig: String,
    idle: Mutex<Vec<Server>>,
    permits: Arc<Semaphore>,
}

/// A worker cluster, for one scenario alone.
pub struct Lease {
    world: &'static World,
    server: Option<Server>,
    _permit: OwnedSemaphorePermit,
}

impl World {
    /// Starts the management cluster and installs what operators install.
    pub async fn start(kind: Kind) -> Self {
        let management = a_management_cluster(kind).await;
        let version = management.version().await;
        if kind == Kind::Fake {
            let recorded = loadtest::tested_servers::record(&format!("fake-cluster {version}"));
            ok(recorded, "the list of tested servers is writable");
        }
        tell(&format!(
            "behaviour suite: {kind:?} world, server version {version}"
        ));
        Self {
            kind,
            management_kubeconfig: management.kubeconfig(MANAGER).await,
            management,
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(workers_max(kind))),
        }
    }

    /// Returns `N` worker clusters, as if they were new. It takes all together, or two scenarios
    /// could wait for each other.
    pub async fn workers<const N: usize>(&'static self) -> [Lease; N] {
        let count = u32::try_from(N).expect("a few");
        let permits = Arc::clone(&self.permits).acquire_many_owned(count).await;
        let mut permits = permits.expect("the semaphore is never closed");
        let mut leases = Vec::new();
        for _ in 0..N {
            let permit = permits.split(1).expect("that many were taken");
            let idle = self.idle().pop();
            let server = match idle {
                Some(used) => {
                    give_rights_again(&used).await;
                    clean(&used.admin().await).await;
                    used
                }
                None => a_worker_cluster(self.kind).await,
            };
            leases.push(Lease {
                world: self,
                server: Some(server),
                _permit: permit,
            });
        }
        leases.try_into().ok().expect("that many were made")
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Server>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Lease {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.server.as_ref().expect("it is taken by drop alone")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let server = self.server.take();
        // One in memory costs nothing to make.
        self.world
            .idle()
            .extend(server.filter(|it| it.real().is_some()));
    }
}

/// A management cluster with definitions, roles and the manager's ServiceAccount.
pub async fn a_management_cluster(kind: Kind) -> Server {
    let management = Server::start(kind, "management").await;
    install(&management, &["management", "management-all-namespaces"]).await;
    management
}

/// Installs the definitions, the manager's namespace, and roles in `manifests/rbac`.
pub async fn install(management: &Server, roles: &[&str]) {
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: operating-system-manager}\n";
    management.apply(namespace).await;
    let definitions = ok(osm::cli::crds::crds_yaml(), "the definitions are YAML");
    management.apply(&definitions).await;
    for file in roles {
        let path = format!("manifests/rbac/{file}.yaml");
        management.apply_file(&path).await;
    }
}

/// Installs what machines and machine-controller need in a worker cluster.
pub async fn has_machine_controller(worker: &Server) {
    for file in ["machinedeployments", "kubelet-bootstrap"] {
        let path = format!("tenants-example/worker-crds/{file}.yaml");
        worker.apply_file(&path).await;
    }
}

/// A worker cluster with roles, and the definition of machine deployments.
pub async fn a_worker_cluster(kind: Kind) -> Server {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("worker-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let worker = Server::start(kind, &name).await;
    give_rights(&worker).await;
    has_machine_controller(&worker).await;
    worker
}

/// They are an administrator's: a mark of `osm tenant add` in an earlier scenario goes.
async fn give_rights(worker: &Server) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/rbac");
    for file in ["worker.yaml", "worker-adoption.yaml"] {
        let text = std::fs::read_to_string(folder.join(file));
        let text = text.expect("the file is part of the repository");
        let documents = serde_saphyr::from_multiple(&text).expect("our manifests are YAML");
        for mut document in documents as Vec<DynamicObject> {
            let by = ("app.kubernetes.io/managed-by", "an-administrator");
            document
                .labels_mut()
                .insert(by.0.to_owned(), by.1.to_owned());
            let document = ok(serde_json::to_string(&document), "it was read as well");
            worker.apply(&document).await;
        }
    }
}

/// An earlier scenario may have taken the namespace away, or the roles.
async fn give_rights_again(worker: &Server) {
    let namespaces: Api<Namespace> = Api::all(worker.admin().await);
    let found = namespaces.get_metadata_opt(CLOUD_INIT_SETTINGS).await;
    let found = ok(found, "it is looked for");
    if found.is_some_and(|it| it.metadata.deletion_timestamp.is_some()) {
        wait::for_absence(&namespaces, CLOUD_INIT_SETTINGS).await;
    }
    give_rights(worker).await;
}

/// Takes away what an earlier scenario has left behind.
async fn clean(admin: &Client) {
    let all: Api<MachineDeployment> = Api::all(admin.clone());
    // Some scenarios leave machine deployments that do not decode as such.
    let found = all.list_metadata(&ListParams::default()).await;
    for found in ok(found, "they are listed") {
        let namespace = found.namespace().unwrap_or_default();
        let api: Api<MachineDeployment> = Api::namespaced(admin.clone(), &namespace);
        let bare = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        let name = found.name_any();
        // One that was going anyway goes with its finalizer.
        let _ = api.patch(&name, &PatchParams::default(), &bare).await;
        let _ = api.delete(&name, &DeleteParams::default()).await;
    }
    let delete = DeleteParams::default();
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), CLOUD_INIT_SETTINGS);
    let roles: Api<Role> = Api::namespaced(admin.clone(), CLOUD_INIT_SETTINGS);
    let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), CLOUD_INIT_SETTINGS);
    // Rights that a scenario added; the fetcher; and what was made with those rights, or has such a
    // name though another made it. Those that are not there are as clean.
    let made = list(&accounts).await.into_iter().map(|it| it.name_any());
    let more = [FETCHER, NODE_CREDENTIALS].map(str::to_owned);
    for name in made.chain(more) {
        let _ = accounts.delete(&name, &delete).await;
        let _ = roles.delete(&name, &delete).await;
        let _ = bindings.delete(&name, &delete).await;
    }
    let all = ListParams::default();
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), CLOUD_INIT_SETTINGS);
    // The token controller takes the token away once it knows that its account is gone. Before
    // that it would fill a new one with a token of the old account. It looks at a token when that
    // changes, which may have been before it heard of the account: a touch makes it look again.
    let mut touches = 0;
    wait::until("the fetcher's token is gone", async || {
        touches += 1;
        let touch = json!({ "metadata": { "annotations": { "touches": touches.to_string() } } });
        let (params, touch) = (PatchParams::default(), Patch::Merge(touch));
        let patched = secrets.patch(FETCHER_TOKEN, &params, &touch).await;
        let refused = patched.err()?;
        matches!(&refused, kube::Error::Api(status) if status.is_not_found()).then_some(())
    })
    .await;
    ok(secrets.delete_collection(&delete, &all).await, "Secrets go");
    let events: Api<Event> = Api::namespaced(admin.clone(), KUBE_SYSTEM);
    ok(events.delete_collection(&delete, &all).await, "Events go");
    let tokens: Api<Secret> = Api::namespaced(admin.clone(), KUBE_SYSTEM);
    // That of a kubeconfig that `osm tenant add` made.
    let _ = tokens
        .delete("operating-system-manager-token", &delete)
        .await;
    let bootstrap = ListParams::default().fields("type=bootstrap.kubernetes.io/token");
    ok(
        tokens.delete_collection(&delete, &bootstrap).await,
        "tokens go",
    );
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    let unclaimed = Patch::Merge(json!({ "metadata": { "annotations": { CLAIM: null } } }));
    let patched = namespaces
        .patch(CLOUD_INIT_SETTINGS, &PatchParams::default(), &unclaimed)
        .await;
    ok(patched, "the claim goes");
    wait::for_objects(&secrets, "no Secrets", BTreeMap::is_empty).await;
    Box::pin(forget_predecessors(admin)).await;
}

/// No scenario expects that another program has served its worker cluster, but those that say so.
async fn forget_predecessors(admin: &Client) {
    let (one, all) = (DeleteParams::default(), ListParams::default());
    let leases: Api<coordination::Lease> = Api::namespaced(admin.clone(), KUBE_SYSTEM);
    for lease in [LEASE, WORKER_LEASE] {
        let _ = leases.delete(lease, &one).await;
    }
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(admin.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(admin.clone());
    ok(mutating.delete_collection(&one, &all).await, "they go").map_left(drop);
    ok(validating.delete_collection(&one, &all).await, "they go").map_left(drop);
    let definitions: Api<CustomResourceDefinition> = Api::all(admin.clone());
    for found in ok(definitions.list(&all).await, "they are listed") {
        if found.spec.group == "operatingsystemmanager.k8c.io" {
            let deleted = definitions.delete(&found.name_any(), &one).await;
            ok(deleted, "it goes").map_left(drop);
            wait::for_absence(&definitions, &found.name_any()).await;
        }
    }
}

/// Says it past the test harness, which keeps the output of tests that pass.
pub fn tell(line: &str) {
    use std::io::Write;
    // Nobody reads it: that is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{line}");
}
