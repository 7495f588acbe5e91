//! Three processes share one fleet: whatever becomes of one, each tenant has one writer at a time,
//! and the hand-over lies between two.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;
use osm::api::machine_deployment::MachineDeployment;
use osm::api::names::{DerivedNames, KUBE_SYSTEM, MADE_FOR_PROFILE_VERSION, PROFILE};
use osm::api::profile::OperatingSystemProfile;
use osm::fleet::sharding::{Holder, View, shard::Shard};
use osm::tenant::id::TenantId;
use serde_json::json;
use tokio::time::Instant;

use crate::administrator::merge;
use crate::audit::{Request, told};
use crate::fixtures::{a_little_machine_deployment, a_profile, has_annotation, with_annotation};
use crate::handover::{Recorder, renewals, replica, writers};
use crate::process::Binary;
use crate::rotation::install;
use crate::server::ok;
use crate::stage::{Stage, Tenant};
use crate::wait;
use crate::world::{MANAGER, World, tell};

/// How long a Lease of `TERMS` holds.
const LEASE: Duration = Duration::from_secs(6);
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
        let mut grant = Shard::nothing(name);
        grant.settle(&view);
        grant.covers(&id)
    });
    owners.next().expect("somebody has it")
}

/// Serves one more machine deployment in every tenant, and tells how long it took.
async fn change(tenants: &[Tenant], name: &str) -> Duration {
    let begun = Instant::now();
    for tenant in tenants {
        drop(tenant.create(&a_little_machine_deployment(name)).await);
    }
    for tenant in tenants {
        drop(tenant.made(name, "1").await);
    }
    begun.elapsed()
}

/// Who has written for a tenant, one after the other, with the hand-over between any two.
async fn check(
    stage: &Stage,
    (tenant, since): (&Tenant, Timestamp),
    recorder: &Recorder,
) -> Vec<String> {
    tenant.worker.settle_audit().await;
    stage.world.management.settle_audit().await;
    let mut writes = tenant.writes(since);
    writes.sort_by_key(|it| it.received);
    let id = TenantId::new(&tenant.namespace);
    let log = recorder.log();
    let found = writers((stage.name(), &id), &writes, &log, LEASE);
    let found = ok(found, "every move is a hand-over");
    if found.len() > 1 {
        let mere = writers((stage.name(), &id), &writes, &renewals(&log), LEASE);
        assert!(mere.is_err(), "a sign of life is no hand-over");
    }
    tell(&format!(
        "{}: {} written by {found:?}",
        stage.name(),
        tenant.namespace
    ));
    found
}

/// Follows the Leases of the stage.
async fn record(stage: &Stage) -> Recorder {
    let admin = stage.world.management.admin().await;
    Recorder::start(admin, MANAGER.namespace, stage.name())
}

pub async fn three_processes_hand_tenants_over_when_they_are_killed_stopped_or_restarted(
    world: &'static World,
) {
    let stage = Stage::open(world, "replicas");
    let tenants = stage.tenants(["a", "b", "c"]).await;
    let begun = Timestamp::now();
    let recorder = record(&stage).await;
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
    // One that comes in the meantime knows of it by its Lease alone.
    running.insert("late", start(&stage, "late"));
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

    // All others are replaced.
    let fourth = start(&stage, "four");
    joined(&stage, "four").await;
    for (_, old) in running {
        old.stop().await;
    }
    let took = change(&tenants, "fourth").await;
    tell(&format!("replicas: restarted, all served after {took:?}"));
    for tenant in &tenants {
        let writers = check(&stage, (tenant, begun), &recorder).await;
        assert_eq!(writers.last().map(String::as_str), Some("four"));
    }
    fourth.stop().await;
}

/// The profile that is edited while replicas are replaced.
const EDITED: &str = "edited";

/// A machine deployment with the profile that is edited.
fn an_edited_machine_deployment() -> MachineDeployment {
    with_annotation(a_little_machine_deployment(EDITED), (PROFILE, EDITED))
}

fn an_edited_profile(version: &str) -> OperatingSystemProfile {
    let mut profile = a_profile(version, version);
    profile.metadata.name = Some(EDITED.to_owned());
    profile
}

