//! Secrets that other programs make for worker clusters: no label, and no command for each.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt};
use osm::api::{names::WORKER_CLUSTER_LABEL, worker_cluster::WorkerCluster};
use serde_json::{Value, json};

use crate::administrator::{create, delete, list, merge};
use crate::commands::{Admin, a_file, path};
use crate::fixtures::{a_machine_deployment, a_secret};
use crate::logged;
use crate::process::Manager;
use crate::registration::of_kind;
use crate::stage::{Stage, Tenant, conditions, message};
use crate::wait;
use crate::world::{IN_WORKER, World};

const CLUSTER_API: &str = "cluster.x-k8s.io/secret";

fn of_cluster_api(name: &str, (key, value): (&str, &str)) -> Secret {
    Secret {
        type_: Some(CLUSTER_API.to_owned()),
        ..a_secret(name, (key, value))
    }
}

async fn has(tenant: &Tenant, name: &str, data: (&str, &str)) {
    create(&tenant.registrations(), &of_cluster_api(name, data)).await;
}

/// Starts a manager for these tenants alone: Cluster API's Secrets have no label of a scenario.
async fn start(stage: &Stage, tenants: &[&Tenant]) -> Manager {
    let namespaces = tenants.iter().flat_map(|it| ["--namespace", &it.namespace]);
    let mut arguments = vec!["--inventory", "label,cluster-api"];
    arguments.extend(namespaces);
    Manager::start(stage, &arguments).await
}

pub async fn clusters_of_cluster_api_are_served_without_a_label(world: &'static World) {
    // The log is the same for both kinds of servers.
    let name = of_kind(world, ["cluster-api-real", "cluster-api-fake"]);
    let stage = Stage::open(world, name);
    let [tenant, hostile, registered] = stage.tenants(["tenant", "hostile", "registered"]).await;
    let manager = start(&stage, &[&tenant, &hostile, &registered]).await;
    let kubeconfig = tenant.worker.kubeconfig(IN_WORKER).await;
    has(&tenant, "prod-kubeconfig", ("value", &kubeconfig)).await;
    // Cluster API's other Secrets have the same type.
    has(&tenant, "prod-ca", ("tls.crt", "a certificate")).await;
    let exec = kubeconfig.replace("token:", "exec: {command: /bin/true}\n    token:");
    has(&hostile, "prod-kubeconfig", ("value", &exec)).await;
    // This one is its operator's alone, and waits for a manager with that inventory.
    let mut labelled = of_cluster_api("prod-kubeconfig", ("value", &kubeconfig));
    let label = (WORKER_CLUSTER_LABEL.to_owned(), "true".to_owned());
    labelled.metadata.labels = Some([label].into());
    create(&registered.registrations(), &labelled).await;

    drop(tenant.serve(&a_machine_deployment("workers")).await);
    let own = tenant.says_of("prod", ("Ready", "True", "Ready")).await;
    let owner = own.owner_references().first();
    let owner = owner.map(|owner| (owner.kind.as_str(), owner.name.as_str()));
    assert_eq!(owner, Some(("Secret", "prod-kubeconfig")), "{own:?}");
    let refused = ("Registered", "False", "KubeconfigRefused");
    let own = hostile.says_of("prod", refused).await;
    assert!(message(&own, "Registered").contains("exec"), "{own:?}");
    let all = list(&tenant.worker_clusters()).await;
    assert_eq!(all.len(), 1, "a certificate authority registers nothing");

    it_is_listed(&tenant, [&hostile, &registered]).await;
    it_is_planned_and_examined(&tenant).await;
    it_is_served_on_with_a_renewed_credential(&tenant).await;
    it_is_served_on_with_and_without_a_label(&stage, &tenant).await;
    delete(&tenant.registrations(), "prod-kubeconfig").await;
    is_left(&tenant.worker_clusters(), "prod").await;
    manager.stop().await;
    let none = list(&registered.worker_clusters()).await;
    assert!(none.is_empty(), "{none:?}");
}

/// Where there is a garbage collector, nothing stays; where there is none, the status says it.
pub async fn is_left(worker_clusters: &Api<WorkerCluster>, name: &str) {
    let removed = ("Registered", "False", "RegistrationRemoved");
    let is_left = |all: &BTreeMap<String, WorkerCluster>| {
        let mut all = all.values().filter(|it| it.name_any() == name);
        all.all(|it| conditions(it).contains(&removed))
    };
    drop(wait::for_objects(worker_clusters, &format!("{name} is left"), is_left).await);
}

