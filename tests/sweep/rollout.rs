//! Newer default profiles go through the fleet in waves, and stop where they fail.

use std::{collections::BTreeSet, time::Duration};

use fake_cluster::{Target, object};
use osm::{api::profile::OperatingSystemProfile, controllers::profile_store::content_digest};
use serde_json::{Value, json};

use crate::{
    fixtures,
    scenarios::{BOOTSTRAP, annotate, change, change_machine_deployment, set},
    snapshot::boot_secret,
    world::{Process, World, put, settings},
};

/// Twelve tenants: the second wave, a tenth of them, comes to two.
const TENANTS: [&str; 12] = [
    "t-01", "t-02", "t-03", "t-04", "t-05", "t-06", "t-07", "t-08", "t-09", "t-10", "t-11", "t-12",
];
const UBUNTU: &str = "osp-ubuntu";
const OLD: &str = "v0.9.0";
const INSTALLED_CONTENT: &str = "operatingsystemmanager.k8c.io/installed-content";

/// An older default profile, which serves clouds that today's does not.
fn an_old_default(tenant: &str) -> Value {
    let mut profile = fixtures::a_profile(tenant, OLD, "old\n");
    set(&mut profile, "/metadata/name", json!(UBUNTU));
    let clouds = json!([{"name": "openstack"}, {"name": "scaleway"}]);
    set(&mut profile, "/spec/supportedCloudProviders", clouds);
    let content = content(&profile);
    let annotations = json!({INSTALLED_CONTENT: content});
    set(&mut profile, "/metadata/annotations", annotations);
    profile
}

fn content(profile: &Value) -> String {
    let profile: OperatingSystemProfile =
        serde_json::from_value(profile.clone()).expect("it is a profile");
    content_digest(&profile.spec)
}

/// A tenant with an older default profile, and a machine deployment that uses it.
fn a_tenant(world: &World, tenant: &str, cloud: &str) {
    let spec = json!({"defaultProfileNames": [UBUNTU]});
    world.configure(tenant, &spec);
    world.register(tenant);
    put(&world.management, an_old_default(tenant));
    let mut machine_deployment = fixtures::a_machine_deployment("workers");
    annotate(&mut machine_deployment, fixtures::PROFILE, UBUNTU);
    let provider = "/spec/template/spec/providerSpec/value/cloudProvider";
    set(&mut machine_deployment, provider, json!(cloud));
    put(world.worker(tenant), machine_deployment);
}

pub fn at(found: &Value, pointer: &str) -> Value {
    found.pointer(pointer).cloned().unwrap_or_default()
}

fn installed(world: &World, tenant: &str) -> Value {
    let profile = object("operatingsystemprofiles", tenant, UBUNTU);
    world.management.get(profile).expect("it is installed")
}

fn is_upgraded(world: &World, tenant: &str) -> bool {
    at(&installed(world, tenant), "/spec/version") != OLD
}

fn upgraded<'a>(world: &World, tenants: &[&'a str]) -> Vec<&'a str> {
    let upgraded = tenants.iter().filter(|it| is_upgraded(world, it));
    upgraded.copied().collect()
}

/// The version that a machine deployment's bootstrap Secret was made from.
fn rendered(world: &World, tenant: &str) -> Value {
    let found = boot_secret(world.worker(tenant), BOOTSTRAP).unwrap_or_default();
    at(&found, "/metadata/annotations/k8c.io~1osp-version")
}

fn status(world: &World, tenant: &str) -> Value {
    at(&world.own(tenant), "/status")
}

fn condition(world: &World, tenant: &str) -> Value {
    world.condition(tenant, "ProfilesInstalled")
}

fn events(world: &World, reason: &str) -> usize {
    let all = world.management.objects("events");
    all.iter().filter(|it| at(it, "/reason") == reason).count()
}

