//! Two machine deployments whose derived names are the same: `a-b` in `c`, and `a` in `b-c`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use osm::api::machine_deployment::MachineDeployment;
use osm::api::names::{DerivedNames, MADE_FOR};
use serde_json::json;

use crate::administrator::{delete, list, merge};
use crate::audit::told;
use crate::fixtures::{self, a_machine_deployment};
use crate::process::Manager;
use crate::stage::{Stage, Tenant};
use crate::wait;
use crate::world::World;

const OLDER: (&str, &str) = ("c", "a-b");
const YOUNGER: (&str, &str) = ("b-c", "a");

pub async fn of_two_with_the_same_derived_names_only_the_older_is_served(world: &'static World) {
    let (tenant, manager) = Manager::with_tenant(&Stage::open(world, "collision")).await;
    collide(&tenant).await;
    refused(&tenant).await;
    tenant
        .says("MachineDeploymentsServed", "False", "SomeNotServed")
        .await;

    // Both are looked at again, and the manager ends: no write is left to come.
    let settled = Timestamp::now();
    let looks = manager.reconciled("served") + manager.reconciled("refused");
    for (namespace, name) in [OLDER, YOUNGER] {
        let label = json!({ "metadata": { "labels": { "look": "again" } } });
        merge(&tenant.machine_deployments_in(namespace), name, label).await;
    }
    wait::until("both were looked at again", async || {
        let now = manager.reconciled("served") + manager.reconciled("refused");
        (now >= looks + 2.0).then_some(())
    })
    .await;
    manager.stop().await;
    tenant.worker.settle_audit().await;
    let writes = tenant.writes(settled);
    assert!(writes.is_empty(), "{}", told(&writes));
}

pub async fn once_the_older_is_gone_the_younger_is_served(world: &'static World) {
    let (tenant, manager) = Manager::with_tenant(&Stage::open(world, "older-goes")).await;
    collide(&tenant).await;
    refused(&tenant).await;
    delete_in(&tenant, OLDER).await;
    let names = made_for(&tenant, YOUNGER).await;
    tenant.entry("b-c/a", ("Served", "Current")).await;
    delete_in(&tenant, YOUNGER).await;
    nothing_is_left(&tenant, &names).await;
    manager.stop().await;
}

pub async fn when_the_younger_goes_the_older_keeps_what_it_has(world: &'static World) {
    let (tenant, manager) = Manager::with_tenant(&Stage::open(world, "younger-goes")).await;
    collide(&tenant).await;
    refused(&tenant).await;
    let uids = uids(&tenant).await;
    delete_in(&tenant, YOUNGER).await;
    assert_eq!(self::uids(&tenant).await, uids);
    let names = made_for(&tenant, OLDER).await;
    delete_in(&tenant, OLDER).await;
    nothing_is_left(&tenant, &names).await;
    manager.stop().await;
}

/// The older is served, and then the younger is made, in another second.
async fn collide(tenant: &Tenant) {
    tenant.register().await;
    let namespaces: Api<Namespace> = Api::all(tenant.admin.clone());
    for (namespace, _) in [OLDER, YOUNGER] {
        let made = fixtures::a_namespace(namespace);
        // A worker cluster that was used before has them.
        let _ = namespaces.create(&PostParams::default(), &made).await;
    }
    let older = tenant.create(&at(OLDER)).await;
    drop(made_for(tenant, OLDER).await);
    let second = older.creation_timestamp().map(|time| time.0.as_second());
    wait::until("another second has begun", async || {
        let now = Some(Timestamp::now().as_second());
        (now > second.map(|second| second + 1)).then_some(())
    })
    .await;
    drop(tenant.create(&at(YOUNGER)).await);
}

async fn refused(tenant: &Tenant) {
    let entry = tenant.entry("b-c/a", ("Refused", "NameTaken")).await;
    assert!(
        entry
            .message
            .is_some_and(|message| message.contains("c/a-b"))
    );
    tenant.entry("c/a-b", ("Served", "Current")).await;
    event(&tenant.admin, YOUNGER, "NameTaken").await;
}

async fn event(client: &Client, (namespace, name): (&str, &str), reason: &str) {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let about = |seen: &BTreeMap<String, Event>| {
        seen.values().any(|event| {
            let regarding = event.regarding.as_ref().and_then(|it| it.name.as_deref());
            event.reason.as_deref() == Some(reason) && regarding == Some(name)
        })
    };
    let what = format!("an Event {reason} on {namespace}/{name}");
    drop(wait::for_objects(&events, &what, about).await);
}

fn at((namespace, name): (&str, &str)) -> MachineDeployment {
    let mut machine_deployment = a_machine_deployment(name);
    machine_deployment.metadata.namespace = Some(namespace.to_owned());
    machine_deployment
}

/// Waits until the bootstrap Secret is made for a machine deployment.
async fn made_for(tenant: &Tenant, (namespace, name): (&str, &str)) -> DerivedNames {
    let names = DerivedNames::new(namespace, name);
    let owner = format!("{namespace}/{name}");
    let what = format!("is made for {owner}");
    let is_its = |found: &Secret| found.annotations().get(MADE_FOR) == Some(&owner);
    drop(wait::for_object(&tenant.secrets(), &names.bootstrap, &what, is_its).await);
    names
}

async fn delete_in(tenant: &Tenant, (namespace, name): (&str, &str)) {
    let api = tenant.machine_deployments_in(namespace);
    delete(&api, name).await;
    wait::for_absence(&api, name).await;
}

async fn uids(tenant: &Tenant) -> Vec<Option<String>> {
    let secrets = list(&tenant.secrets()).await;
    let configs = list(&tenant.configs()).await;
    let uids = secrets.iter().map(ResourceExt::uid);
    uids.chain(configs.iter().map(ResourceExt::uid)).collect()
}

async fn nothing_is_left(tenant: &Tenant, names: &DerivedNames) {
    for name in [
        &names.bootstrap,
        &names.provisioning,
        &names.kubelet_kubeconfig,
    ] {
        wait::for_absence(&tenant.secrets(), name).await;
    }
    wait::for_absence(&tenant.configs(), &names.config).await;
    assert_eq!(tenant.tokens_of(names).await.len(), 0);
}
