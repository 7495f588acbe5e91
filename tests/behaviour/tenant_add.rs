//! `osm tenant add` and `osm tenant remove`: from a worker cluster that knows nothing of the
//! manager to a served one, and back.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use osm::api::names::{CLOUD_INIT_SETTINGS, FINALIZER, KUBE_SYSTEM, PROFILE};
use osm::api::worker_cluster::{NodeCredentials, WorkerCluster};
use serde_json::{Value, json};

use crate::administrator::{delete, find, get, merge};
use crate::audit::{Request, told};
use crate::commands::{Admin, Said, a_file, path};
use crate::fixtures::{a_machine_deployment, text, with_annotation};
use crate::process::Manager;
use crate::proxy::Proxy;
use crate::removal::remains;
use crate::server::{Kind, ok};
use crate::stage::{Stage, Tenant, WORKER};
use crate::tenant_remove;
use crate::wait;
use crate::world::{IN_WORKER, World};

const ACCOUNT: &str = "operating-system-manager";
const ROLE: &str = "operating-system-manager-worker";

pub async fn a_bare_cluster_is_added_served_and_removed(world: &'static World) {
    let stage = Stage::open(world, "tenant-add");
    let mut tenant = stage.tenant().await;
    // The command makes the namespace.
    "tenant-add-new".clone_into(&mut tenant.namespace);
    let admin = Admin::of(&tenant);
    strip(&tenant).await;
    let add = Add::of(&stage, &tenant);
    let mut said = Vec::new();

    let dry = admin
        .osm_in_both(&add.words(&["--dry-run", "-o", "yaml"]))
        .await;
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert!(dry.out.contains("kind: ClusterRoleBinding"), "{dry:?}");
    assert!(dry.out.contains("kubeconfig: <redacted>"), "{dry:?}");
    assert!(!is_there(&tenant).await, "a dry run writes nothing");
    let namespaces: Api<Namespace> = Api::all(tenant.management.clone());
    let made = find(&namespaces, &tenant.namespace).await;
    assert!(made.is_none(), "a dry run makes no namespace");
    said.push(dry);

    let manager = Manager::start(&stage, &[]).await;
    let begun = Timestamp::now();
    let added = admin.osm_in_both(&add.words(&[])).await;
    assert_eq!(added.code, Some(0), "{added:?}");
    assert!(
        added.out.contains("ready: tenant-add-new/worker"),
        "{added:?}"
    );
    said.push(added);
    let made = tenant.serve(&a_machine_deployment("workers")).await;
    tenant.says("Ready", "True", "Ready").await;
    refused_nothing(&tenant, begun).await;

    let version = resource_versions(&tenant).await;
    for more in [&[][..], &["--dry-run"]] {
        let again = admin.osm_in_both(&add.words(more)).await;
        assert_eq!(again.code, Some(0), "{again:?}");
        assert!(again.out.contains("nothing to write"), "{again:?}");
        said.push(again);
    }
    assert_eq!(resource_versions(&tenant).await, version);
    add_beside_a_mistake((&admin, &add), &tenant).await;

    let remove = ["tenant", "remove", WORKER, "-n", &tenant.namespace];
    let unasked = admin.osm_in_both(&remove).await;
    assert_eq!(unasked.code, Some(1), "{unasked:?}");
    assert!(unasked.err.contains("--yes"), "{unasked:?}");
    assert!(is_there(&tenant).await, "nobody has agreed");
    said.push(unasked);
    let token = token(&tenant).await;
    let yes = [&remove[..], &["--yes", "--on-removal", "purge"]].concat();
    let removed = admin.osm_in_both(&yes).await;
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert!(
        removed.out.contains("what was made for them was deleted"),
        "{removed:?}"
    );
    said.push(removed);
    assert_eq!(remains(&tenant, &made).await, Vec::<String>::new());
    assert!(!is_there(&tenant).await, "what was added is gone");
    let own = find(&tenant.worker_clusters(), WORKER).await;
    assert!(own.is_none(), "the WorkerCluster goes, too");
    let workers = get(&tenant.machine_deployments(), "workers").await;
    assert!(!workers.finalizers().contains(&FINALIZER.to_owned()));
    manager.stop().await;
    for said in &said {
        assert!(!said.all().contains(&token), "no token is told: {said:?}");
    }
}

