//! Which profile serves a machine deployment, and what a tenant's settings say about that.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::Api;
use osm::api::names::{PROFILE_NAMESPACE, REVISION, SETTINGS_RESTORED};
use serde_json::json;

use crate::administrator::{create, delete, get, merge};
use crate::audit::{Request, told};
use crate::fixtures::{
    self, a_little_machine_deployment, a_machine_deployment, a_profile, with_annotation,
};
use crate::process::Manager;
use crate::rotation::install;
use crate::stage::{Stage, WORKER, message};
use crate::wait;
use crate::world::{IN_WORKER, World};

pub async fn a_profile_of_a_namespace_that_the_operator_allows_is_used(world: &'static World) {
    let stage = Stage::open(world, "shared-profile");
    let tenant = stage.tenant().await;
    let namespaces: Api<Namespace> = Api::all(tenant.management.clone());
    let shared = fixtures::a_namespace("shared-profiles");
    create(&namespaces, &shared).await;
    let profiles: Api<osm::api::profile::OperatingSystemProfile> =
        Api::namespaced(tenant.management.clone(), "shared-profiles");
    let profile = a_profile("v1.0.0", "shared by all");
    create(&profiles, &profile).await;
    let manager = Manager::start(&stage, &["--profile-namespace", "shared-profiles"]).await;
    tenant.register().await;
    let named = (PROFILE_NAMESPACE, "shared-profiles");
    let machine_deployment = with_annotation(a_little_machine_deployment("workers"), named);
    let made = tenant.serve(&machine_deployment).await;
    assert!(fixtures::config_text(&made.config).contains("shared by all"));
    manager.stop().await;
}

pub async fn a_template_that_fails_touches_nothing_that_is_there(world: &'static World) {
    let (tenant, manager) = Manager::with_registered(&Stage::open(world, "failing-template")).await;
    install(&tenant, &a_profile("v1.0.0", "fine")).await;
    let before = tenant.serve(&a_little_machine_deployment("workers")).await;
    let broken = a_profile("v1.0.1", "{{ NoSuchVariable }}").spec;
    let patch = json!({ "spec": serde_json::to_value(broken).expect("plain values") });
    merge(&tenant.profiles(), fixtures::PROFILE_NAME, patch).await;
    tenant.is_refused("workers", "RenderFailed").await;
    let said = tenant.says("Ready", "False", "SomeNotServed").await;
    let named = format!("OperatingSystemProfile {}: ", fixtures::PROFILE_NAME);
    assert!(message(&said, "Ready").contains(&named), "{said:?}");
    let after = tenant.made("workers", "1").await;
    assert_eq!(after.uids(), before.uids());
    let versions = [&before, &after].map(|it| it.provisioning.resource_version());
    assert_eq!(versions[0], versions[1], "it was not even annotated");
    manager.stop().await;
}

pub async fn a_paused_worker_cluster_is_left_alone(world: &'static World) {
    let (tenant, manager) = Manager::with_registered(&Stage::open(world, "paused")).await;
    let before = tenant.serve(&a_machine_deployment("workers")).await;
    tenant.says("Ready", "True", "Ready").await;
    tenant.configure(json!({ "paused": true })).await;
    tenant.says("Registered", "False", "Paused").await;
    let paused = Timestamp::now();
    tenant.annotate("workers", (REVISION, "2")).await;
    tenant.worker.settle_audit().await;
    let requests = tenant.worker.requests(crate::world::IN_WORKER, paused);
    assert!(requests.is_empty(), "{}", told(&requests));
    tenant.configure(json!({ "paused": false })).await;
    let after = tenant.made("workers", "2").await;
    assert_eq!(after.uids(), before.uids());
    manager.stop().await;
}

pub async fn a_worker_cluster_that_is_deleted_is_back_with_its_settings(world: &'static World) {
    let stage = Stage::open(world, "settings");
    let (tenant, manager) = Manager::with_tenant(&stage).await;
    let settings = json!({ "httpProxy": "http://proxy.example:3128", "clusterDNS": ["10.0.0.53"] });
    tenant.configure(settings).await;
    tenant.register().await;
    drop(tenant.serve(&a_machine_deployment("workers")).await);
    let before = tenant.says("Ready", "True", "Ready").await;
    let deleted = Timestamp::now();
    let worker_clusters = tenant.worker_clusters();
    delete(&worker_clusters, WORKER).await;
    tenant.says("Registered", "True", "SettingsRestored").await;
    let after = tenant.says("Ready", "True", "Ready").await;
    assert!(after.uid() != before.uid() && after.spec == before.spec);
    assert_eq!(after.labels(), before.labels());
    let what = message(&after, "Registered");
    let confirm = format!(
        "kubectl -n {} annotate workercluster {WORKER} {SETTINGS_RESTORED}-",
        tenant.namespace
    );
    assert!(what.contains(&confirm), "{what}");
    // A restart keeps both.
    manager.stop().await;
    let manager = Manager::start(&stage, &[]).await;
    manager.has_reconciled("served", 1.0).await;
    tenant.says("Registered", "True", "SettingsRestored").await;
    let patch = json!({ "metadata": { "annotations": { SETTINGS_RESTORED: null } } });
    merge(&worker_clusters, WORKER, patch).await;
    tenant.says("Registered", "True", "Accepted").await;
    manager.stop().await;
    tenant.worker.settle_audit().await;
    let written = tenant.worker.requests(IN_WORKER, deleted);
    let written: Vec<_> = written.into_iter().filter(Request::is_write).collect();
    assert!(written.is_empty(), "{}", told(&written));
}

pub async fn a_default_profile_that_is_deleted_or_downgraded_is_back(world: &'static World) {
    let (tenant, manager) = Manager::with_registered(&Stage::open(world, "default-profile")).await;
    tenant.says("ProfilesInstalled", "True", "Installed").await;
    let profiles = tenant.profiles();
    let installed = get(&profiles, "osp-ubuntu").await;
    let older = json!({ "spec": { "version": "v0.0.1+jinja" } });
    merge(&profiles, "osp-ubuntu", older).await;
    wait::for_object(&profiles, "osp-ubuntu", "it is ours again", |found| {
        found.spec == installed.spec
    })
    .await;
    delete(&profiles, "osp-ubuntu").await;
    wait::for_object(&profiles, "osp-ubuntu", "it is back", |found| {
        found.uid() != installed.uid() && found.spec == installed.spec
    })
    .await;
    manager.stop().await;
}
