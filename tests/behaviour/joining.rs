//! Each object that machines need on their way to a node is deleted, and broken field by field,
//! wherever the API server allows it. Afterwards a machine can join again. The kinds of objects are
//! those of `manifests/rbac`: what the manager may not touch it does not keep.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use loadtest::control_plane::client_of;
use osm::api::names::{
    CLOUD_INIT_SETTINGS, FETCHER, KUBE_SYSTEM, KUBECONFIG_KEY, MADE_FOR, REVISION, TOKEN_LABEL,
};
use serde_json::{Map, Value, json};

use crate::administrator::{create, delete, get};
use crate::credentials::a_fetching_profile;
use crate::fixtures::{self, a_little_machine_deployment};
use crate::process::Manager;
use crate::rights::granted_in_worker;
use crate::rotation::install;
use crate::server::ok;
use crate::stage::{Made, Stage, Tenant, WORKER, conditions, message};
use crate::wait;
use crate::world::{IN_WORKER, World};

/// Kinds that the manager has rights to and machines do not need.
const NOT_NEEDED: &[(&str, &str)] = &[
    ("events", "they tell, and hold nothing"),
    (
        "endpointslices",
        "they are read where the cluster announces no address",
    ),
    ("leases", "they are another manager's"),
    (
        "mutatingwebhookconfigurations",
        "they are another manager's",
    ),
    (
        "validatingwebhookconfigurations",
        "they are another manager's",
    ),
    ("operatingsystemprofiles", "they are copied once"),
    ("nodes", "they are what machines become"),
];

/// As any base64 will do, and any text.
const FOREIGN: &str = "Zm9yZWlnbg==";

/// A kind: its namespace, empty for all, and its plural.
type Kind = (String, String);

/// What somebody does to an object.
#[derive(Debug)]
enum Change {
    Delete,
    Merge(Value),
    /// What is immutable is deleted and created again.
    Recreate(Value),
}

pub async fn what_machines_need_is_put_right_whatever_is_done_to_it(world: &'static World) {
    let stage = Stage::open(world, "joining");
    let (tenant, manager, made) = served(&stage).await;
    let rights = "manifests/rbac/worker-node-credentials.yaml";
    tenant.worker.apply_file(rights).await;
    for kind in needed_kinds() {
        if kind.0 == KUBE_SYSTEM {
            // Only another bootstrap token is a reason for other documents.
            is_restored(&tenant, &made).await;
        }
        // Nothing that was done before is unseen.
        has_been_read(&tenant, Timestamp::now()).await;
        is_well(&tenant, &made, "what came before").await;
        let all = objects(&tenant, &kind).await;
        // Not every cluster announces itself.
        assert!(!all.is_empty() || kind.1 == "configmaps", "{kind:?}");
        for object in all {
            break_each_way(&tenant, (&made, &kind), &object).await;
        }
    }
    // Each machine deployment's own fetcher.
    let url = tenant.worker.url();
    let own = json!({ "apiServerOverride": url, "nodeCredentials": "PerMachineDeployment" });
    tenant.configure(own).await;
    let (secrets, name) = (tenant.secrets(), &made.names.fetcher_token);
    let has_token = |found: &Secret| fixtures::has_data(found, "token");
    let own = wait::for_object(&secrets, name, "it has a token", has_token).await;
    let token = fixtures::text(&own, "token");
    // What is served keeps its documents until it is changed.
    tenant.annotate("workers", (REVISION, "2")).await;
    let made = tenant.made("workers", "2").await;
    let document = fixtures::text(&made.bootstrap, osm::api::names::CLOUD_CONFIG_KEY);
    assert!(document.contains(&token), "{document}");
    for kind in needed_kinds() {
        let mut all = objects(&tenant, &kind).await;
        all.retain(|object| kind.0 == CLOUD_INIT_SETTINGS && is_own(object));
        for object in all {
            break_each_way(&tenant, (&made, &kind), &object).await;
        }
    }
    manager.stop().await;
}

/// What machines are given is as it was made, and Events say who would have had it otherwise.
async fn is_restored(tenant: &Tenant, made: &Made) {
    for secret in [&made.provisioning, &made.kubelet_kubeconfig] {
        let name = secret.name_any();
        let back = get(&tenant.secrets(), &name).await;
        let bytes = |it: &Secret| (it.data.clone(), it.immutable);
        assert_eq!(bytes(&back), bytes(secret));
        let what = match secret.immutable {
            Some(true) => "deleted",
            _ => "changed",
        };
        let said = format!("has {what} Secret {CLOUD_INIT_SETTINGS}/{name}");
        tenant
            .machine_deployment_event("SecretRestored", &said)
            .await;
    }
}