pub async fn what_the_manager_would_refuse_is_refused_before_anything_is_written(
    world: &'static World,
) {
    let stage = Stage::open(world, "tenant-add-refused");
    let tenant = stage.tenant().await;
    let admin = Admin::of(&tenant);
    let add = Add::of(&stage, &tenant);
    let on_loopback = ["tenant", "add", WORKER, "-n", &tenant.namespace];
    holds(
        &admin.osm_in_both(&on_loopback).await,
        &["loopback", "--server"],
    );
    let elsewhere = add.words(&["--server", "https://169.254.169.254"]);
    holds(&admin.osm_in_both(&elsewhere).await, &["link-local"]);
    let itself = a_file(&tenant.management_admin());
    let words = add.words(&["--worker-kubeconfig", path(&itself)]);
    holds(&admin.osm(&words).await, &["the management cluster itself"]);
    let nobody = a_file(&tenant.worker.kubeconfig(IN_WORKER).await);
    let words = add.words(&["--worker-kubeconfig", path(&nobody)]);
    let said = admin.osm(&words).await;
    let clusterroles = "worker cluster: patch clusterroles operating-system-manager-worker";
    holds(&said, &["these rights are missing", clusterroles]);
    let away = a_file(
        &tenant
            .worker
            .admin_in("default")
            .replace(&tenant.worker.url(), "https://127.0.0.1:9"),
    );
    let words = add.words(&["--worker-kubeconfig", path(&away)]);
    holds(
        &admin.osm(&words).await,
        &["--worker-kubeconfig", "does not tell who it is"],
    );

    let leases: Api<Lease> = Api::namespaced(tenant.admin.clone(), KUBE_SYSTEM);
    let lease = leases.create(&PostParams::default(), &a_held_lease()).await;
    drop(ok(lease, "an administrator may create"));
    let words = add.words(&[]);
    let said = admin.osm_in_both(&words).await;
    holds(
        &said,
        &[
            "another operating-system-manager serves",
            "the-one-before",
            "--adopt",
        ],
    );
    delete(&leases, OTHERS_LEASE).await;
    wrote_nothing(&tenant).await;
}

pub async fn a_name_a_cluster_or_a_namespace_of_somebody_else_is_refused(world: &'static World) {
    let stage = Stage::open(world, "tenant-add-taken");
    let [tenant, other] = stage.tenants(["one", "other"]).await;
    let admin = Admin::of(&tenant);
    let add = Add::of(&stage, &tenant);
    let manager = Manager::start(&stage, &[]).await;
    other.register().await;
    other.says("Ready", "True", "Ready").await;
    // The cluster is the other tenant's.
    let words = add.words(&[]);
    let said = Admin::of(&other).osm_in_both(&words).await;
    holds(
        &said,
        &[
            "is tenant tenant-add-taken-other",
            "osm tenant remove worker",
        ],
    );
    // The name is the other cluster's.
    let words = Add::of(&stage, &other).words(&[]).join(" ");
    let words: Vec<&str> = words.split(' ').collect();
    holds(
        &admin.osm_in_both(&words).await,
        &[
            "is another worker cluster",
            "status.clusterUid",
            "confirmedClusterUid",
        ],
    );
    let words = [
        "tenant",
        "add",
        "second",
        "-n",
        &other.namespace,
        "--allow-loopback-servers",
    ];
    holds(
        &admin.osm_in_both(&words).await,
        &["a tenant has one worker cluster"],
    );
    wrote_nothing(&tenant).await;
    manager.stop().await;
}