async fn it_is_listed(tenant: &Tenant, [hostile, registered]: [&Tenant; 2]) {
    let admin = Admin::of(tenant);
    let shown = admin.osm(&["tenants", "--inventory", "cluster-api"]).await;
    for (tenant, state) in [
        (tenant, "Ready"),
        (hostile, "KubeconfigRefused"),
        (registered, "LeftOut"),
    ] {
        let mut lines = shown.out.lines();
        let line = lines.find(|line| line.starts_with(&tenant.namespace));
        let words = line.map(|line| line.split_whitespace().take(4).collect::<Vec<_>>());
        let wanted = vec![tenant.namespace.as_str(), "prod", "-", state];
        assert_eq!(words, Some(wanted), "{shown:?}");
    }
    let rules = a_file("- {name: ours, type: cluster.x-k8s.io/secret, key: value}");
    let words = ["tenants", "--inventory", "ours", "--inventory-rules"];
    let shown = admin.osm(&[&words[..], &[path(&rules)]].concat()).await;
    assert!(shown.out.contains("prod-ca"), "{shown:?}");
    let unknown = admin.osm(&["tenants", "--inventory", "cluster-apy"]).await;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.err.contains("cluster-api, kamaji"), "{unknown:?}");
}

/// Its program changes the Secret's metadata, and renews its kubeconfig. Metadata is all that the
/// watch brings.
async fn it_is_served_on_with_a_renewed_credential(tenant: &Tenant) {
    let registrations = tenant.registrations();
    let count = |text: &str| {
        let log = logged(&tenant.namespace);
        log.lines().filter(|line| line.contains(text)).count()
    };
    let annotations = json!({ "metadata": { "annotations": { "seen": "true" } } });
    merge(&registrations, "prod-kubeconfig", annotations).await;
    let renewed = tenant.worker.kubeconfig(IN_WORKER).await;
    let data = json!({ "data": { "value": STANDARD.encode(renewed) } });
    merge(&registrations, "prod-kubeconfig", data).await;
    let taken = "took over a renewed credential";
    wait::until("it is taken", async || (count(taken) == 1).then_some(())).await;
    assert_eq!(
        count(": engaged registration"),
        1,
        "{}",
        logged(&tenant.namespace)
    );
}

/// The operator takes a Secret over, and gives it back.
async fn it_is_served_on_with_and_without_a_label(stage: &Stage, tenant: &Tenant) {
    let registrations = tenant.registrations();
    for (value, name) in [(json!("true"), "labelled"), (Value::Null, "unlabelled")] {
        let labels = json!({ WORKER_CLUSTER_LABEL: value, "scenario": stage.name() });
        let patch = json!({ "metadata": { "labels": labels } });
        merge(&registrations, "prod-kubeconfig", patch).await;
        drop(tenant.serve(&a_machine_deployment(name)).await);
    }
    let all = list(&tenant.worker_clusters()).await;
    assert_eq!(all.len(), 1, "it is the same");
}

async fn it_is_planned_and_examined(tenant: &Tenant) {
    let admin = Admin::of(tenant);
    let reach = ["-n", &tenant.namespace, "--allow-loopback-servers"];
    let words = ["plan", "--inventory", "label,cluster-api"];
    let plan = admin.osm(&[&words[..], &reach].concat()).await;
    assert!(plan.out.ends_with("workers: unchanged\n"), "{plan:?}");
    let doctor = admin.osm(&[&["doctor"][..], &reach].concat()).await;
    let mut lines = doctor.out.lines();
    let line = lines.find(|line| line.contains(&tenant.namespace) && line.contains("identity"));
    assert!(line.is_some_and(|line| line.contains("ok")), "{doctor:?}");
    assert!(!doctor.out.contains("label"), "{doctor:?}");
    let remove = [
        "tenant",
        "remove",
        "--all",
        "--yes",
        "-n",
        &tenant.namespace,
    ];
    let refused = admin.osm(&remove).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let why = "the manager takes it from an inventory";
    assert!(refused.err.contains(why), "{refused:?}");
}
