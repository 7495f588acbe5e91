//! What bounds a tenant is decided by the operator's file, by name or by the labels of the
//! tenant's namespace, and another decision holds without a restart.

use std::time::Duration;

use fake_cluster::{Fault, Matcher, Verb, object};
use serde_json::{Value, json};

use crate::{
    fixtures,
    scenarios::{BOOTSTRAP, annotate, change, change_machine_deployment, set},
    snapshot::boot_secret,
    world::{World, put, settings},
};

const SECOND: &str = "more-kube-system-bootstrap-config";

/// A world whose tenants may have what this file says.
fn a_world(policies: &str, flags: &[&str]) -> World {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("policies.yaml");
    std::fs::write(&path, policies).expect("a file can be written");
    let mut world = World::new(&["berlin", "lisbon"]);
    let path = path.to_str().expect("a path is text").to_owned();
    world.settings = settings(&[&["--tenant-policies", &path], flags].concat());
    for name in ["berlin", "lisbon"] {
        world.register(name);
        world.add_profile(name, "v1.0.0", "text\n");
        for own in ["workers", "more"] {
            world.deploy(name, own);
        }
    }
    world
}

fn label(world: &World, namespace: &str, labels: &Value) {
    let own = ("namespaces", "", namespace);
    change(&world.management, own, |found| {
        set(found, "/metadata/labels", labels.clone());
    });
}

fn served(world: &World, cluster: &str) -> usize {
    let worker = world.worker(cluster);
    let secrets = [BOOTSTRAP, SECOND].into_iter();
    secrets
        .filter(|name| boot_secret(worker, name).is_some())
        .count()
}

/// The reason of an entry or a condition in a tenant's status.
fn says(world: &World, tenant: &str, reason: &str) -> bool {
    let own = world.own(tenant);
    let status = own.get("status").expect("it has a status");
    status.to_string().contains(&format!("\"{reason}\""))
}

#[tokio::test(start_paused = true)]
async fn a_label_of_the_namespace_decides_and_a_change_of_it_holds_soon() {
    let world = a_world(
        "- match: {namespaces: [lisbon]}\n  machineDeployments: 1\n\
         - match: {namespaceLabels: {size: small}}\n  machineDeployments: 0\n",
        &["--facts-interval=1m"],
    );
    label(&world, "berlin", &json!({"size": "small"}));
    label(&world, "lisbon", &json!({"size": "small"}));
    let process = world.start();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!((served(&world, "berlin"), served(&world, "lisbon")), (0, 1));
    assert!(says(&world, "berlin", "TooManyMachineDeployments"));
    label(&world, "berlin", &json!({"size": "large"}));
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!((served(&world, "berlin"), served(&world, "lisbon")), (2, 1));
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_the_labels_that_decide_a_tenant_is_not_served() {
    let world = a_world(
        "- match: {namespaces: [lisbon]}\n  reconciles: 1\n\
         - match: {namespaceLabels: {size: small}}\n  reconciles: 2\n",
        &[],
    );
    world.configure("berlin", &json!({}));
    let refused = Fault::status(500);
    let reads = Matcher {
        name: Some("berlin".to_owned()),
        ..Matcher::on(&[Verb::Get], "namespaces")
    };
    let outage = world.management.inject(reads, refused);
    let process = world.start();
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!((served(&world, "berlin"), served(&world, "lisbon")), (0, 2));
    assert!(says(&world, "berlin", "PolicyUnknown"));
    assert_eq!(world.worker("berlin").audit().len(), 0, "nothing was asked");
    world.management.clear_fault(outage);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(served(&world, "berlin"), 2);
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_profile_beyond_the_quota_is_refused_until_an_older_one_goes() {
    let world = a_world("- match: {namespaces: [berlin]}\n  profiles: 1\n", &[]);
    let mut younger = fixtures::a_profile("berlin", "v1.0.0", "text\n");
    set(&mut younger, "/metadata/name", json!("younger"));
    tokio::time::sleep(Duration::from_secs(5)).await;
    put(&world.management, younger);
    change_machine_deployment(world.worker("berlin"), "more", |found| {
        annotate(found, fixtures::PROFILE, "younger");
    });
    let process = world.start_settled().await;
    assert_eq!(served(&world, "berlin"), 1);
    assert!(says(&world, "berlin", "ProfileQuotaExceeded"));
    assert_eq!(served(&world, "lisbon"), 2);
    let older = object("operatingsystemprofiles", "berlin", "own");
    assert!(world.management.delete_raw(older));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(boot_secret(world.worker("berlin"), SECOND).is_some());
    assert!(!says(&world, "berlin", "ProfileQuotaExceeded"));
    process.stop().await;
}