/// Nobody was registered, and nothing was made.
async fn wrote_nothing(tenant: &Tenant) {
    let nothing = find(&tenant.registrations(), WORKER).await;
    assert!(nothing.is_none(), "nobody was registered");
    let made: Api<Secret> = Api::namespaced(tenant.admin.clone(), KUBE_SYSTEM);
    let made = find(&made, &format!("{ACCOUNT}-token")).await;
    assert!(made.is_none(), "and nothing was made");
}

pub async fn what_was_there_before_is_used_and_stays_and_a_setting_is_not_forgotten(
    world: &'static World,
) {
    let stage = Stage::open(world, "tenant-add-found");
    let tenant = stage.tenant().await;
    let admin = Admin::of(&tenant);
    let add = Add::of(&stage, &tenant);
    let manager = Manager::start(&stage, &[]).await;
    let added = admin.osm_in_both(&add.words(&["--node-credentials"])).await;
    assert_eq!(added.code, Some(0), "{added:?}");
    // Without the flag, what was asked for before stays.
    let again = admin.osm_in_both(&add.words(&[])).await;
    assert!(again.out.contains("nothing to write"), "{again:?}");
    let own = get(&tenant.worker_clusters(), WORKER).await;
    let expected = Some(NodeCredentials::PerMachineDeployment);
    assert_eq!(own.spec.node_credentials, expected);
    // A token that is revoked is recreated, and registered.
    let revoked = token(&tenant).await;
    let secrets: Api<Secret> = Api::namespaced(tenant.admin.clone(), KUBE_SYSTEM);
    let name = format!("{ACCOUNT}-token");
    delete(&secrets, &name).await;
    let again = admin.osm_in_both(&add.words(&[])).await;
    let created = format!("created Secret {name}");
    assert!(again.out.contains(&created), "{again:?}");
    let registered = get(&tenant.registrations(), WORKER).await;
    let registered = text(&registered, "kubeconfig");
    let registered: Value = ok(serde_saphyr::from_str(&registered), "it is YAML");
    let fresh = token(&tenant).await;
    let registered = registered.pointer("/users/0/user/token");
    assert_eq!(registered, Some(&json!(fresh)));
    // A server in memory makes the same token of the same account again.
    assert!(fresh != revoked || world.kind == Kind::Fake);
    add_over_an_immutable_registration((&admin, &add), &tenant).await;
    tenant.serve(&a_machine_deployment("workers")).await;
    tenant
        .says("NodeCredentials", "True", "PerMachineDeployment")
        .await;

    let remove = ["tenant", "remove", WORKER, "-n", &tenant.namespace, "--yes"];
    tenant_remove::keep((&admin, &tenant), &remove).await;
    let token = ok(secrets.get_metadata_opt(&name).await, "it is looked for");
    assert!(token.is_some(), "nothing in the worker cluster goes");
    let removed = admin.osm_in_both(&remove).await;
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert!(
        removed.out.contains("1 machine deployment was released"),
        "{removed:?}"
    );
    tenant.delete("workers").await;
    wait::for_absence(&tenant.machine_deployments(), "workers").await;
    let stays = "ServiceAccount operating-system-manager in kube-system stays";
    assert!(removed.out.contains(stays), "{removed:?}");
    wait::for_absence(&secrets, &name).await;
    let roles: Api<Role> = Api::namespaced(tenant.admin.clone(), CLOUD_INIT_SETTINGS);
    let found = find(&roles, ROLE).await;
    assert!(found.is_some(), "somebody else has made it");
    let made = find(&roles, "operating-system-manager-worker-node-credentials").await;
    assert!(made.is_none(), "the command has made it");
    let own = find(&tenant.worker_clusters(), WORKER).await;
    assert!(own.is_none(), "the WorkerCluster goes");
    let again = admin.osm_in_both(&remove).await;
    assert!(again.err.contains("neither a registration"), "{again:?}");
    manager.stop().await;
}

