//! Three processes share one fleet: whatever becomes of one, each tenant has one writer at a time,
//! and the hand-over lies between two.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use osm::fleet::partition::{Holder, View, grant::Grant};
use osm::tenant::id::TenantId;
use tokio::time::Instant;

use crate::suite::audit::{Request, told};
use crate::suite::fixtures::{a_little_machine_deployment, a_profile};
use crate::suite::process::Binary;
use crate::suite::rotation::install;
use crate::suite::stage::{Stage, Tenant};
use crate::suite::wait;
use crate::suite::world::{MANAGER, World, tell};

/// The terms of the Leases: short, so that the scenario is.
const TERMS: [&str; 4] = ["--lease-duration", "6s", "--request-timeout", "2s"];

fn start(stage: &Stage, name: &'static str) -> Binary {
    let mut flags = vec!["--instance", name];
    flags.extend(TERMS);
    Binary::start(stage, &flags)
}

/// Who of these serves a tenant.
fn owner<'a>(members: &[&'a str], tenant: &Tenant) -> &'a str {
    let view = View(members.iter().map(|it| Holder::parse(it)).collect());
    let id = TenantId::new(&tenant.namespace);
    let mut owners = members.iter().filter(|name| {
        let mut grant = Grant::nothing(name);
        grant.settle(&view);
        grant.covers(&id)
    });
    owners.next().expect("somebody has it")
}

/// Serves one more machine deployment in every tenant, and tells how long it took.
async fn change(tenants: &[Tenant], name: &str) -> std::time::Duration {
    let begun = Instant::now();
    for tenant in tenants {
        drop(tenant.create(&a_little_machine_deployment(name)).await);
    }
    for tenant in tenants {
        drop(tenant.made(name, "1").await);
    }
    begun.elapsed()
}

/// The replica that sent a request.
fn replica(request: &Request) -> String {
    let agent = request.user_agent.split_once('(');
    let agent = agent.and_then(|(_, rest)| rest.strip_suffix(')'));
    agent.expect("a replica tells its name").to_owned()
}

/// The writers to a tenant in the order in which they came, checked: between two of them lies a
/// write of the elder's Lease, or its end.
async fn check(stage: &Stage, tenant: &Tenant, since: Timestamp) -> Vec<String> {
    tenant.worker.settle_audit().await;
    stage.world.management.settle_audit().await;
    let mut writes = tenant.writes(since);
    writes.sort_by_key(|it| it.received);
    let leases: Vec<Request> = stage.world.management.requests(MANAGER, since);
    let leases = leases
        .into_iter()
        .filter(|it| it.resource == "leases" && it.is_write() && it.code < 400);
    let leases: Vec<Request> = leases.collect();
    let mut replicas: Vec<String> = Vec::new();
    for pair in writes.windows(2) {
        let [before, after] = pair else { continue };
        let (elder, younger) = (replica(before), replica(after));
        if replicas.is_empty() {
            replicas.push(elder.clone());
        }
        if elder == younger {
            continue;
        }
        replicas.push(younger);
        let lease = format!("{}-{elder}", stage.name());
        let between = leases.iter().any(|it| {
            let is_its_own = it.name == lease;
            is_its_own && it.received >= before.received && it.answered <= after.received
        });
        assert!(between, "no hand-over of {elder}: {}", told(&writes));
    }
    replicas
}

pub async fn three_processes_hand_tenants_over_when_they_are_killed_stopped_or_restarted(
    world: &'static World,
) {
    let stage = Stage::open(world, "replicas");
    let tenants = stage.tenants(["a", "b", "c"]).await;
    let begun = Timestamp::now();
    for tenant in &tenants {
        tenant.register().await;
        install(tenant, &a_profile("v1.0.0", "text")).await;
    }
    let names = ["one", "two", "three"];
    let mut running: BTreeMap<&str, Binary> = names
        .iter()
        .map(|name| (*name, start(&stage, name)))
        .collect();
    let took = change(&tenants, "first").await;
    tell(&format!("replicas: three begun, all served after {took:?}"));

    // Killed: the owner of the first tenant.
    let killed = owner(&names, &tenants[0]);
    let victim = running.remove(killed).expect("it runs");
    victim.signal("KILL").await;
    drop(victim.ended().await);
    let took = change(&tenants, "second").await;
    tell(&format!(
        "replicas: killed, all served after {took:?}, Lease 6s"
    ));

    // Stopped: the owner of the last. It wakes long after others have taken over.
    let members: Vec<&str> = running.keys().copied().collect();
    let stopped = owner(&members, &tenants[2]);
    let sleeper = running.remove(stopped).expect("it runs");
    sleeper.signal("STOP").await;
    let took = change(&tenants, "third").await;
    tell(&format!("replicas: stopped, all served after {took:?}"));
    let woken = Timestamp::now();
    sleeper.signal("CONT").await;
    let (status, log) = sleeper.ended().await;
    assert!(!status.success(), "its Lease is lost");
    assert!(log.contains("is lost"), "{log}");
    let management = stage.world.management.requests(MANAGER, woken);
    let workers = tenants
        .iter()
        .flat_map(|tenant| tenant.requests(woken).into_iter());
    let late: Vec<Request> = management
        .into_iter()
        .filter(|it| it.user_agent.ends_with(&format!("({stopped})")))
        .chain(workers.filter(|it| replica(it) == stopped))
        .filter(|it| it.is_write() && it.resource != "leases")
        .collect();
    assert!(late.is_empty(), "{}", told(&late));

    // Restarted one after the other: the last of the three is replaced.
    let fourth = start(&stage, "four");
    joined(&stage, "four").await;
    let (_, old) = running.pop_first().expect("one is left");
    old.signal("TERM").await;
    let took = change(&tenants, "fourth").await;
    tell(&format!("replicas: restarted, all served after {took:?}"));
    let (status, log) = old.ended().await;
    assert!(status.success(), "{log}");
    for tenant in &tenants {
        let writers = check(&stage, tenant, begun).await;
        tell(&format!(
            "replicas: {} written by {writers:?}",
            tenant.namespace
        ));
        assert_eq!(writers.last().map(String::as_str), Some("four"));
    }
    fourth.signal("TERM").await;
    let (status, log) = fourth.ended().await;
    assert!(status.success(), "{log}");
}

/// Waits until a replica has its Lease.
async fn joined(stage: &Stage, name: &str) {
    let admin = stage.world.management.admin().await;
    let leases: Api<Lease> = Api::namespaced(admin, MANAGER.namespace);
    let lease = format!("{}-{name}", stage.name());
    drop(wait::for_object(&leases, &lease, "it has joined", |_| true).await);
}
