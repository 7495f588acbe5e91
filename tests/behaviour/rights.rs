//! Least privilege: every verb that our manifests grant is one that the manager uses.

use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use osm::api::names::{CLOUD_INIT_SETTINGS, REVISION, TOKEN_LABEL};
use serde_json::json;

use crate::suite::audit::{Request, told};
use crate::suite::fixtures::{
    self, PROFILE_NAME, a_little_machine_deployment, a_machine_deployment, a_profile,
};
use crate::suite::process::Manager;
use crate::suite::removal::delete;
use crate::suite::rotation::install;
use crate::suite::server::{Server, ok};
use crate::suite::stage::{Stage, Tenant, WORKER, merge};
use crate::suite::wait;
use crate::suite::world::{IN_WORKER, MANAGER, World};

/// Verbs that one life does not use, each with the reason why it is granted.
const UNUSED: &[(&str, &str, &str)] = &[
    (
        "create",
        "namespaces",
        "the namespace is missing in clusters without our manifests only",
    ),
    (
        "get",
        "workerclusters",
        "read by people who debug under this identity",
    ),
    (
        "get",
        "operatingsystemconfigs",
        "after a refused write only, which no test can force here",
    ),
    (
        "list",
        "endpointslices",
        "where a cluster announces no cluster-info",
    ),
    (
        "patch",
        "events",
        "an Event that is repeated within minutes is counted",
    ),
    ("get", "leases", "after a refused write only"),
    (
        "delete",
        "leases",
        "of replicas that were not heard of; here is only one",
    ),
];

/// Where the replicas' Leases are.
const LEASES: &str = "operating-system-manager";

pub async fn every_granted_verb_is_used_in_one_life_and_nothing_else_is_asked_for(
    world: &'static World,
) {
    let stage = Stage::open(world, "rights");
    let tenant = stage.tenant().await;
    let begun = Timestamp::now();
    live(&stage, &tenant).await;
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
    let refused: Vec<Request> = all.filter(|it| it.code == 403).cloned().collect();
    assert!(refused.is_empty(), "{}", told(&refused));
    let mut unused = unused(&world.management, &in_management).await;
    unused.extend(self::unused(&tenant.worker, &in_worker).await);
    assert_eq!(unused, Vec::<String>::new());
}

