//! Documents that are too large for the provider, or nearly.

use k8s_openapi::api::events::v1::Event;
use osm::api::machine_deployment::MachineDeployment;
use osm::api::names::CLOUD_CONFIG_KEY;
use osm::api::profile::{File, OperatingSystemProfile};
use serde_json::json;

use crate::administrator::merge;
use crate::fixtures::{self, PROFILE_NAME, a_little_machine_deployment, a_profile, on_cloud};
use crate::process::Manager;
use crate::rotation::install;
use crate::stage::{Made, Stage, Tenant};
use crate::wait;
use crate::world::World;

/// It is served, and its template has changed.
const AWAITS_REVISION: (&str, &str) = ("Waiting", "AwaitingRevision");
/// `OpenStack` takes 65,535 characters in base64: 49,149 bytes.
const TOO_MUCH: usize = 60_000;
/// More than four fifths of that.
const MUCH: usize = 45_000;

const NAME: &str = "kube-system/workers";

pub async fn a_document_that_the_provider_does_not_take_is_refused_and_the_old_one_stays(
    world: &'static World,
) {
    let (tenant, manager) = Manager::with_registered(&Stage::open(world, "too-large")).await;
    install(&tenant, &a_profile_of("v1.0.0", 10)).await;
    let before = tenant.serve(&a_machine_deployment()).await;
    change_profile(&tenant, "v1.0.1", TOO_MUCH).await;
    let entry = tenant.entry(NAME, ("Refused", "UserDataTooLarge")).await;
    let message = entry.message.unwrap_or_default();
    for part in [
        "the bootstrap document has ",
        " bytes in base64, ",
        " more than the 65535 that openstack takes",
        "its largest file is /opt/large with 60000",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let event = an_event(&tenant, "UserDataTooLarge").await;
    assert!(event.note.is_some_and(|note| note.contains("/opt/large")));
    let after = tenant.made("workers", "1").await;
    assert_eq!(objects(&after), objects(&before), "nothing was written");
    change_profile(&tenant, "v1.0.2", 20).await;
    tenant.entry(NAME, ("Served", "Current")).await;
    let healed = tenant.made("workers", "1").await;
    assert_ne!(text(&healed), text(&before));
    manager.stop().await;
}

pub async fn a_document_close_to_its_limit_is_served_with_a_warning_until_it_shrinks(
    world: &'static World,
) {
    let stage = Stage::open(world, "near-limit");
    let (tenant, manager) = Manager::with_registered(&stage).await;
    install(&tenant, &a_profile_of("v1.0.0", MUCH)).await;
    let made = tenant.serve(&a_machine_deployment()).await;
    assert!(text(&made).len() > MUCH);
    let entry = tenant.entry(NAME, ("Served", "UserDataNearLimit")).await;
    let message = entry.message.unwrap_or_default();
    assert!(
        message.contains(" % of the 65535 that openstack takes"),
        "{message}"
    );
    assert!(message.contains("/opt/large with 45000"), "{message}");
    drop(an_event(&tenant, "UserDataNearLimit").await);
    tenant.says("Ready", "True", "Ready").await;
    manager.stop().await;
    // After a restart nothing is rendered, and the warning is still known.
    let manager = Manager::start(&stage, &[]).await;
    manager.has_reconciled("served", 1.0).await;
    manager.stop().await;
    let entry = tenant.entry(NAME, ("Served", "UserDataNearLimit")).await;
    assert_eq!(entry.message, Some(message));
    let manager = Manager::start(&stage, &[]).await;
    change_profile(&tenant, "v1.0.1", 10).await;
    let entry = tenant.entry(NAME, ("Served", "Current")).await;
    assert_eq!(entry.message, None);
    manager.stop().await;
}

pub async fn a_machine_deployment_that_is_too_large_is_refused_and_what_was_made_stays(
    world: &'static World,
) {
    let stage = Stage::open(world, "too-large-itself");
    let (tenant, manager) = Manager::with_registered(&stage).await;
    install(&tenant, &a_profile_of("v1.0.0", 10)).await;
    let before = tenant.serve(&a_machine_deployment()).await;
    // Little on the wire, and much in memory.
    tenant.change("workers", with_tags(4_000)).await;
    let entry = tenant.entry(NAME, ("Refused", "TooLarge")).await;
    let message = entry.message.unwrap_or_default();
    assert!(message.contains("shorten its annotations"), "{message}");
    drop(an_event(&tenant, "TooLarge").await);
    manager.stop().await;
    // A new process reads it in a list, and this one in an event.
    let manager = Manager::start(&stage, &[]).await;
    manager.has_reconciled("refused", 1.0).await;
    let after = tenant.made("workers", "1").await;
    assert_eq!(objects(&after), objects(&before), "nothing was written");
    tenant.change("workers", with_tags(1)).await;
    tenant.entry(NAME, AWAITS_REVISION).await;
    tenant.change("workers", with_tags(4_000)).await;
    tenant.entry(NAME, ("Refused", "TooLarge")).await;
    tenant.delete("workers").await;
    for name in after.names.secrets() {
        wait::for_absence(&tenant.secrets(), name).await;
    }
    wait::for_absence(&tenant.machine_deployments(), "workers").await;
    manager.stop().await;
}

pub async fn a_tenant_exceeds_its_guaranteed_memory_only_while_there_is_some_left(
    world: &'static World,
) {
    let stage = Stage::open(world, "share");
    let tenant = stage.tenant().await;
    let manager = Manager::start(&stage, &["--memory-limit=1"]).await;
    tenant.register().await;
    install(&tenant, &a_profile_of("v1.0.0", 10)).await;
    drop(tenant.serve(&a_machine_deployment()).await);
    let other = on_cloud(a_little_machine_deployment("others"), "openstack");
    drop(tenant.serve(&other).await);
    // Each is more than half of a tenant's share.
    tenant.change("workers", with_tags(1_000)).await;
    tenant.change("others", with_tags(1_000)).await;
    let other = "kube-system/others";
    tenant.entry(other, ("Refused", "TooLarge")).await;
    tenant.entry(NAME, AWAITS_REVISION).await;
    manager.stop().await;
    let manager = Manager::start(&stage, &[]).await;
    tenant.entry(other, AWAITS_REVISION).await;
    manager.stop().await;
}

/// A patch of the provider spec.
fn with_tags(count: usize) -> serde_json::Value {
    let value = json!({ "cloudProviderSpec": { "tags": vec![json!({}); count] } });
    json!({ "spec": { "template": { "spec": { "providerSpec": { "value": value } } } } })
}

fn a_machine_deployment() -> MachineDeployment {
    on_cloud(a_little_machine_deployment("workers"), "openstack")
}

/// A profile with a file of this many bytes in its bootstrap half.
fn a_profile_of(version: &str, size: usize) -> OperatingSystemProfile {
    let mut profile = a_profile(version, "text");
    let content = json!({ "inline": { "data": "x".repeat(size) } });
    let file = json!({ "path": "/opt/large", "permissions": 600, "content": content });
    let file: File = serde_json::from_value(file).expect("the file is well formed");
    profile.spec.bootstrap_config.files.push(file);
    profile
}

async fn change_profile(tenant: &Tenant, version: &str, size: usize) {
    let spec = serde_json::to_value(a_profile_of(version, size).spec).expect("plain values");
    merge(&tenant.profiles(), PROFILE_NAME, json!({ "spec": spec })).await;
}

/// What was made, with versions and bytes.
fn objects(made: &Made) -> [serde_json::Value; 4] {
    let value = |object: serde_json::Result<serde_json::Value>| object.expect("plain values");
    [
        value(serde_json::to_value(&made.config)),
        value(serde_json::to_value(&made.provisioning)),
        value(serde_json::to_value(&made.bootstrap)),
        value(serde_json::to_value(&made.kubelet_kubeconfig)),
    ]
}

fn text(made: &Made) -> String {
    fixtures::text(&made.bootstrap, CLOUD_CONFIG_KEY)
}

/// Waits for a Warning about the machine deployment.
pub async fn an_event(tenant: &Tenant, reason: &str) -> Event {
    let is_it = |event: &Event| {
        event.reason.as_deref() == Some(reason)
            && event.type_.as_deref() == Some("Warning")
            && event.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some("workers")
    };
    let found = wait::for_objects(&tenant.worker_events(), reason, |events| {
        events.values().any(is_it)
    })
    .await;
    found.into_values().find(is_it).expect("it was just seen")
}