/// The error says what helps, and that helps.
async fn add_over_an_immutable_registration((admin, add): (&Admin, &Add), tenant: &Tenant) {
    let registered = get(&tenant.registrations(), WORKER).await;
    let another = format!("{}\n# another\n", text(&registered, "kubeconfig"));
    let change = json!({ "immutable": true, "stringData": { "kubeconfig": another } });
    merge(&tenant.registrations(), WORKER, change).await;
    let refused = admin.osm_in_both(&add.words(&[])).await;
    let help = "; it is immutable: delete it first";
    assert!(refused.err.contains(help), "{refused:?}");
    delete(&tenant.registrations(), WORKER).await;
    let added = admin.osm_in_both(&add.words(&[])).await;
    assert_eq!(added.code, Some(0), "{added:?}");
}

/// A machine deployment that its tenant must correct is no failure of the operator.
async fn add_beside_a_mistake((admin, add): (&Admin, &Add), tenant: &Tenant) {
    let lost = with_annotation(a_machine_deployment("lost"), (PROFILE, "no-such-profile"));
    drop(tenant.create(&lost).await);
    tenant.says("Ready", "False", "SomeNotServed").await;
    let added = admin.osm_in_both(&add.words(&[])).await;
    assert_eq!(added.code, Some(0), "{added:?}");
    assert!(
        added.out.contains("not all of it is served: SomeNotServed"),
        "{added:?}"
    );
    tenant.delete("lost").await;
    tenant.says("Ready", "True", "Ready").await;
}

pub async fn one_that_is_added_again_is_ready_by_its_new_kubeconfig_alone(world: &'static World) {
    let stage = Stage::open(world, "tenant-add-again");
    let tenant = stage.tenant().await;
    let admin = Admin::of(&tenant);
    let add = Add::of(&stage, &tenant);
    let manager = Manager::start(&stage, &[]).await;
    let added = admin.osm_in_both(&add.words(&[])).await;
    assert_eq!(added.code, Some(0), "{added:?}");
    manager.stop().await;

    // The server has another address now, and nobody is there to try it.
    let proxy = Proxy::start(&tenant.worker.url()).await;
    let url = proxy.url();
    let hasty = ["--server", &url, "--wait", "2s"];
    let said = admin.osm_in_both(&add.words(&hasty)).await;
    holds(&said, &["is not ready after 2 s", "has not taken the new"]);
    let former = tenant.says("Ready", "True", "Ready").await;
    assert_eq!(server_of(&former), tenant.worker.url());

    let manager = Manager::start(&stage, &[]).await;
    let said = admin.osm_in_both(&add.words(&["--server", &url])).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("nothing to write"), "{said:?}");
    let own = get(&tenant.worker_clusters(), WORKER).await;
    assert_eq!(server_of(&own), url);
    // While a manager serves the tenant, the command waits for the change.
    let said = admin.osm_in_both(&add.words(&[])).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("1 object was written"), "{said:?}");
    let own = get(&tenant.worker_clusters(), WORKER).await;
    assert_eq!(server_of(&own), tenant.worker.url());
    manager.stop().await;
}

fn server_of(own: &WorkerCluster) -> String {
    let status = own.status.clone().unwrap_or_default();
    let server = status.server.unwrap_or_default();
    server.trim_end_matches('/').to_owned()
}

/// The Lease of another manager that serves a worker cluster from beside a management cluster.
const OTHERS_LEASE: &str = "operating-system-manager-worker-manager";

fn a_held_lease() -> Lease {
    let now = Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
        .to_string();
    serde_json::from_value(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": OTHERS_LEASE },
        "spec": {
            "holderIdentity": "the-one-before", "leaseDurationSeconds": 60,
            "acquireTime": now, "renewTime": now,
        },
    }))
    .expect("the fixture is well formed")
}

/// The words of `osm tenant add` in a scenario.
pub struct Add {
    namespace: String,
    label: String,
}

impl Add {
    pub fn of(stage: &Stage, tenant: &Tenant) -> Self {
        Self {
            namespace: tenant.namespace.clone(),
            label: format!("scenario={}", stage.name()),
        }
    }