/// A tenant whose machines reach its cluster, with one machine deployment.
async fn served(stage: &Stage) -> (Tenant, Manager, Made) {
    let tenant = stage.tenant().await;
    let url = tenant.worker.url();
    tenant.configure(json!({ "apiServerOverride": url })).await;
    tenant.register().await;
    let manager = Manager::start(stage, &["--facts-interval", "1s"]).await;
    install(&tenant, &a_fetching_profile()).await;
    let made = tenant.serve(&a_little_machine_deployment("workers")).await;
    is_well(&tenant, &made, "at first").await;
    (tenant, manager, made)
}

fn needed_kinds() -> BTreeSet<Kind> {
    let all = granted_in_worker();
    let is_needed = |(_, resource): &Kind| !NOT_NEEDED.iter().any(|(name, _)| name == resource);
    all.into_iter().filter(is_needed).collect()
}

fn is_own(object: &DynamicObject) -> bool {
    object.annotations().contains_key(MADE_FOR) && object.name_any().contains(FETCHER)
}

async fn break_each_way(tenant: &Tenant, (made, kind): (&Made, &Kind), object: &DynamicObject) {
    let api = api(tenant, kind);
    let name = object.name_any();
    let mut broken = 0;
    for change in changes(kind, object) {
        let what = format!("{kind:?} {name}: {change:?}");
        let since = Timestamp::now();
        if !is_allowed(&api, &name, &change).await {
            continue;
        }
        broken += 1;
        if kind.1 == "configmaps" {
            // It is the cluster's own, and nobody but a person restores it.
            has_been_read(tenant, since).await;
            is_well(tenant, made, &what).await;
            let _ = api.delete(&name, &DeleteParams::default()).await;
            let mut restored = object.clone();
            restored.metadata = fixtures::named(&name);
            drop(create(&api, &restored).await);
        }
        is_well(tenant, made, &what).await;
    }
    assert!(broken > 0, "nothing can be done to {kind:?} {name}");
}

/// Every way to break it, by its fields.
fn changes(kind: &Kind, object: &DynamicObject) -> Vec<Change> {
    let mut changes = Vec::new();
    let is_users = ["namespaces", "machinedeployments"].contains(&kind.1.as_str());
    if !is_users {
        changes.push(Change::Delete);
    }
    let fields: &[&str] = match kind.1.as_str() {
        // Its annotations are what its user asks for.
        "machinedeployments" => &["finalizers"],
        _ => &["labels", "annotations"],
    };
    for field in fields {
        changes.push(Change::Merge(json!({ "metadata": { *field: null } })));
    }
    let value = serde_json::to_value(object).expect("it is JSON");
    let fields = value.as_object().into_iter().flatten();
    for (field, value) in fields.filter(|_| !is_users) {
        match (field.as_str(), value) {
            ("apiVersion" | "kind" | "metadata" | "immutable", _) => {}
            (_, Value::Object(values)) if field == "data" => {
                for key in values.keys() {
                    changes.push(Change::Merge(json!({ "data": { key: null } })));
                    changes.push(Change::Merge(json!({ "data": { key: FOREIGN } })));
                    let fixed = json!({ "data": { key: FOREIGN }, "immutable": true });
                    changes.push(Change::Merge(fixed));
                }
                // A bootstrap token with other bytes is replaced under another name.
                if kind.0 == CLOUD_INIT_SETTINGS {
                    let foreign = values.keys().map(|key| (key.clone(), json!(FOREIGN)));
                    let foreign: Map<_, _> = foreign.collect();
                    for metadata in [json!({}), json!({ "annotations": null })] {
                        let patch = json!({ "data": foreign, "metadata": metadata });
                        changes.push(Change::Recreate(patch));
                    }
                }
            }
            (_, Value::Array(_)) => changes.push(Change::Merge(json!({ field: [] }))),
            (_, Value::Object(_)) => {
                changes.push(Change::Recreate(json!({ field: { "name": "another" } })));
            }
            _ => changes.push(Change::Recreate(json!({ field: "example.com/foreign" }))),
        }
    }
    changes
}

/// Does it, unless the API server refuses it or there is nothing to do.
async fn is_allowed(api: &Api<DynamicObject>, name: &str, change: &Change) -> bool {
    // A real server accepts a deleted token for some seconds: it may not be there again yet.
    let is_there = format!("{name} is there");
    let found = wait::until(&is_there, async || api.get(name).await.ok()).await;
    let done = match change {
        Change::Delete => return api.delete(name, &DeleteParams::default()).await.is_ok(),
        Change::Merge(patch) => {
            let params = PatchParams::default();
            api.patch(name, &params, &Patch::Merge(patch)).await
        }
        Change::Recreate(patch) => {
            let mut other = serde_json::to_value(&found).expect("it is JSON");
            json_patch::merge(&mut other, patch);
            let mut other: DynamicObject = serde_json::from_value(other).expect("it is JSON");
            other.metadata.resource_version = None;
            other.metadata.uid = None;
            let params = PostParams {
                dry_run: true,
                ..PostParams::default()
            };
            let mut probe = other.clone();
            probe.metadata.name = Some("probe".to_owned());
            if api.create(&params, &probe).await.is_err() {
                return false;
            }
            delete(api, name).await;
            // The manager may be faster; then it is right already.
            api.create(&PostParams::default(), &other).await
        }
    };
    done.is_ok_and(|done| done.metadata.resource_version != found.metadata.resource_version)
}

