//! Least privilege: every verb that our manifests grant is one that the manager uses.

use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use osm::api::names::{CLOUD_INIT_SETTINGS, DEFAULT_PROFILE, FETCHER, REVISION, TOKEN_LABEL};
use osm::api::profile::OperatingSystemProfile;
use serde_json::{Value, json};

use crate::administrator::{create, delete, find, merge};
use crate::audit::{Request, told};
use crate::fixtures::{
    self, PROFILE_NAME, a_little_machine_deployment, a_machine_deployment, a_profile, on_cloud,
};
use crate::overlays::{an_overlay, of};
use crate::process::Manager;
use crate::rotation::install;
use crate::server::ok;
use crate::stage::{Made, Stage, Tenant, WORKER, entries};
use crate::wait;
use crate::world::{IN_WORKER, MANAGER, World};

/// Verbs that one life does not use on a resource or an object, each with the reason why it is
/// granted. The scenarios of each fail without them: they run with the same roles.
const UNUSED: &[(&str, &str)] = &[
    // After a write of a Lease that was refused: one that was stopped and goes on.
    ("get", "leases"),
    // Of replicas that were not heard of for long: three of which one is killed.
    ("delete", "leases"),
    // Where a rule of --tenant-policies asks for labels.
    ("get", "namespaces"),
    // Where another program has served the cluster: adoption.
    ("list", "mutatingwebhookconfigurations"),
    ("list", "validatingwebhookconfigurations"),
    ("get", "operatingsystemprofiles"),
    // Where the worker cluster is the tenant's home.
    ("get", "extension-apiserver-authentication"),
    // Where machines report themselves.
    ("list", "nodes"),
];

/// Where the replicas' Leases are.
const LEASES: &str = "operating-system-manager";

/// Roles of these files are for people, or for credentials that end: each of those has a scenario
/// in which nothing goes on without it.
const ELSEWHERE: [&str; 4] = [
    "tenants.yaml",
    "worker-token-renewal.yaml",
    "tenant-token-renewal.yaml",
    "management-federation.yaml",
];

pub async fn every_granted_verb_is_used_in_one_life_and_nothing_else_is_asked_for(
    world: &'static World,
) {
    let stage = Stage::open(world, "rights");
    let tenant = stage.tenant().await;
    lose_contents(world).await;
    let begun = Timestamp::now();
    let manager = begin_without_a_namespace(&stage, &tenant).await;
    let entitled = Timestamp::now();
    live(&stage, &tenant, manager).await;
    tenant.worker.settle_audit().await;
    world.management.settle_audit().await;
    let in_worker = tenant.worker.requests(IN_WORKER, begun);
    let mut in_management = world.management.requests(MANAGER, begun);
    // Those of other scenarios do not count, as far as they can be told apart.
    let of_others = |it: &Request| {
        !["", "kube-system", LEASES, &tenant.namespace].contains(&it.namespace.as_str())
    };
    in_management.retain(|it| !of_others(it));
    let all = in_management.iter().chain(&in_worker);
    let refused = all.filter(|it| it.code == 403 && it.received >= entitled);
    let refused: Vec<Request> = refused.cloned().collect();
    assert!(refused.is_empty(), "{}", told(&refused));
    let mut unused = Vec::new();
    for grant in granted() {
        let requests = if grant.is_in_worker() {
            &in_worker
        } else {
            &in_management
        };
        let is_excused = [&grant.resource, &grant.name]
            .into_iter()
            .any(|what| UNUSED.contains(&(&grant.verb, what)));
        if !is_excused && !requests.iter().any(|it| grant.is_used_by(it)) {
            unused.push(grant.to_string());
        }
    }
    assert!(
        unused.is_empty(),
        "nothing has used:\n{}",
        unused.join("\n")
    );
}

/// Other scenarios have written the contents of default profiles.
async fn lose_contents(world: &World) {
    let contents: Api<OperatingSystemProfile> =
        Api::namespaced(world.management.admin().await, LEASES);
    let labelled = ListParams::default().labels(DEFAULT_PROFILE);
    let params = DeleteParams::default();
    let deleted = contents.delete_collection(&params, &labelled).await;
    drop(ok(deleted, "an administrator may delete"));
}