fn notes(world: &World, reason: &str) -> String {
    let all = world.management.objects("events");
    let of_reason = all.iter().filter(|it| at(it, "/reason") == reason);
    of_reason.map(|it| at(it, "/message").to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn newer_defaults_go_through_the_fleet_in_waves() {
    let world = World::new(&TENANTS);
    for tenant in TENANTS {
        a_tenant(&world, tenant, "openstack");
    }
    let process = world.start();
    let mut counts = vec![0];
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let upgraded = upgraded(&world, &TENANTS);
        if counts.last() == Some(&upgraded.len()) {
            continue;
        }
        // A wave begins when all of the one before are rendered.
        let waits = counts.last().copied().unwrap_or_default();
        if waits <= 2 {
            let before = TENANTS.iter().take(waits);
            let behind: Vec<_> = before
                .filter(|it| [json!(OLD), Value::Null].contains(&rendered(&world, it)))
                .collect();
            assert_eq!(behind, Vec::<&&str>::new(), "{counts:?}");
        }
        counts.push(upgraded.len());
    }
    assert_eq!(&counts[..3], [0, 1, 2], "then the rest: {counts:?}");
    assert_eq!(counts.last(), Some(&TENANTS.len()));
    world.settle().await;
    for tenant in TENANTS {
        assert_ne!(rendered(&world, tenant), OLD, "{tenant}");
        assert_eq!(status(&world, tenant)["outdated"], 0);
        assert_eq!(condition(&world, tenant)["reason"], "Installed");
    }
    process.stop().await;
    let mut written: Vec<Target> = world
        .management
        .writes()
        .into_iter()
        .map(|it| it.target)
        .collect();
    written.retain(|it| it.resource == "operatingsystemprofiles");
    let distinct: BTreeSet<_> = written.iter().map(|it| (&it.namespace, &it.name)).collect();
    assert_eq!(distinct.len(), written.len(), "each is written once");
    assert!(distinct.len() >= TENANTS.len());
}

/// Three replicas, which have agreed on who serves whom.
async fn three_replicas(world: &mut World) -> [Process; 3] {
    world.settings.replica.lease_duration = Duration::from_secs(15);
    let begun = ["a", "b", "c"].map(|name| {
        name.clone_into(&mut world.settings.replica.instance);
        world.start()
    });
    tokio::time::sleep(Duration::from_secs(20)).await;
    begun
}

async fn stop(processes: [Process; 3]) {
    for process in processes {
        process.stop().await;
    }
}

/// No matter which replica serves a tenant: the first wave has one tenant and the second two of the
/// whole fleet.
#[tokio::test(start_paused = true)]
async fn three_replicas_give_the_turns_of_one_fleet() {
    let mut world = World::new(&TENANTS);
    let replicas = three_replicas(&mut world).await;
    for tenant in TENANTS {
        a_tenant(&world, tenant, "openstack");
    }
    let mut counts = vec![0];
    for _ in 0..1_200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let count = upgraded(&world, &TENANTS).len();
        if counts.last() != Some(&count) {
            counts.push(count);
        }
    }
    println!("three replicas: {counts:?}");
    assert_eq!(&counts[..3], [0, 1, 2], "then the rest: {counts:?}");
    assert_eq!(counts.last(), Some(&TENANTS.len()));
    stop(replicas).await;
}

/// Half of what fails is another replica's.
#[tokio::test(start_paused = true)]
async fn failures_at_one_replica_pause_the_rollout_at_all() {
    let mut world = World::new(&TENANTS);
    world.settings = settings(&["--rollout-waves=1,50%,100%"]);
    let replicas = three_replicas(&mut world).await;
    for tenant in TENANTS {
        a_tenant(&world, tenant, "scaleway");
    }
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(upgraded(&world, &TENANTS), ["t-01"], "by any replica");
    for tenant in &TENANTS[1..] {
        assert_eq!(condition(&world, tenant)["reason"], "RolloutPaused");
    }
    stop(replicas).await;
}

