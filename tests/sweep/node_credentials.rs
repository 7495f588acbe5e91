//! The credentials of one machine deployment's machines, over time: what is in place costs no
//! request, and what somebody changed is put right.

use std::time::Duration;

use fake_cluster::{AuditEntry, Cluster, object};
use osm::api::names::{CLOUD_INIT_SETTINGS, DerivedNames};
use serde_json::{Value, json};

use crate::{
    scenarios::{Scenario, change, raise_revision, set},
    snapshot::text,
    world::{Process, World, settings},
};

/// They are looked at again after half of the lifetime of a bootstrap token, which is two hours
/// here.
const LOOKED_AT: Duration = Duration::from_hours(1);

const MADE_FOR_POINTER: &str =
    "/metadata/annotations/operatingsystemmanager.k8c.io~1machine-deployment";

async fn a_settled_world() -> (World, Process) {
    let mut world = Scenario::OwnCreate.world();
    world.settings = settings(&["--token-lifetime=2h", "--lease-duration=1h"]);
    let process = world.start();
    world.settle().await;
    (world, process)
}

fn names() -> DerivedNames {
    DerivedNames::new("kube-system", "workers")
}

/// The requests for what the credentials are made of.
fn requests(worker: &Cluster) -> Vec<String> {
    let names = names();
    let is_of_them =
        |it: &&AuditEntry| [&names.getter, &names.getter_token].contains(&&it.target.name);
    let audit = worker.audit();
    let found = audit.iter().filter(is_of_them);
    found
        .map(|it| format!("{} {}", it.verb.as_str(), it.target.resource))
        .collect()
}

/// The verbs of the role's first rule.
fn verbs(worker: &Cluster) -> Option<Value> {
    let role = worker.get(object("roles", CLOUD_INIT_SETTINGS, &names().getter));
    role?.pointer("/rules/0/verbs").cloned()
}

#[tokio::test(start_paused = true)]
async fn what_is_in_place_is_looked_at_after_half_a_lifetime_and_not_before() {
    let (world, process) = a_settled_world().await;
    let berlin = world.worker("berlin");
    let getter = names().getter;
    world.clear_audits();
    // No watch shows roles.
    change(berlin, ("roles", CLOUD_INIT_SETTINGS, &getter), |role| {
        set(role, "/rules/0/verbs", json!(["get", "list"]));
    });
    raise_revision(berlin);
    world.settle().await;
    assert_eq!(requests(berlin), [""; 0], "the token is known");
    tokio::time::sleep(LOOKED_AT).await;
    raise_revision(berlin);
    world.settle().await;
    assert_eq!(verbs(berlin), Some(json!(["get"])));
    world.clear_audits();
    raise_revision(berlin);
    world.settle().await;
    assert_eq!(requests(berlin), [""; 0], "it was looked at");
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_somebody_changed_of_them_is_put_right_by_the_next_process() {
    let (world, process) = a_settled_world().await;
    process.stop().await;
    let berlin = world.worker("berlin");
    let DerivedNames {
        getter,
        getter_token,
        ..
    } = names();
    for (resource, name, pointer, value) in [
        (
            "serviceaccounts",
            &getter,
            "/automountServiceAccountToken",
            json!(true),
        ),
        (
            "rolebindings",
            &getter,
            "/subjects/0/name",
            json!("somebody"),
        ),
        (
            "secrets",
            &getter_token,
            "/metadata/annotations",
            json!({ "kubernetes.io/service-account.name": getter }),
        ),
    ] {
        change(berlin, (resource, CLOUD_INIT_SETTINGS, name), |found| {
            set(found, pointer, value);
        });
    }
    let process = world.start();
    world.settle().await;
    process.stop().await;
    let found = |resource, name| berlin.get(object(resource, CLOUD_INIT_SETTINGS, name));
    let account = found("serviceaccounts", &getter).expect("it is there");
    assert_eq!(account["automountServiceAccountToken"], json!(false));
    let binding = found("rolebindings", &getter).expect("it is there");
    assert_eq!(binding["subjects"][0]["name"], json!(getter));
    let token = found("secrets", &getter_token).expect("it is there");
    assert_eq!(text(&token, MADE_FOR_POINTER), "kube-system/workers");
}
