//! What commands say of tenants that no manager serves, and with whose settings they judge.

use std::collections::BTreeMap;

use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use osm::api::worker_cluster::WorkerCluster;
use serde_json::Value;

use crate::commands::{Admin, Said, a_file, path};
use crate::process::Manager;
use crate::server::ok;
use crate::stage::{Stage, Tenant, WORKER};
use crate::wait;
use crate::world::World;

/// The state of the first row of `osm tenants`, and another field of it.
async fn row(tenant: &Tenant, more: &[&str], field: &str) -> Option<(String, String)> {
    let words = ["tenants", "-n", &tenant.namespace, "-o", "json"];
    let said = Admin::of(tenant).osm(&[&words[..], more].concat()).await;
    let rows: Value = ok(serde_json::from_str(&said.out), &format!("JSON: {said:?}"));
    let text = |field| Some(rows.get(0)?.get(field)?.as_str()?.to_owned());
    Some((text("state")?, text(field)?))
}

/// What `osm doctor` says of who serves the tenant: whether it fails, and why.
async fn doctor((stage, tenant): (&Stage, &Tenant)) -> (bool, String) {
    let words = ["doctor", "-o", "json"];
    let said = Admin::of(tenant).osm_about((stage, tenant), &words).await;
    let checks: Vec<Value> = ok(serde_json::from_str(&said.out), &format!("JSON: {said:?}"));
    let mut checks = checks.iter();
    let served = checks.find(|it| it["what"] == "served" && it["place"] == *tenant.namespace);
    let served = served.expect("it is checked");
    let text = served["message"].as_str().unwrap_or_default().to_owned();
    (served["state"] == "Fail", text)
}

fn has(said: &Said, text: &str) {
    assert!(said.all().contains(text), "{text:?} is not in {said:?}");
}

pub async fn what_no_manager_serves_is_not_called_ready(world: &'static World) {
    let stage = Stage::open(world, "unserved");
    let (tenant, manager) = Manager::with_registered(&stage).await;
    let of = (&stage, &tenant);
    tenant.says("Ready", "True", "Ready").await;
    for (field, value) in [("fleet", "unserved"), ("replica", "osm-0")] {
        let ready = ("Ready".to_owned(), value.to_owned());
        assert_eq!(row(&tenant, &[], field).await, Some(ready));
    }
    assert_eq!(row(&tenant, &["--not-ready"], "name").await, None);
    assert_eq!(doctor(of).await, (false, "by replica osm-0".to_owned()));

    manager.stop().await;
    let gone = row(&tenant, &["--not-ready"], "message").await;
    let (found, message) = gone.expect("it is listed");
    assert_eq!(found, "NoManager");
    let why =
        "no replica of fleet unserved has renewed its Lease in operating-system-manager since";
    assert!(message.starts_with(why), "{message}");
    assert!(message.ends_with("; before that: Ready"), "{message}");
    let (fails, found) = doctor(of).await;
    assert!(fails && found.starts_with(why), "{found}");

    // It comes back for another namespace.
    let manager = Manager::start(&stage, &["--namespace", "default"]).await;
    wait::until("it is not watched", async || {
        let (found, _) = row(&tenant, &[], "name").await?;
        (found == "NotWatched").then_some(())
    })
    .await;
    let why = "fleet unserved does not watch namespace unserved-tenant (its flags --namespace and --except-namespace)";
    let (fails, found) = doctor(of).await;
    assert!(fails && found.starts_with(why), "{found}");
    let plan = Admin::of(&tenant).osm_about(of, &["plan"]).await;
    assert_eq!(plan.code, Some(1), "{plan:?}");
    has(&plan, why);
    let remove = [
        "tenant",
        "remove",
        "--all",
        "--yes",
        "-n",
        &tenant.namespace,
    ];
    let refused = Admin::of(&tenant).osm(&remove).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    has(&refused, "start a manager that watches the namespace");
    if world.management.real().is_some() {
        let of_fleet = ListParams::default().fields("status.fleet=unserved,spec.paused=false");
        let selected = tenant.worker_clusters().list(&of_fleet).await;
        let selected = ok(selected, "the definition has these fields");
        assert_eq!(selected.items.len(), 1);
    }
    manager.stop().await;
}

pub async fn commands_judge_with_the_settings_of_the_manager(world: &'static World) {
    let stage = Stage::open(world, "published");
    let tenant = stage.tenant().await;
    let defaults = a_file("pauseImage: registry.example/pause:3.10\n");
    let file = ["--tenant-defaults", path(&defaults)];
    let manager = Manager::start(&stage, &file).await;
    tenant.register().await;
    tenant.says("Ready", "True", "Ready").await;
    let admin = Admin::of(&tenant);
    let of = (&stage, &tenant);
    // No flag says with which label, and that its server may be on this machine.
    let plan = admin.osm_about(of, &[&["plan"][..], &file].concat()).await;
    assert_eq!(plan.code, Some(0), "{plan:?}");
    has(&plan, "note: the settings are those of fleet published\n");
    let without = admin.osm_about(of, &["plan"]).await;
    assert_eq!(without.code, Some(1), "{without:?}");
    has(&without, "the manager runs with --tenant-defaults");
    let other = a_file("pauseImage: registry.example/pause:4\n");
    let other = ["plan", "--tenant-defaults", path(&other)];
    let other = admin.osm_about(of, &other).await;
    assert_eq!(
        other.code,
        Some(0),
        "it has no machine deployment: {other:?}"
    );
    has(&other, "fleet published, but for --tenant-defaults\n");
    let doctor = admin.osm_about(of, &["doctor", "--without-manager"]).await;
    has(&doctor, "only --allow-loopback-servers accepts");
    manager.stop().await;
}

/// How long a Lease lasts here: a fleet that is gone is taken over from after twice that.
const BRIEF: [&str; 4] = ["--lease-duration", "4s", "--request-timeout", "2s"];

fn of_fleet(own: &WorkerCluster) -> [Option<&str>; 2] {
    let status = own.status.as_ref();
    [
        status.and_then(|it| it.fleet.as_deref()),
        status.and_then(|it| it.requested_by_fleet.as_deref()),
    ]
}

pub async fn of_two_fleets_the_first_serves_and_the_other_takes_over(world: &'static World) {
    let stage = Stage::open(world, "two-fleets");
    let tenant = stage.tenant().await;
    let first = Manager::start(&stage, &BRIEF).await;
    tenant.register().await;
    tenant.says("Ready", "True", "Ready").await;

    let selector = stage.selector();
    let other = [
        "--fleet",
        "two-fleets-other",
        "--registration-selector",
        &selector,
    ];
    let other = [&other[..], &BRIEF].concat();
    let kubeconfig = &world.management_kubeconfig;
    let second = Manager::start_in(kubeconfig, &other).await;
    let is_answer = |it: &Event| it.reason.as_deref() == Some("AnotherFleet");
    let answers = |seen: &BTreeMap<String, Event>| seen.values().any(is_answer);
    drop(wait::for_objects(&tenant.events(), "the first one answers", answers).await);
    let own = tenant.says("Ready", "True", "Ready").await;
    assert_eq!(of_fleet(&own), [Some("two-fleets"), None]);
    second.stop().await;

    // It is gone without a word, and the other one asks again when it starts.
    drop(first);
    let second = Manager::start_in(kubeconfig, &other).await;
    wait::for_object(&tenant.worker_clusters(), WORKER, "it moves", |own| {
        of_fleet(own) == [Some("two-fleets-other"), None]
    })
    .await;
    tenant.says("Ready", "True", "Ready").await;
    second.stop().await;
}