#[tokio::test(start_paused = true)]
async fn too_many_failures_stop_the_rollout_until_they_are_gone() {
    let world = World::new(&["t-01", "t-02", "t-03", "t-04"]);
    let old = ["t-01", "t-02", "t-03"];
    for tenant in old {
        a_tenant(&world, tenant, "scaleway");
    }
    let process = world.start_settled().await;
    assert_eq!(upgraded(&world, &old), ["t-01"]);
    let waiting = status(&world, "t-02");
    assert_eq!(condition(&world, "t-02")["reason"], "RolloutPaused");
    assert_eq!(waiting["outdated"], 1, "{waiting}");
    let profile = &waiting["machineDeployments"][0]["profile"];
    assert_eq!(profile["default"], format!("{UBUNTU} {OLD}"));
    assert_ne!(profile["next"], Value::Null);
    process.kill().await;

    // Another process goes by what stands there, and new tenants wait for nobody.
    let process = world.start();
    world.configure("t-04", &json!({}));
    world.register("t-04");
    world.settle().await;
    assert_eq!(upgraded(&world, &old), ["t-01"]);
    assert_eq!(condition(&world, "t-04")["reason"], "Installed");

    let provider = "/spec/template/spec/providerSpec/value/cloudProvider";
    for tenant in old {
        change_machine_deployment(world.worker(tenant), "workers", |found| {
            set(found, provider, json!("openstack"));
        });
    }
    world.settle().await;
    assert_eq!(upgraded(&world, &old), old);
    assert_eq!(condition(&world, "t-02")["reason"], "Installed");
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_tenant_may_go_ahead_or_wait_until_it_is_allowed() {
    let mut world = World::new(&["t-01", "t-02", "t-03"]);
    // Nobody but who goes ahead has a turn: one of three is the only wave that ends.
    world.settings = settings(&["--rollout-waves=1"]);
    for (tenant, pace) in [("t-01", "Manual"), ("t-02", "Immediate"), ("t-03", "Waves")] {
        a_tenant(&world, tenant, "scaleway");
        let spec = json!({
            "defaultProfileNames": [UBUNTU],
            "rollout": {"defaultProfiles": pace},
        });
        world.configure(tenant, &spec);
    }
    let process = world.start_settled().await;
    let tenants = ["t-01", "t-02", "t-03"];
    assert_eq!(upgraded(&world, &tenants)[0], "t-02");
    assert_eq!(condition(&world, "t-01")["reason"], "AwaitingApproval");
    world.change_own("t-01", |own| {
        set(own, "/spec/rollout/defaultProfiles", json!("Immediate"));
    });
    world.settle().await;
    assert!(is_upgraded(&world, "t-01"));
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_newer_release_is_not_taken_back_and_an_edit_is_kept_and_reported_once() {
    let world = World::new(&["newer", "edited", "raised"]);
    let mut process = world.start();
    for tenant in ["newer", "edited", "raised"] {
        let spec = json!({"defaultProfileNames": [UBUNTU]});
        world.configure(tenant, &spec);
        world.register(tenant);
    }
    world.settle().await;
    let ours = installed(&world, "newer");
    let all = world.management.objects("operatingsystemprofiles");
    let is_ubuntu = |it: &Value| at(it, "/metadata/name").to_string().contains(UBUNTU);
    let message = "no other default profile was asked for";
    assert!(all.iter().all(is_ubuntu), "{message}");
    for (tenant, version) in [("newer", "v99.0.0"), ("raised", "v99.0.0")] {
        let profile = ("operatingsystemprofiles", tenant, UBUNTU);
        change(&world.management, profile, |found| {
            set(found, "/spec/version", json!(version));
            if tenant == "newer" {
                let annotations = json!({INSTALLED_CONTENT: content(found)});
                set(found, "/metadata/annotations", annotations);
            }
        });
    }
    let edited = ("operatingsystemprofiles", "edited", UBUNTU);
    change(&world.management, edited, |found| {
        set(found, "/spec/osVersion", json!("24.04-edited"));
    });
    world.settle().await;
    for _ in 0..2 {
        assert_eq!(installed(&world, "newer")["spec"]["version"], "v99.0.0");
        let edited = installed(&world, "edited");
        assert_eq!(edited["spec"]["osVersion"], "24.04-edited");
        assert_eq!(installed(&world, "raised")["spec"], ours["spec"], "as ever");
        assert_eq!(events(&world, "DefaultProfileEdited"), 1);
        assert_eq!(events(&world, "DefaultProfileReplaced"), 1);
        let how = format!("with spec.extends: {UBUNTU}, and name it");
        for reason in ["DefaultProfileEdited", "DefaultProfileReplaced"] {
            let notes = notes(&world, reason);
            assert!(notes.contains(&how), "{reason}: {notes}");
        }
        let told = condition(&world, "edited");
        let kept = format!("edited, and kept as found: {UBUNTU}");
        assert_eq!(told["message"], kept);
        let told = condition(&world, "newer");
        let message = told["message"].as_str().unwrap_or_default();
        assert!(message.contains("of a newer release"), "{told}");
        process.stop().await;
        process = world.start_settled().await;
    }
    process.stop().await;
}