/// The namespace of the Secrets is missing, and our roles in it with it: the manager makes it, and
/// is refused there until an administrator applies the roles again.
async fn begin_without_a_namespace(stage: &Stage, tenant: &Tenant) -> Manager {
    let namespaces: Api<Namespace> = Api::all(tenant.admin.clone());
    delete(&namespaces, CLOUD_INIT_SETTINGS).await;
    wait::for_absence(&namespaces, CLOUD_INIT_SETTINGS).await;
    // Not every cluster announces itself; those that do not are asked for their endpoints.
    let announced: Api<ConfigMap> = Api::namespaced(tenant.admin.clone(), "kube-public");
    let announcement = find(&announced, "cluster-info").await;
    if announcement.is_some() {
        let delete = DeleteParams::default();
        let deleted = announced.delete("cluster-info", &delete).await;
        ok(deleted, "an administrator may delete").map_left(drop);
    }
    let manager = Manager::start(stage, &[]).await;
    tenant.register().await;
    wait::for_object(&namespaces, CLOUD_INIT_SETTINGS, "it is made", |_| true).await;
    tenant.says("Prepared", "False", "RightsMissing").await;
    bind_fetcher_to_another_role(tenant).await;
    tenant.worker.apply_file("manifests/rbac/worker.yaml").await;
    let rights = "manifests/rbac/worker-node-credentials.yaml";
    tenant.worker.apply_file(rights).await;
    // A real server on loopback has no endpoints.
    if let Some(mut announcement) = announcement {
        tenant.says("Prepared", "False", "NoApiServer").await;
        announcement.metadata = fixtures::named("cluster-info");
        create(&announced, &announcement).await;
    }
    tenant.says("Prepared", "True", "Prepared").await;
    manager
}

/// A binding to another Role than the one that the manager makes: it is replaced.
async fn bind_fetcher_to_another_role(tenant: &Tenant) {
    let binding = json!({
        "metadata": { "name": FETCHER },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "another",
        },
    });
    let binding: RoleBinding = serde_json::from_value(binding).expect("the fields are right");
    let created = bindings(tenant)
        .create(&PostParams::default(), &binding)
        .await;
    drop(ok(created, "an administrator may create"));
}

/// Takes the rules from the Role, and the subject from the binding: both are corrected.
async fn disable_fetcher(tenant: &Tenant) {
    let roles: Api<Role> = Api::namespaced(tenant.admin.clone(), CLOUD_INIT_SETTINGS);
    merge(&roles, FETCHER, json!({ "rules": [] })).await;
    merge(&bindings(tenant), FETCHER, json!({ "subjects": [] })).await;
}

async fn has_its_subject(tenant: &Tenant) {
    let has_subject = |found: &RoleBinding| found.subjects.iter().flatten().count() == 1;
    let bindings = bindings(tenant);
    drop(wait::for_object(&bindings, FETCHER, "it has its subject", has_subject).await);
}

fn bindings(tenant: &Tenant) -> Api<RoleBinding> {
    Api::namespaced(tenant.admin.clone(), CLOUD_INIT_SETTINGS)
}

/// One life: everything that the manager does comes up once.
async fn live(stage: &Stage, tenant: &Tenant, manager: Manager) {
    register_again(tenant).await;
    install(tenant, &a_profile("v1.0.0", "first")).await;
    let made = tenant.serve(&a_little_machine_deployment("workers")).await;
    tenant.annotate("workers", (REVISION, "2")).await;
    drop(tenant.made("workers", "2").await);
    let changed = serde_json::to_value(a_profile("v1.0.1", "second").spec).expect("plain values");
    merge(&tenant.profiles(), PROFILE_NAME, json!({ "spec": changed })).await;
    let is_new = |found: &Secret| found.uid() != made.provisioning.uid();
    let name = made.provisioning.name_any();
    wait::for_object(&tenant.secrets(), &name, "it is recreated", is_new).await;
    // Somebody else's write is verified by a read.
    let edited = json!({ "data": { "kubeconfig": "Zm9yZWlnbg==" } });
    let name = made.kubelet_kubeconfig.name_any();
    merge(&tenant.secrets(), &name, edited).await;
    wait::for_object(&tenant.secrets(), &name, "it is right", |found| {
        found.data == made.kubelet_kubeconfig.data
    })
    .await;
    let older = json!({ "spec": { "version": "v0.0.1+jinja" } });
    tenant.says("ProfilesInstalled", "True", "Installed").await;
    merge(&tenant.profiles(), "osp-ubuntu", older).await;
    wait::for_object(
        &tenant.profiles(),
        "osp-ubuntu",
        "it is ours again",
        |found| found.spec.version != "v0.0.1+jinja",
    )
    .await;
    every_kind(tenant, &made).await;
    manager.stop().await;
    second_half(stage, tenant, &made.names).await;
}

