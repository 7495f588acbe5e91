//! Profiles that extend others.

use kube::ResourceExt;
use osm::api::names::{MADE_FOR_PROFILE_VERSION, PROFILE};
use osm::api::profile::OperatingSystemProfile;
use serde_json::{Value, json};

use crate::fixtures::{
    self, PROFILE_NAME, a_little_machine_deployment, a_machine_deployment, a_profile,
    with_annotation,
};
use crate::process::Manager;
use crate::rotation::{change_profile, install};
use crate::stage::{Made, Stage, Tenant};
use crate::world::World;

pub async fn a_changed_base_rerenders_only_its_overlays(world: &'static World) {
    let (tenant, manager) = Manager::with_registered(&Stage::open(world, "base")).await;
    install(&tenant, &a_profile("v1.0.0", "first")).await;
    install(&tenant, &an_overlay("site", (PROFILE_NAME, json!({})))).await;
    let files = json!({ "files": [a_file("/etc/team", "of the team")] });
    install(&tenant, &an_overlay("team", ("site", files))).await;
    let before = tenant.serve(&of("workers", "team")).await;
    let other = tenant.serve(&a_machine_deployment("others")).await;
    change_profile(&tenant, "v1.0.1", "second").await;
    let after = tenant
        .made_when("workers", |bootstrap| {
            bootstrap.resource_version() != before.bootstrap.resource_version()
        })
        .await;
    let text = fixtures::config_text(&after.config);
    assert!(
        text.contains("second") && text.contains("of the team"),
        "{text}"
    );
    assert_eq!(
        after.bootstrap.annotations()[MADE_FOR_PROFILE_VERSION],
        "v7.0.0",
        "the version is the overlay's own"
    );
    assert_eq!(versions(&tenant, &other).await, of_made(&other));
    manager.stop().await;
}

/// A machine deployment that names a profile.
pub fn of(name: &str, profile: &str) -> osm::api::machine_deployment::MachineDeployment {
    with_annotation(a_little_machine_deployment(name), (PROFILE, profile))
}

fn a_file(path: &str, data: &str) -> Value {
    json!({ "path": path, "content": { "inline": { "data": data } } })
}

/// A profile that sets nothing but this in its provisioning half.
pub fn an_overlay(name: &str, (base, provisioning): (&str, Value)) -> OperatingSystemProfile {
    let profile = json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemProfile",
        "metadata": { "name": name },
        "spec": {
            "extends": base, "osName": "ubuntu", "osVersion": "24.04", "version": "v7.0.0",
            "provisioningConfig": provisioning,
        },
    });
    serde_json::from_value(profile).expect("the fixture is well formed")
}

/// The versions of what was made, as it stands now.
async fn versions(tenant: &Tenant, made: &Made) -> [Option<String>; 4] {
    let now = tenant
        .made_when(&made.names.key.replace("kube-system-", ""), |_| true)
        .await;
    of_made(&now)
}

fn of_made(made: &Made) -> [Option<String>; 4] {
    [
        made.config.resource_version(),
        made.provisioning.resource_version(),
        made.bootstrap.resource_version(),
        made.kubelet_kubeconfig.resource_version(),
    ]
}
