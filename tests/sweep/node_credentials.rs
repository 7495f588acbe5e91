//! The credentials of one machine deployment's machines, over time: what is in place costs no
//! request, and what somebody changed is put right.

use std::time::Duration;

use fake_cluster::{AuditEntry, Cluster, Fault, Matcher, Verb, object};
use osm::api::names::{CLOUD_INIT_SETTINGS, DerivedNames};
use serde_json::{Value, json};

use crate::{
    scenarios::{Scenario, change, delete_machine_deployment, raise_revision, set},
    snapshot::text,
    world::{Process, World, settings},
};

/// They are looked at again after half of the lifetime of a bootstrap token, which is two hours
/// here.
const LOOKED_AT: Duration = Duration::from_hours(1);

/// Where the rights are missing they are tried again after this long.
const REFUSED_WAIT: Duration = Duration::from_mins(5);

const MADE_FOR_POINTER: &str =
    "/metadata/annotations/operatingsystemmanager.k8c.io~1machine-deployment";

async fn a_settled_world() -> (World, Process) {
    let mut world = Scenario::OwnCreate.world();
    world.settings = settings(&["--token-lifetime=2h", "--lease-duration=1h"]);
    let process = world.start_settled().await;
    (world, process)
}

fn names() -> DerivedNames {
    DerivedNames::new("kube-system", "workers")
}

/// The requests for what the credentials are made of.
fn requests(worker: &Cluster) -> Vec<String> {
    let names = names();
    let is_of_them =
        |it: &&AuditEntry| [&names.fetcher, &names.fetcher_token].contains(&&it.target.name);
    let audit = worker.audit();
    let found = audit.iter().filter(is_of_them);
    found
        .map(|it| format!("{} {}", it.verb.as_str(), it.target.resource))
        .collect()
}

/// The verbs of the role's first rule.
fn verbs(worker: &Cluster) -> Option<Value> {
    let role = worker.get(object("roles", CLOUD_INIT_SETTINGS, &names().fetcher));
    role?.pointer("/rules/0/verbs").cloned()
}

#[tokio::test(start_paused = true)]
async fn what_is_in_place_is_looked_at_after_half_a_lifetime_and_not_before() {
    let (world, process) = a_settled_world().await;
    let berlin = world.worker("berlin");
    let fetcher = names().fetcher;
    world.clear_audits();
    // No watch shows roles.
    change(berlin, ("roles", CLOUD_INIT_SETTINGS, &fetcher), |role| {
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
        fetcher,
        fetcher_token,
        ..
    } = names();
    for (resource, name, pointer, value) in [
        (
            "serviceaccounts",
            &fetcher,
            "/automountServiceAccountToken",
            json!(true),
        ),
        (
            "rolebindings",
            &fetcher,
            "/subjects/0/name",
            json!("somebody"),
        ),
        (
            "secrets",
            &fetcher_token,
            "/metadata/annotations",
            json!({ "kubernetes.io/service-account.name": fetcher }),
        ),
    ] {
        change(berlin, (resource, CLOUD_INIT_SETTINGS, name), |found| {
            set(found, pointer, value);
        });
    }
    let process = world.start_settled().await;
    process.stop().await;
    let found = |resource, name| berlin.get(object(resource, CLOUD_INIT_SETTINGS, name));
    let account = found("serviceaccounts", &fetcher).expect("it is there");
    assert_eq!(account["automountServiceAccountToken"], json!(false));
    let binding = found("rolebindings", &fetcher).expect("it is there");
    assert_eq!(binding["subjects"][0]["name"], json!(fetcher));
    let token = found("secrets", &fetcher_token).expect("it is there");
    assert_eq!(text(&token, MADE_FOR_POINTER), "kube-system/workers");
}

/// A token that somebody touched is another one: what it was made for may be gone from it.
#[tokio::test(start_paused = true)]
async fn a_token_that_somebody_changed_is_put_right_by_the_next_reconcile() {
    let (world, process) = a_settled_world().await;
    let berlin = world.worker("berlin");
    let token = names().fetcher_token;
    let place = ("secrets", CLOUD_INIT_SETTINGS, token.as_str());
    change(berlin, place, |found| {
        let annotations = json!({ "kubernetes.io/service-account.name": names().fetcher });
        set(found, "/metadata/annotations", annotations);
    });
    raise_revision(berlin);
    world.settle().await;
    process.stop().await;
    let found = berlin.get(object("secrets", CLOUD_INIT_SETTINGS, &token));
    let found = found.expect("it is there");
    assert_eq!(text(&found, MADE_FOR_POINTER), "kube-system/workers");
}

#[tokio::test(start_paused = true)]
async fn a_right_that_is_missing_is_tried_again_after_a_while_and_not_before() {
    let world = Scenario::OwnCreate.world();
    let berlin = world.worker("berlin");
    let forbidden = Fault::status(403);
    let account = Matcher {
        name: Some(names().fetcher),
        ..Matcher::on(&[Verb::Get, Verb::Create], "serviceaccounts")
    };
    let missing = berlin.inject(account, forbidden);
    let process = world.start_settled().await;
    assert_eq!(reason(&world), "Forbidden");
    berlin.clear_fault(missing);
    world.clear_audits();
    raise_revision(berlin);
    world.settle().await;
    assert_eq!(requests(berlin), [""; 0], "it was refused a moment ago");
    assert_eq!(reason(&world), "Forbidden");
    tokio::time::sleep(REFUSED_WAIT).await;
    raise_revision(berlin);
    world.settle().await;
    assert_eq!(reason(&world), "PerMachineDeployment");
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_shares_the_fetcher_hears_of_it_where_it_had_credentials_of_its_own() {
    let world = Scenario::Provisioning.world();
    for _ in 0..2 {
        let process = world.start_settled().await;
        process.stop().await;
        assert_eq!(reason(&world), "", "it never had others");
    }
    let (world, process) = a_settled_world().await;
    assert_eq!(reason(&world), "PerMachineDeployment");
    process.stop().await;
    world.change_own("berlin", |own| {
        set(own, "/spec/nodeCredentials", json!("Shared"));
    });
    let process = world.start_settled().await;
    assert_eq!(reason(&world), "SharedGetter");
    process.stop().await;
}

/// The token is what shows them without a read.
#[tokio::test(start_paused = true)]
async fn what_is_left_of_them_goes_with_their_machine_deployment() {
    let (world, process) = a_settled_world().await;
    process.stop().await;
    let berlin = world.worker("berlin");
    let token = names().fetcher_token;
    assert!(berlin.delete_raw(object("secrets", CLOUD_INIT_SETTINGS, &token)));
    delete_machine_deployment(berlin, "workers").await;
    let process = world.start_settled().await;
    process.stop().await;
    for resource in ["serviceaccounts", "roles", "rolebindings"] {
        let found = berlin.get(object(resource, CLOUD_INIT_SETTINGS, &names().fetcher));
        assert!(found.is_none(), "{resource}");
    }
}

/// Returns the reason of the tenant's condition about credentials.
fn reason(world: &World) -> String {
    text(&world.condition("berlin", "NodeCredentials"), "/reason").to_owned()
}