/// A machine can join, and the tenant is ready.
async fn is_well(tenant: &Tenant, made: &Made, what: &str) {
    let mut last = String::new();
    wait::until(&format!("a machine joins after {what}"), async || {
        let Err(problem) = can_join(tenant, made).await else {
            return Some(());
        };
        run_what_is_asked(tenant).await;
        // A failed test shows them.
        if problem != last {
            eprintln!("after {what}: {problem}");
            last = problem;
        }
        None
    })
    .await;
    wait::for_object(
        &tenant.worker_clusters(),
        WORKER,
        &format!("it is ready after {what}"),
        |found| {
            let conditions = conditions(found);
            [
                ("Ready", "True", "Ready"),
                ("MachinesCanJoin", "True", "CanJoin"),
            ]
            .iter()
            .all(|wanted| conditions.contains(wanted))
        },
    )
    .await;
}

/// A person does what the condition says, where the manager does not know whether it may.
async fn run_what_is_asked(tenant: &Tenant) {
    let own = get(&tenant.worker_clusters(), WORKER).await;
    let why = message(&own, "MachinesCanJoin");
    let command = format!("kubectl -n {CLOUD_INIT_SETTINGS} delete secret ");
    let name = why.split_once(&command).map(|(_, rest)| rest);
    if let Some((name, _)) = name.and_then(|rest| rest.split_once('`')) {
        // It may be gone already, and the condition not yet.
        let _ = tenant
            .secrets()
            .delete(name, &DeleteParams::default())
            .await;
        // Who looks again only once the condition can say what came of it does not delete the
        // new one as well.
        has_been_read(tenant, Timestamp::now()).await;
    }
}

/// Does what a machine does on its way to a node.
async fn can_join(tenant: &Tenant, made: &Made) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let secrets = tenant.secrets();
    let read = async |name: String| secrets.get(&name).await.map_err(|error| told(&error));
    let bootstrap = read(made.names.bootstrap.clone()).await?;
    let bootstrap = fixtures::text(&bootstrap, osm::api::names::CLOUD_CONFIG_KEY);
    let mut words = bootstrap
        .split_whitespace()
        .skip_while(|word| *word != "curl")
        .skip(1);
    let (Some(server), Some(token)) = (words.next(), words.next()) else {
        return Err(format!("there is no order to fetch: {bootstrap}"));
    };
    let fetching = fixtures::a_kubeconfig(server, &tenant.worker.authority(), token);
    let fetching = client_of(&fetching).await.map_err(|error| told(&error))?;
    let fetched: Api<Secret> = Api::namespaced(fetching, CLOUD_INIT_SETTINGS);
    let fetched = fetched.get(&made.names.provisioning).await;
    let fetched = fetched.map_err(|error| told(&error))?;
    let kubeconfig = read(made.names.kubelet_kubeconfig.clone()).await?;
    let kubeconfig = fixtures::text(&kubeconfig, KUBECONFIG_KEY);
    let token = kubeconfig
        .split_once("token: ")
        .map(|(_, rest)| rest.trim());
    let document = fixtures::text(&fetched, osm::api::names::CLOUD_CONFIG_KEY);
    if !token.is_some_and(|token| document.contains(token)) {
        return Err(format!("the document has another token: {document}"));
    }
    let kubelet = client_of(&kubeconfig).await.map_err(|error| told(&error))?;
    let reviews: Api<SelfSubjectAccessReview> = Api::all(kubelet);
    let review = json!({ "spec": { "resourceAttributes": {
        "group": "certificates.k8s.io", "resource": "certificatesigningrequests", "verb": "create",
    } } });
    let review = serde_json::from_value(review).expect("the fields are right");
    let answer = reviews.create(&PostParams::default(), &review).await;
    let answer = answer.map_err(|error| told(&error))?;
    if !answer.status.is_some_and(|status| status.allowed) {
        return Err("a kubelet may not request certificates".to_owned());
    }
    Ok(())
}

/// The cluster info was read twice since, so that at least once its result was taken.
async fn has_been_read(tenant: &Tenant, since: Timestamp) {
    wait::until("the cluster info is read", async || {
        let requests = tenant.worker.requests(IN_WORKER, since);
        let reads = requests.iter().filter(|it| it.name == "cluster-info");
        (reads.count() >= 2).then_some(())
    })
    .await;
}