/// A kubeconfig that is refused, then one that works, and settings.
async fn register_again(tenant: &Tenant) {
    let registry = fixtures::a_secret("registries", ("docker.io", r#"{"username":"robot"}"#));
    let registries = tenant.registrations();
    create(&registries, &registry).await;
    tenant.set_kubeconfig("not a kubeconfig").await;
    tenant
        .says("Registered", "False", "KubeconfigRefused")
        .await;
    delete(&tenant.worker_clusters(), WORKER).await;
    // The manager recreates it.
    tenant
        .set_kubeconfig(&tenant.worker.kubeconfig(IN_WORKER).await)
        .await;
    tenant.says("Connected", "True", "Healthy").await;
    tenant
        .configure(json!({
            "registryCredentialsSecretRef": { "name": "registries" },
            "nodeCredentials": "PerMachineDeployment",
            "onRemoval": "Purge",
        }))
        .await;
}

/// One that is refused, a config that somebody else has written, an edge, and an overlay.
async fn every_kind(tenant: &Tenant, made: &Made) {
    let unknown = fixtures::with_annotation(
        a_machine_deployment("lost"),
        (osm::api::names::PROFILE, "no-such-profile"),
    );
    drop(tenant.create(&unknown).await);
    tenant.is_refused("lost", "ProfileNotFound").await;
    // An Event that comes again, with another note, is counted.
    let other = (osm::api::names::PROFILE, "no-such-profile-either");
    tenant.annotate("lost", other).await;
    wait::for_object(
        &tenant.worker_clusters(),
        WORKER,
        "it says the other name",
        |found| {
            let mut messages = entries(found).iter().filter_map(|it| it.message.as_ref());
            messages.any(|message| message.contains("no-such-profile-either"))
        },
    )
    .await;
    // A config that somebody else has annotated is read.
    let foreign = json!({ "metadata": { "annotations": { "example.com/note": "hello" } } });
    merge(&tenant.configs(), &made.names.config, foreign).await;
    tenant.annotate("workers", (REVISION, "3")).await;
    drop(tenant.made("workers", "3").await);
    tenant
        .serve(&on_cloud(a_machine_deployment("at-the-edge"), "edge"))
        .await;
    install(tenant, &an_overlay("site", ("osp-ubuntu", json!({})))).await;
    drop(tenant.serve(&of("overlaid", "site")).await);
}

/// Another token for the same machine deployment, which ends sooner.
async fn a_second_token(tenant: &Tenant, token: Secret, key: &str) -> Secret {
    let mut second = token;
    second.metadata = fixtures::named("bootstrap-token-bbbbbb");
    second
        .labels_mut()
        .insert(TOKEN_LABEL.to_owned(), key.to_owned());
    let data = second.data.get_or_insert_default();
    data.insert(
        "token-id".to_owned(),
        k8s_openapi::ByteString(b"bbbbbb".to_vec()),
    );
    let sooner = Timestamp::now() + jiff::SignedDuration::from_mins(2);
    let sooner = sooner
        .round(jiff::Unit::Second)
        .expect("a time of today")
        .to_string();
    data.insert(
        "expiration".to_owned(),
        k8s_openapi::ByteString(sooner.into_bytes()),
    );
    create(&tenant.tokens(), &second).await
}

/// After a restart: a token that ends soon, one too many, and the end of a machine deployment.
async fn second_half(stage: &Stage, tenant: &Tenant, names: &osm::api::names::DerivedNames) {
    let tokens = tenant.tokens_of(names).await;
    let token = tokens.first().expect("it has a token").clone();
    let soon = Timestamp::now() + jiff::SignedDuration::from_mins(5);
    let soon = soon
        .round(jiff::Unit::Second)
        .expect("a time of today")
        .to_string();
    let ends = json!({ "stringData": { "expiration": &soon } });
    merge(&tenant.tokens(), &token.name_any(), ends).await;
    let second = a_second_token(tenant, token.clone(), &names.key).await;
    disable_fetcher(tenant).await;
    let manager = Manager::start(stage, &[]).await;
    has_its_subject(tenant).await;
    // Of two, the one that is valid for longer stays, and is extended.
    wait::for_absence(&tenant.tokens(), &second.name_any()).await;
    wait::for_object(
        &tenant.tokens(),
        &token.name_any(),
        "it is extended",
        |found| fixtures::text(found, "expiration") > soon,
    )
    .await;
    delete(&tenant.configs(), &names.config).await;
    wait::for_object(&tenant.configs(), &names.config, "it is back", |_| true).await;
    drop(tenant.serve(&a_machine_deployment("vanishing")).await);
    tenant.delete("workers").await;
    wait::for_absence(&tenant.machine_deployments(), "workers").await;
    manager.stop().await;
    tenant
        .change("vanishing", json!({ "metadata": { "finalizers": null } }))
        .await;
    tenant.delete("vanishing").await;
    wait::for_absence(&tenant.machine_deployments(), "vanishing").await;
    let manager = Manager::start(stage, &[]).await;
    let names = osm::api::names::DerivedNames::new("kube-system", "vanishing");
    wait::for_absence(&tenant.configs(), &names.config).await;
    tenant.says("Connected", "True", "Healthy").await;
    tenant.leave().await;
    manager.stop().await;
}

/// One verb on one resource that a file grants to the manager.
struct Grant {
    /// The file, and the line of the rule.
    file: String,
    line: usize,
    role: String,
    /// Empty where it is granted for all.
    namespace: String,
    verb: String,
    resource: String,
    /// Empty where it is granted for every name.
    name: String,
}

impl Grant {
    fn is_in_worker(&self) -> bool {
        self.file.starts_with("worker")
    }

    fn is_used_by(&self, request: &Request) -> bool {
        request.verb == self.verb
            && request.resource == self.resource
            && (self.namespace.is_empty() || request.namespace == self.namespace)
            && (self.name.is_empty() || request.name == self.name)
    }
}

impl std::fmt::Display for Grant {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            file, line, role, ..
        } = self;
        let (verb, resource, name) = (&self.verb, &self.resource, &self.name);
        let namespace = match self.namespace.as_str() {
            "" => "all namespaces",
            namespace => namespace,
        };
        write!(
            formatter,
            "manifests/rbac/{file}:{line}: {role} in {namespace}: {verb} {resource} {name}"
        )
    }
}