/// One life: everything that the manager does comes up once.
async fn live(stage: &Stage, tenant: &Tenant) {
    let manager = Manager::start(stage, &[]).await;
    let registry = fixtures::a_secret("registries", ("docker.io", r#"{"username":"robot"}"#));
    let registries = tenant.registrations();
    ok(
        registries.create(&PostParams::default(), &registry).await,
        "it is made",
    );
    let reference = json!({ "name": "registries" });
    tenant
        .configure(json!({ "registryCredentialsSecretRef": reference }))
        .await;
    tenant.register_as(WORKER, "not a kubeconfig").await;
    tenant
        .says("Registered", "False", "KubeconfigRefused")
        .await;
    ok(
        tenant
            .worker_clusters()
            .delete(WORKER, &DeleteParams::default())
            .await,
        "it goes",
    )
    .map_left(drop);
    // It is made anew, by the manager.
    tenant
        .set_kubeconfig(&tenant.worker.kubeconfig(IN_WORKER).await)
        .await;
    tenant.says("Connected", "True", "Healthy").await;
    tenant
        .configure(json!({ "registryCredentialsSecretRef": reference }))
        .await;
    install(tenant, &a_profile("v1.0.0", "first")).await;
    let made = tenant.serve(&a_little_machine_deployment("workers")).await;
    tenant.annotate("workers", (REVISION, "2")).await;
    drop(tenant.made("workers", "2").await);
    let changed = serde_json::to_value(a_profile("v1.0.1", "second").spec).expect("plain values");
    merge(&tenant.profiles(), PROFILE_NAME, json!({ "spec": changed })).await;
    let is_new =
        |found: &k8s_openapi::api::core::v1::Secret| found.uid() != made.provisioning.uid();
    let name = made.provisioning.name_any();
    wait::for_object(&tenant.secrets(), &name, "it is made anew", is_new).await;
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
    let unknown = fixtures::with_annotation(
        a_machine_deployment("lost"),
        (osm::api::names::PROFILE, "no-such-profile"),
    );
    drop(tenant.create(&unknown).await);
    tenant
        .entry("kube-system/lost", ("Refused", "ProfileNotFound"))
        .await;
    manager.stop().await;
    second_half(stage, tenant, &made.names).await;
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
    let mut second = token.clone();
    second.metadata = fixtures::named("bootstrap-token-bbbbbb");
    second
        .labels_mut()
        .insert(TOKEN_LABEL.to_owned(), names.key.clone());
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
    let second = ok(
        tenant
            .tokens()
            .create(&PostParams::default(), &second)
            .await,
        "it is made",
    );
    let manager = Manager::start(stage, &[]).await;
    // Of two, the one that is valid for longer stays, and is extended.
    wait::for_absence(&tenant.tokens(), &second.name_any()).await;
    wait::for_object(
        &tenant.tokens(),
        &token.name_any(),
        "it is extended",
        |found| fixtures::text(found, "expiration") > soon,
    )
    .await;
    let deleted = tenant
        .configs()
        .delete(&names.config, &DeleteParams::default())
        .await;
    ok(deleted, "an administrator may delete").map_left(drop);
    wait::for_object(&tenant.configs(), &names.config, "it is back", |_| true).await;
    drop(tenant.serve(&a_machine_deployment("vanishing")).await);
    delete(tenant, "workers").await;
    wait::for_absence(&tenant.machine_deployments(), "workers").await;
    manager.stop().await;
    tenant
        .change("vanishing", json!({ "metadata": { "finalizers": null } }))
        .await;
    delete(tenant, "vanishing").await;
    wait::for_absence(&tenant.machine_deployments(), "vanishing").await;
    let manager = Manager::start(stage, &[]).await;
    let names = osm::api::names::DerivedNames::new("kube-system", "vanishing");
    wait::for_absence(&tenant.configs(), &names.config).await;
    manager.stop().await;
}

/// What the roles of a server grant to the manager and no request has used.
async fn unused(server: &Server, requests: &[Request]) -> Vec<String> {
    let mut unused = Vec::new();
    for (namespace, rules) in granted(server).await {
        for rule in rules {
            for (verb, resource, name) in one_by_one(&rule) {
                let is_used = requests.iter().any(|it| {
                    it.verb == verb
                        && it.resource == resource
                        && (namespace.is_empty() || it.namespace == namespace)
                        && (name.is_empty() || it.name == name)
                });
                let is_excused = UNUSED
                    .iter()
                    .any(|(v, r, _)| (*v, *r) == (&*verb, &*resource));
                if !is_used && !is_excused {
                    unused.push(format!("{verb} {resource} {name} in {namespace:?}"));
                }
            }
        }
    }
    unused
}

/// The rules of the manager's roles, with the namespace that they hold in.
async fn granted(server: &Server) -> Vec<(String, Vec<PolicyRule>)> {
    let ours = |name: &str| name.starts_with("operating-system-manager");
    // Those are for people.
    let for_people = [
        "operating-system-manager-view",
        "operating-system-manager-edit",
    ];
    let all = ListParams::default();
    let cluster: Api<ClusterRole> = Api::all(server.admin().await);
    let roles: Api<Role> = Api::all(server.admin().await);
    let cluster = ok(cluster.list(&all).await, "roles are listed")
        .items
        .into_iter();
    let roles = ok(roles.list(&all).await, "roles are listed")
        .items
        .into_iter();
    let cluster = cluster.map(|it| (it.name_any(), String::new(), it.rules));
    let roles = roles.map(|it| (it.name_any(), it.namespace().unwrap_or_default(), it.rules));
    let granted: Vec<(String, Vec<PolicyRule>)> = cluster
        .chain(roles)
        .filter(|(name, ..)| ours(name) && !for_people.contains(&name.as_str()))
        .map(|(_, namespace, rules)| (namespace, rules.unwrap_or_default()))
        .collect();
    assert!(
        granted.len() > 1,
        "the roles are found, in {CLOUD_INIT_SETTINGS} and elsewhere"
    );
    granted
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