/// Those that machines need.
async fn objects(tenant: &Tenant, kind: &Kind) -> Vec<DynamicObject> {
    let listed = api(tenant, kind).list(&ListParams::default()).await;
    let mut all = ok(listed, "an administrator may list").items;
    let is_needed = |object: &DynamicObject| match (kind.0.as_str(), kind.1.as_str()) {
        (KUBE_SYSTEM, "secrets") => object.labels().contains_key(TOKEN_LABEL),
        (CLOUD_INIT_SETTINGS, "secrets") | ("", "machinedeployments") => true,
        (_, "configmaps") => object.name_any() == "cluster-info",
        (_, "namespaces") => object.name_any() == CLOUD_INIT_SETTINGS,
        _ => object.name_any() == FETCHER || is_own(object),
    };
    all.retain(is_needed);
    all
}

fn api(tenant: &Tenant, (namespace, resource): &Kind) -> Api<DynamicObject> {
    let core = ("", "v1");
    let rbac = ("rbac.authorization.k8s.io", "v1");
    let known = BTreeMap::from([
        ("secrets", (core, "Secret")),
        ("serviceaccounts", (core, "ServiceAccount")),
        ("configmaps", (core, "ConfigMap")),
        ("namespaces", (core, "Namespace")),
        ("roles", (rbac, "Role")),
        ("rolebindings", (rbac, "RoleBinding")),
        ("clusterrolebindings", (rbac, "ClusterRoleBinding")),
        (
            "machinedeployments",
            (("cluster.k8s.io", "v1alpha1"), "MachineDeployment"),
        ),
    ]);
    let known = known.get(resource.as_str());
    let ((group, version), kind) =
        known.expect("how it breaks is said here, or why nobody needs it");
    let kind = GroupVersionKind::gvk(group, version, kind);
    let kind = ApiResource::from_gvk_with_plural(&kind, resource);
    match (namespace.as_str(), resource.as_str()) {
        ("", "machinedeployments") => {
            Api::namespaced_with(tenant.admin.clone(), KUBE_SYSTEM, &kind)
        }
        ("", _) => Api::all_with(tenant.admin.clone(), &kind),
        _ => Api::namespaced_with(tenant.admin.clone(), namespace, &kind),
    }
}

/// What restores the rights that `manifests/rbac/worker.yaml` grants.
const GRANT: &str = "osm rbac worker | kubectl apply --server-side --force-conflicts -f -";

/// Bindings of the manager that machines do not need.
const OPTIONAL: &[(&str, &str)] = &[
    (
        "kube-public",
        "the endpoints take the place of cluster-info, and what was read is kept",
    ),
    (
        "default",
        "endpoints are read where the cluster announces no address",
    ),
];

pub async fn a_right_that_is_revoked_is_named_with_the_command_that_restores_it(
    world: &'static World,
) {
    let stage = Stage::open(world, "revoked");
    let (tenant, manager, made) = served(&stage).await;
    for (namespace, resource, name) in bindings_of_the_manager() {
        let what = format!("{resource} {namespace}/{name} is deleted");
        let api = api(&tenant, &(namespace, resource));
        delete(&api, &name).await;
        // A watch goes on without its right until it begins again.
        tenant.worker.stop().await;
        tenant.worker.start_again().await;
        wait::for_object(&tenant.worker_clusters(), WORKER, &what, |found| {
            let conditions = found.status.iter().flat_map(|status| &status.conditions);
            let mut ready = conditions.filter(|it| it.type_ == "Ready");
            ready.any(|it| it.status == "False" && it.message.contains(GRANT))
        })
        .await;
        tenant.worker.apply_file("manifests/rbac/worker.yaml").await;
        is_well(&tenant, &made, &what).await;
    }
    manager.stop().await;
}

/// Each as its namespace, its plural and its name.
fn bindings_of_the_manager() -> Vec<(String, String, String)> {
    let manifest = include_str!("../../manifests/rbac/worker.yaml");
    let documents = serde_saphyr::from_multiple(manifest).expect("our manifests are YAML");
    let documents = (documents as Vec<DynamicObject>).into_iter();
    let bindings = documents.filter_map(|document| {
        let kind = document.types.as_ref()?.kind.to_lowercase();
        let namespace = document.namespace().unwrap_or_default();
        let is_optional = OPTIONAL.iter().any(|(optional, _)| *optional == namespace);
        let is_meant = kind.ends_with("rolebinding") && !is_optional;
        is_meant.then(|| (namespace, format!("{kind}s"), document.name_any()))
    });
    let bindings: Vec<_> = bindings.collect();
    assert_eq!(bindings.len(), 3, "{bindings:?}");
    bindings
}
