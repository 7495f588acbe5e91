//! Stored objects with names that this version does not know, and objects that nobody can decode:
//! each affects itself alone, on every path that reads it.

use jiff::SignedDuration;
use kube::Api;
use osm::api::machine_deployment::MachineDeployment;
use osm::api::names::{KUBE_SYSTEM, PROFILE};
use osm::api::profile::OperatingSystemProfile;
use serde_json::{Value, json};

use crate::administrator::{create, find};
use crate::adoption::{KUBEONE, renewed, restore};
use crate::commands::{Said, a_file, path, run};
use crate::fixtures::{a_machine_deployment, a_profile, on_cloud, with_annotation};
use crate::operators::explain;
use crate::process::{Manager, plan};
use crate::server::ok;
use crate::stage::{Stage, Tenant, message};
use crate::world::World;

/// A cloud provider that releases of the original up to v1.10 knew.
const DROPPED: &str = "equinixmetal";

/// A profile with a name of its own, whose cloud providers are one that is known and one that is
/// not.
fn older_profile(name: &str) -> OperatingSystemProfile {
    // The original's schema drops the field with the language, and the version says it, too.
    let mut profile = a_profile("v1.0.0+jinja", "text");
    profile.metadata.name = Some(name.to_owned());
    let providers = json!([{ "name": "aws" }, { "name": DROPPED }]);
    profile.spec.supported_cloud_providers =
        serde_json::from_value(providers).expect("any name is one");
    profile
}

/// A profile for an operating system that is not known.
fn foreign_profile(name: &str) -> OperatingSystemProfile {
    let mut profile = older_profile(name);
    profile.spec.os_name = "centos".into();
    profile
}

fn using(name: &str, profile: &str) -> MachineDeployment {
    with_annotation(a_machine_deployment(name), (PROFILE, profile))
}

pub async fn names_that_nobody_knows_refuse_only_who_uses_them(world: &'static World) {
    let stage = Stage::open(world, "unknown");
    let tenant = stage.tenant().await;
    create(&tenant.profiles(), &older_profile("dated")).await;
    create(&tenant.profiles(), &foreign_profile("foreign")).await;
    put_undecodable(world, &tenant);
    let manager = Manager::start(&stage, &[]).await;
    tenant.register().await;
    for found in [
        a_machine_deployment("workers"),
        using("dated", "dated"),
        on_cloud(using("dropped", "dated"), DROPPED),
        using("foreign", "foreign"),
    ] {
        drop(tenant.create(&found).await);
    }
    let entry = |name, entry| tenant.entry(name, entry);
    entry("kube-system/workers", ("Served", "Current")).await;
    entry("kube-system/dated", ("Served", "Current")).await;
    entry("kube-system/dropped", ("Refused", "RenderFailed")).await;
    entry(
        "kube-system/foreign",
        ("Refused", "OperatingSystemProfileError"),
    )
    .await;
    tenant.says("ProfilesInstalled", "True", "Installed").await;
    commands_go_on(&stage, &tenant).await;
    manager.stop().await;
}

/// What a real API server refuses, an older schema may have let in: a profile and a config whose
/// fields have other types, and a WorkerCluster of another tenant with a value that is not known.
fn put_undecodable(world: &World, tenant: &Tenant) {
    let namespace = &tenant.namespace;
    let mut spec = ok(
        serde_json::to_value(older_profile("torn").spec),
        "plain values",
    );
    json_patch::merge(&mut spec, &json!({ "osVersion": 24.04 }));
    let profile = json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemProfile",
        "metadata": { "name": "torn", "namespace": namespace }, "spec": spec,
    });
    let config = json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemConfig",
        "metadata": { "name": "torn", "namespace": namespace }, "spec": { "osName": 7 },
    });
    let other = json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
        "metadata": { "name": "torn", "namespace": format!("{namespace}-torn") },
        "spec": { "kubeconfigSecretRef": { "name": "torn" }, "onRemoval": "Frame" },
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "torn", "namespace": namespace }, "data": 7,
    });
    for object in [profile, config, other, secret] {
        world.management.store_unchecked(object);
    }
}

async fn commands_go_on(stage: &Stage, tenant: &Tenant) {
    let (code, text) = plan(stage, &["-n", &tenant.namespace]).await;
    assert_eq!(code, Some(1), "some are refused: {text}");
    for line in [
        "kube-system/workers: unchanged",
        "kube-system/dated: unchanged",
        "kube-system/dropped: would be refused",
        "kube-system/foreign: would be refused",
    ] {
        assert!(text.contains(line), "{text}");
    }
    for (name, expected) in [
        ("kube-system/dated", "current"),
        ("kube-system/dropped", DROPPED),
        ("kube-system/foreign", "does not support operating system"),
    ] {
        let said = explain(stage, tenant, name).await;
        assert!(said.all().contains(expected), "{name}: {said:?}");
    }
    let admin = a_file(&tenant.management_admin());
    let osm = async |words: &[&str]| -> Said {
        run(&[words, &["--kubeconfig", path(&admin)]].concat()).await
    };
    let listed = osm(&["tenants", "-o", "json"]).await;
    let rows: Value = ok(serde_json::from_str(&listed.out), "it is JSON");
    let rows = rows.as_array().expect("it is a list");
    let row = rows.iter().find(|row| row["tenant"] == *tenant.namespace);
    assert_eq!(
        row.expect("the tenant has a row")["served"],
        2,
        "{listed:?}"
    );
    if stage.world.management.real().is_none() {
        let torn = format!("{}-torn", tenant.namespace);
        let row = rows.iter().find(|row| row["tenant"] == *torn);
        assert_eq!(row.expect("it has a row")["state"], "Unreadable");
    }
    let doctor = osm(&[
        "doctor",
        "-n",
        &tenant.namespace,
        "--allow-loopback-servers",
    ])
    .await;
    assert!(!doctor.all().contains("cannot list"), "{doctor:?}");
}

pub async fn an_adopted_cluster_keeps_names_that_nobody_knows(world: &'static World) {
    let stage = Stage::open(world, "adopt-unknown");
    let tenant = stage.tenant().await;
    restore(&tenant, &KUBEONE).await;
    let there: Api<OperatingSystemProfile> = Api::namespaced(tenant.admin.clone(), KUBE_SYSTEM);
    create(&there, &older_profile("dated")).await;
    create(&there, &foreign_profile("foreign")).await;
    for name in ["dated", "foreign"] {
        drop(tenant.create(&using(name, name)).await);
    }
    // The original's schema, under which neither could be created.
    tenant
        .worker
        .apply_file("tests/drop_in/definitions.yaml")
        .await;
    renewed(&tenant, &KUBEONE, SignedDuration::from_hours(-2)).await;
    tenant.register().await;
    let manager = Manager::start(&stage, &[]).await;
    let entry = |name, entry| tenant.entry(name, entry);
    entry("kube-system/workers", ("Served", "Current")).await;
    entry("kube-system/dated", ("Served", "Current")).await;
    entry(
        "kube-system/foreign",
        ("Refused", "OperatingSystemProfileError"),
    )
    .await;
    let said = tenant.says("Adopted", "True", "SecretsDiffer").await;
    assert!(message(&said, "Adopted").contains("kube-system/older"));
    for name in ["dated", "foreign"] {
        let copied = find(&tenant.profiles(), name).await;
        assert!(copied.is_some(), "{name}");
    }
    manager.stop().await;
}
