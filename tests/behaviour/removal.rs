//! What goes with a machine deployment, and what with a registration.

use kube::ResourceExt;
use osm::api::names::{FINALIZER, REVISION};
use serde_json::json;

use crate::administrator::{get, list};
use crate::fixtures::a_machine_deployment;
use crate::process::Manager;
use crate::stage::{Made, Stage, Tenant, WORKER, conditions, message};
use crate::wait;
use crate::world::World;

pub async fn a_removed_machine_deployment_takes_everything_along(world: &'static World) {
    let (tenant, manager) = Manager::with_registered(&Stage::open(world, "removed")).await;
    let made = tenant.serve(&a_machine_deployment("workers")).await;
    let other = tenant.serve(&a_machine_deployment("others")).await;
    tenant.delete("workers").await;
    wait::for_absence(&tenant.machine_deployments(), "workers").await;
    assert_eq!(remains(&tenant, &made).await, Vec::<String>::new());
    assert_eq!(
        remains(&tenant, &other).await.len(),
        5,
        "the other keeps its own"
    );
    manager.stop().await;
}

pub async fn what_was_made_for_one_that_vanished_unwatched_is_removed(world: &'static World) {
    let stage = Stage::open(world, "vanished");
    let (tenant, manager) = Manager::with_registered(&stage).await;
    let made = tenant.serve(&a_machine_deployment("workers")).await;
    manager.stop().await;
    tenant
        .change("workers", json!({ "metadata": { "finalizers": null } }))
        .await;
    tenant.delete("workers").await;
    wait::for_absence(&tenant.machine_deployments(), "workers").await;
    let manager = Manager::start(&stage, &[]).await;
    // The config goes last.
    wait::for_absence(&tenant.configs(), &made.names.config).await;
    assert_eq!(remains(&tenant, &made).await, Vec::<String>::new());
    manager.stop().await;
}

pub async fn release_gives_machine_deployments_back_and_leaves_what_was_made(
    world: &'static World,
) {
    let (tenant, made, manager) = off_boarded(world, ("release", "Release")).await;
    removed(&tenant, "1 machine deployment was released").await;
    assert_eq!(finalizers(&tenant).await, Vec::<String>::new());
    tenant.delete("workers").await;
    wait::for_absence(&tenant.machine_deployments(), "workers").await;
    assert_eq!(remains(&tenant, &made).await.len(), 5);
    manager.stop().await;
}

pub async fn purge_gives_machine_deployments_back_and_removes_what_was_made(world: &'static World) {
    let (tenant, made, manager) = off_boarded(world, ("purge", "Purge")).await;
    removed(&tenant, "1 machine deployment was released").await;
    assert_eq!(finalizers(&tenant).await, Vec::<String>::new());
    assert_eq!(remains(&tenant, &made).await, Vec::<String>::new());
    manager.stop().await;
}

pub async fn keep_leaves_all_as_it_is_and_says_so_and_a_new_registration_goes_on(
    world: &'static World,
) {
    let (tenant, made, manager) = off_boarded(world, ("keep", "Keep")).await;
    removed(&tenant, "1 machine deployment still has").await;
    assert_eq!(finalizers(&tenant).await, [FINALIZER]);
    assert_eq!(remains(&tenant, &made).await.len(), 5);
    tenant.register().await;
    tenant.annotate("workers", (REVISION, "2")).await;
    let after = tenant.made("workers", "2").await;
    assert_eq!(after.uids(), made.uids());
    manager.stop().await;
}

/// Waits until it is told what became of the cluster. A manager of another fleet that starts just
/// then cannot know, and may have said so before.
async fn removed(tenant: &Tenant, outcome: &str) {
    wait::for_object(&tenant.worker_clusters(), WORKER, outcome, |found| {
        let is_removed =
            conditions(found).contains(&("Registered", "False", "RegistrationRemoved"));
        is_removed && message(found, "Registered").contains(outcome)
    })
    .await;
}

async fn off_boarded(
    world: &'static World,
    (name, policy): (&'static str, &str),
) -> (Tenant, Made, Manager) {
    let (tenant, manager) = Manager::with_tenant(&Stage::open(world, name)).await;
    tenant.configure(json!({ "onRemoval": policy })).await;
    tenant.register().await;
    let made = tenant.serve(&a_machine_deployment("workers")).await;
    tenant.says("Ready", "True", "Ready").await;
    tenant.unregister().await;
    (tenant, made, manager)
}

async fn finalizers(tenant: &Tenant) -> Vec<String> {
    let found = get(&tenant.machine_deployments(), "workers").await;
    found.finalizers().to_vec()
}

/// The names of what is there of everything that was made for a machine deployment.
pub async fn remains(tenant: &Tenant, made: &Made) -> Vec<String> {
    let names = &made.names;
    let secrets = list(&tenant.secrets()).await;
    let configs = list(&tenant.configs()).await;
    let tokens = tenant.tokens_of(names).await;
    let secrets = secrets.iter().map(ResourceExt::name_any);
    let there = secrets.filter(|name| names.has_secret(name));
    let configs = configs.iter().map(ResourceExt::name_any);
    let there = there.chain(configs.filter(|name| *name == names.config));
    there
        .chain(tokens.iter().map(ResourceExt::name_any))
        .collect()
}
