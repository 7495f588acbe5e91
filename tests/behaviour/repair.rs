//! What others delete or change comes back.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::Role;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use osm::api::names::{CLOUD_INIT_SETTINGS, FETCHER, FETCHER_TOKEN};
use serde_json::json;

use crate::suite::fixtures::{self, a_machine_deployment};
use crate::suite::process::Manager;
use crate::suite::server::ok;
use crate::suite::stage::{Made, Stage, Tenant, merge};
use crate::suite::wait;
use crate::suite::world::World;

/// As any base64 will do.
const FOREIGN: &str = "Zm9yZWlnbg==";

pub async fn what_is_deleted_by_hand_is_back(world: &'static World) {
    let (stage, tenant) = staged(world, "deleted").await;
    let manager = Manager::start(&stage, &[]).await;
    let made = tenant.serve(&a_machine_deployment("workers")).await;
    for secret in secrets(&made) {
        remove(&tenant, secret).await;
        is_back(&tenant, secret).await;
    }
    let configs = tenant.configs();
    let name = &made.names.config;
    ok(
        configs.delete(name, &DeleteParams::default()).await,
        "it is deleted",
    )
    .map_left(drop);
    let back = wait::for_object(&configs, name, "it is back", |found| {
        found.uid() != made.config.uid()
    })
    .await;
    assert_eq!(back.spec, made.config.spec);
    manager.stop().await;
}

pub async fn what_is_replaced_by_hand_is_put_right(world: &'static World) {
    let (stage, tenant) = staged(world, "replaced").await;
    let manager = Manager::start(&stage, &[]).await;
    let made = tenant.serve(&a_machine_deployment("workers")).await;
    for secret in secrets(&made) {
        for annotations in [None, secret.metadata.annotations.clone()] {
            remove(&tenant, secret).await;
            let mut foreign = secret.clone();
            foreign.metadata = fixtures::named(&secret.name_any());
            foreign.metadata.annotations = annotations;
            let foreign = with_foreign_bytes(foreign);
            // The manager may be faster; then there is nothing to replace by, and it is right.
            let _ = tenant
                .secrets()
                .create(&PostParams::default(), &foreign)
                .await;
            is_back(&tenant, secret).await;
        }
    }
    let kubelet = &made.kubelet_kubeconfig;
    let patch = json!({ "data": { "kubeconfig": FOREIGN } });
    merge(&tenant.secrets(), &kubelet.name_any(), patch).await;
    let back = wait::for_object(
        &tenant.secrets(),
        &kubelet.name_any(),
        "it is right",
        |found| found.data == kubelet.data,
    )
    .await;
    assert!(back.uid().is_some());
    manager.stop().await;
}

pub async fn a_fetcher_token_that_is_deleted_is_back_and_serving_goes_on(world: &'static World) {
    let (stage, tenant) = staged(world, "getter-token").await;
    let manager = Manager::start(&stage, &[]).await;
    drop(tenant.serve(&a_machine_deployment("workers")).await);
    let before = ok(tenant.secrets().get(FETCHER_TOKEN).await, "it is there");
    remove(&tenant, &before).await;
    wait::for_object(&tenant.secrets(), FETCHER_TOKEN, "it is back", |found| {
        found.uid() != before.uid() && fixtures::has_data(found, "token")
    })
    .await;
    drop(tenant.serve(&a_machine_deployment("others")).await);
    tenant.says("Ready", "True", "Ready").await;
    manager.stop().await;
}

pub async fn the_fetcher_is_used_as_it_is_found(world: &'static World) {
    let (stage, tenant) = staged(world, "fetcher").await;
    let roles: Api<Role> = Api::namespaced(tenant.admin.clone(), CLOUD_INIT_SETTINGS);
    let role = Role {
        metadata: fixtures::named(FETCHER),
        rules: Some(Vec::new()),
    };
    let found = ok(
        roles.create(&PostParams::default(), &role).await,
        "a role is made",
    );
    let manager = Manager::start(&stage, &[]).await;
    drop(tenant.serve(&a_machine_deployment("workers")).await);
    let after = ok(roles.get(FETCHER).await, "it is still there");
    assert_eq!(
        after.metadata.resource_version,
        found.metadata.resource_version
    );
    manager.stop().await;
}

async fn staged(world: &'static World, name: &'static str) -> (Stage, Tenant) {
    let stage = Stage::open(world, name);
    let tenant = stage.tenant().await;
    tenant.register().await;
    (stage, tenant)
}

fn secrets(made: &Made) -> [&Secret; 3] {
    [
        &made.provisioning,
        &made.bootstrap,
        &made.kubelet_kubeconfig,
    ]
}

async fn remove(tenant: &Tenant, secret: &Secret) {
    let name = secret.name_any();
    let deleted = tenant
        .secrets()
        .delete(&name, &DeleteParams::default())
        .await;
    ok(deleted, "an administrator may delete").map_left(drop);
}

/// The same bytes, annotations, type and immutability, in whatever object.
async fn is_back(tenant: &Tenant, secret: &Secret) {
    let back = wait::for_object(&tenant.secrets(), &secret.name_any(), "is back", |found| {
        found.data == secret.data && found.metadata.annotations == secret.metadata.annotations
    })
    .await;
    assert_eq!(back.immutable, secret.immutable);
    assert_eq!(back.type_, secret.type_);
}

fn with_foreign_bytes(mut secret: Secret) -> Secret {
    for value in secret.data.iter_mut().flat_map(|data| data.values_mut()) {
        value.0 = FOREIGN.as_bytes().to_vec();
    }
    secret
}