/// The replicas that come for those that began.
const SECOND_REPLICAS: [&str; 3] = ["four", "five", "six"];

/// One more machine deployment in each tenant, and one more version of the profile.
async fn make_and_edit(tenants: &[Tenant], name: &str, version: &str) {
    for tenant in tenants {
        drop(tenant.create(&a_little_machine_deployment(name)).await);
        let spec = serde_json::to_value(an_edited_profile(version).spec);
        let spec = json!({ "spec": spec.expect("plain values") });
        merge(&tenant.profiles(), EDITED, spec).await;
    }
}

pub async fn a_rolling_restart_of_three_loses_no_change_and_rotates_nothing(world: &'static World) {
    let stage = Stage::open(world, "rolling");
    let tenants = stage.tenants(["a", "b", "c"]).await;
    let begun = Timestamp::now();
    let recorder = record(&stage).await;
    for tenant in &tenants {
        tenant.register().await;
        install(tenant, &a_profile("v1.0.0", "text")).await;
        install(tenant, &an_edited_profile("v1.0.0")).await;
    }
    let mut old = Vec::new();
    for name in ["one", "two", "three"] {
        old.push(start(&stage, name));
        joined(&stage, name).await;
    }
    for tenant in &tenants {
        drop(tenant.create(&an_edited_machine_deployment()).await);
    }
    change(&tenants, "first").await;
    let mut made = vec!["first".to_owned()];
    let mut before = Vec::new();
    for tenant in &tenants {
        before.push(tenant.made("first", "1").await.uids());
    }

    // Changes go on while each of the three is replaced.
    let mut replaced = Vec::new();
    let mut version = String::new();
    for (turn, (process, name)) in old.into_iter().zip(SECOND_REPLICAS).enumerate() {
        replaced.push(start(&stage, name));
        let ended = async {
            joined(&stage, name).await;
            process.stop().await
        };
        let changes = async {
            for part in 0..6 {
                let name = format!("more-{turn}-{part}");
                version = format!("v1.{}.{part}", turn + 1);
                make_and_edit(&tenants, &name, &version).await;
                made.push(name);
            }
        };
        tokio::join!(ended, changes);
    }
    for (tenant, before) in tenants.iter().zip(before) {
        for name in &made {
            drop(tenant.made(name, "1").await);
        }
        let last = tenant.made_when(EDITED, |secret| {
            has_annotation(secret, (MADE_FOR_PROFILE_VERSION, &version))
        });
        assert!(last.await.provisioning_text().contains(&version));
        assert_eq!(
            tenant.made("first", "1").await.uids(),
            before,
            "nothing was rotated"
        );
        let writers = check(&stage, (tenant, begun), &recorder).await;
        assert!(SECOND_REPLICAS.contains(&writers.last().map_or("", String::as_str)));
        made_once(tenant, (&made, begun));
    }
    for process in replaced {
        process.stop().await;
    }
}

/// Every Secret of these was made once, and none was deleted.
fn made_once(tenant: &Tenant, (made, since): (&[String], Timestamp)) {
    let writes = tenant.writes(since);
    for name in made {
        let names = DerivedNames::new(KUBE_SYSTEM, name);
        for secret in [
            names.bootstrap,
            names.provisioning,
            names.kubelet_kubeconfig,
        ] {
            let of = |verb: &str| {
                let found = writes.iter().filter(|it| it.is(verb, "secrets", &secret));
                found.filter(|it| it.code < 400).count()
            };
            let made = of("create") + of("patch") + of("update");
            assert_eq!((made, of("delete")), (1, 0), "{secret}: {}", told(&writes));
        }
    }
}

/// Waits until a replica has its Lease.
async fn joined(stage: &Stage, name: &str) {
    let admin = stage.world.management.admin().await;
    let leases: Api<Lease> = Api::namespaced(admin, MANAGER.namespace);
    let lease = format!("{}-{name}", stage.name());
    drop(wait::for_object(&leases, &lease, "it has joined", |_| true).await);
}