    pub fn words<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let words = [
            "tenant",
            "add",
            WORKER,
            "-n",
            &self.namespace,
            "--label",
            &self.label,
        ];
        let mut words = words.to_vec();
        words.push("--allow-loopback-servers");
        words.extend(more);
        words
    }
}

pub fn holds(said: &Said, words: &[&str]) {
    assert_eq!(said.code, Some(1), "{said:?}");
    for word in words {
        assert!(said.err.contains(word), "{word}: {said:?}");
    }
}

/// The manager was refused nothing since it was let in.
async fn refused_nothing(tenant: &Tenant, since: Timestamp) {
    tenant.worker.settle_audit().await;
    let mut refused: Vec<Request> = tenant.worker.requests(IN_WORKER, since);
    assert!(!refused.is_empty(), "it has asked something");
    // Those of the command itself, while the cluster learns of the rights.
    let agent = |it: &Request| it.code == 403 && !it.user_agent.contains("(command)");
    refused.retain(agent);
    // Without adoption it may not look for another manager, and asks.
    refused.retain(|it| it.resource != "leases");
    assert!(refused.is_empty(), "{}", told(&refused));
}

async fn token(tenant: &Tenant) -> String {
    let secrets: Api<Secret> = Api::namespaced(tenant.admin.clone(), KUBE_SYSTEM);
    let secret = ok(secrets.get(&format!("{ACCOUNT}-token")).await, "it is made");
    let token = text(&secret, "token");
    assert!(token.len() > 20, "it is a token");
    token
}

/// Whether anything of what is added is there.
async fn is_there(tenant: &Tenant) -> bool {
    let accounts: Api<ServiceAccount> = Api::namespaced(tenant.admin.clone(), KUBE_SYSTEM);
    let roles: Api<ClusterRole> = Api::all(tenant.admin.clone());
    let account = find(&accounts, ACCOUNT).await;
    let role = find(&roles, ROLE).await;
    let registration = find(&tenant.registrations(), WORKER).await;
    account.is_some() || role.is_some() || registration.is_some()
}

/// The versions of what is added, which every write changes.
async fn resource_versions(tenant: &Tenant) -> Vec<Option<String>> {
    let accounts: Api<ServiceAccount> = Api::namespaced(tenant.admin.clone(), KUBE_SYSTEM);
    let roles: Api<ClusterRole> = Api::all(tenant.admin.clone());
    let account = get(&accounts, ACCOUNT).await;
    let role = get(&roles, ROLE).await;
    let registration = get(&tenant.registrations(), WORKER).await;
    let all = [
        account.resource_version(),
        role.resource_version(),
        registration.resource_version(),
    ];
    all.to_vec()
}

/// As a cluster that has never heard of the manager.
pub async fn strip(tenant: &Tenant) {
    strip_rights(tenant).await;
    let namespaces: Api<Namespace> = Api::all(tenant.admin.clone());
    delete(&namespaces, CLOUD_INIT_SETTINGS).await;
    wait::for_absence(&namespaces, CLOUD_INIT_SETTINGS).await;
}

/// As a cluster in which the manager may do nothing, and is nobody.
pub async fn strip_rights(tenant: &Tenant) {
    let admin = || tenant.admin.clone();
    let (roles, bindings): (Api<ClusterRole>, Api<ClusterRoleBinding>) =
        (Api::all(admin()), Api::all(admin()));
    for name in [ROLE, "operating-system-manager-worker-adoption"] {
        delete(&roles, name).await;
        delete(&bindings, name).await;
    }
    for namespace in [CLOUD_INIT_SETTINGS, KUBE_SYSTEM, "kube-public", "default"] {
        let roles: Api<Role> = Api::namespaced(admin(), namespace);
        let bindings: Api<RoleBinding> = Api::namespaced(admin(), namespace);
        delete(&roles, ROLE).await;
        delete(&bindings, ROLE).await;
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(admin(), KUBE_SYSTEM);
    delete(&accounts, ACCOUNT).await;
    wait::for_absence(&accounts, ACCOUNT).await;
}