/// The kinds that the manager has rights to in a worker cluster, each with its namespace, which is
/// empty where it is granted for all.
pub fn granted_in_worker() -> BTreeSet<(String, String)> {
    let all = granted().into_iter().filter(Grant::is_in_worker);
    all.map(|grant| (grant.namespace, grant.resource)).collect()
}

/// What the files in `manifests/rbac` grant to the manager.
fn granted() -> Vec<Grant> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/rbac");
    let mut grants = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder is part of the repository") {
        let path = entry.expect("it is readable").path();
        let file = path.file_name().map(|name| name.to_string_lossy());
        let file = file.expect("it has a name").into_owned();
        // The folder is for other fleets.
        if path.is_file() && !ELSEWHERE.contains(&file.as_str()) {
            let text = std::fs::read_to_string(&path).expect("it is readable");
            grants.extend(granted_in(&file, &text));
        }
    }
    for file in [
        "management.yaml",
        "worker.yaml",
        "worker-node-credentials.yaml",
    ] {
        let is_read = grants.iter().any(|grant| grant.file == file);
        assert!(is_read, "{file} grants something");
    }
    grants
}

fn granted_in(file: &str, text: &str) -> Vec<Grant> {
    let mut lines = text.lines().enumerate();
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).expect("our manifests are YAML");
    let mut grants = Vec::new();
    for document in documents {
        let told = |pointer| document.pointer(pointer).and_then(Value::as_str);
        let rules = document.get("rules").cloned().unwrap_or_else(|| json!([]));
        let rules: Vec<PolicyRule> = serde_json::from_value(rules).expect("they are rules");
        for rule in rules {
            let begins = lines.find(|(_, line)| line.starts_with("- apiGroups:"));
            let line = begins.expect("a rule begins so").0 + 1;
            for (verb, resource, name) in one_by_one(&rule) {
                grants.push(Grant {
                    file: file.to_owned(),
                    line,
                    role: told("/metadata/name").unwrap_or_default().to_owned(),
                    namespace: told("/metadata/namespace").unwrap_or_default().to_owned(),
                    verb,
                    resource,
                    name,
                });
            }
        }
    }
    grants
}

fn one_by_one(rule: &PolicyRule) -> Vec<(String, String, String)> {
    let names = rule
        .resource_names
        .clone()
        .unwrap_or_else(|| vec![String::new()]);
    let mut found = Vec::new();
    for verb in &rule.verbs {
        for resource in rule.resources.iter().flatten() {
            for name in &names {
                found.push((verb.clone(), resource.clone(), name.clone()));
            }
        }
    }
    found
}
