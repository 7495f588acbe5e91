//! Three replicas serve ordinary tenants beside tenants that attack, each in its own way, in waves
//! of the length of the window. No replica may die or take much memory, the ordinary tenants
//! must be served, the attacker's conditions must name the cause, and an attacker that behaves
//! again must be served.

mod answers;
mod attacks;
mod noise;
mod process_tree;

use std::{cell::Cell, collections::BTreeSet, convert::Infallible, time::Duration};

use anyhow::Context as _;
use futures::future::{join_all, try_join};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use self::attacks::{ATTACKS, Attack};
use super::making::{durations, make, make_while};
use crate::load::{
    fleet::{Fleet, Worker},
    latency::Latencies,
    measure,
    outcome::{Figure, Outcome, count, float},
    stage::Stage,
};

const REPLICAS: [&str; 3] = ["osm-0", "osm-1", "osm-2"];
/// The annotation with the digest of the replica set that a replica follows.
const VIEW: &str = "/metadata/annotations/operatingsystemmanager.k8c.io~1members";
/// What the attackers' namespaces begin with: those of KKP's user clusters do, too.
const ATTACKER: &str = "cluster-attacker-";
/// What the manager may do in a seed of KKP.
const KKP_RIGHTS: &str = include_str!("../../../../manifests/rbac/kkp-seed/management.yaml");
/// What a replica and its render workers may take together, in MiB.
const TREE_MIB_MAX: f64 = 256.0;
/// How often the memory of the processes is read.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// How often the replicas' `/livez` is asked for, and how long it may take: the probe's timeout.
const PROBE_INTERVAL: Duration = Duration::from_millis(200);
const PROBE_SECONDS_MAX: f64 = 1.0;
/// How long the attacker's status may take to name the cause when the window is over: an endless
/// list of 1,000 pages is read at the pace of the tenant's requests.
const CAUSE_TIMEOUT: Duration = Duration::from_mins(3);
/// How many times as long an ordinary machine deployment may take beside an attack.
const LONGER_MAX: f64 = 1.5;

/// Half of the machine deployments that a tenant may have.
const MACHINE_DEPLOYMENTS_MAX: usize = 250;

/// Replicas under siege.
pub async fn siege(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    let applied = stage.fleet.management.cluster.apply_yaml(KKP_RIGHTS);
    applied.context("applying the rights in a seed of KKP")?;
    let ordinary: Vec<usize> = (0..stage.params.tenants).collect();
    let only = stage.params.attack.clone();
    let is_wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    let waves = ATTACKS.iter().map(|it| it.wave).max().unwrap_or_default() + 1;
    let mut besieged_waves = Vec::new();
    let mut alone = Latencies::default();
    let mut attackers = Vec::new();
    for wave in 0..waves {
        let wanted = ATTACKS
            .iter()
            .filter(|it| it.wave == wave && is_wanted(it.name));
        let attacks: Vec<&Attack> = wanted.collect();
        let begun = begin(stage, &attacks).await?;
        if wave == 0 {
            start_all(stage).await?;
            stage.register_all().await?;
            stage.until_all_served(1).await?;
        }
        if !attacks.is_empty() {
            make_room(stage).await?;
            let (beside, worst) = besieged(stage, &ordinary, &attacks).await?;
            let name = match attacks.as_slice() {
                [only] => only.name.to_owned(),
                _ => format!("wave {}", wave + 1),
            };
            outcome.figures.extend(worst.figures(&name));
            besieged_waves.push((name, beside));
        }
        for (attack, attacker) in attacks.iter().zip(&begun) {
            end(stage, attack, attacker).await?;
        }
        attackers.extend(begun);
        if wave == 0 {
            stage.settle().await?;
            alone = make(stage, &ordinary).await?;
        }
    }
    let cleared = Instant::now();
    for attacker in &attackers {
        let what = format!("{} is served again", attacker.tenant);
        let is_served = |fleet: &Fleet| ready(fleet, &attacker.tenant) == Some(true);
        let recovered = stage.until(&what, is_served).await;
        recovered.with_context(|| conditions(&stage.fleet, &attacker.tenant))?;
    }
    let recovered = cleared.elapsed().as_secs_f64();
    for (name, beside) in besieged_waves {
        let times = beside.p99 / alone.p99.max(1.0);
        let times = Figure::new(&format!("{name}: p99, times as long"), times, "x");
        outcome.figures.push(times.wanted(LONGER_MAX, LONGER_MAX));
        outcome.add_latencies(&name, beside);
    }
    anyhow::ensure!(!attackers.is_empty(), "there is no such attack");
    outcome.figures.extend([
        Figure::new("attacks", count(attackers.len()), ""),
        Figure::new("until all attackers are served again", recovered, "s"),
    ]);
    outcome.add_latencies("0 alone", alone);
    Ok(())
}

/// Starts all replicas. Each has its Lease before the next one starts: one that sees neither a
/// Lease nor the mark of the last replica that left waits for as long as a Lease lasts.
async fn start_all(stage: &mut Stage) -> anyhow::Result<()> {
    for (earlier, instance) in REPLICAS.into_iter().enumerate() {
        let arguments = ["--instance", instance, "--inventory=label,cluster-api,kkp"];
        stage.start_with(instance, &arguments).await?;
        let has_joined = |fleet: &Fleet| views(fleet).len() > earlier;
        stage.until("it has joined", has_joined).await?;
    }
    stage.until("all replicas know each other", agree).await?;
    Ok(())
}

/// Whether every replica has published the same members, and as many as there are.
fn agree(fleet: &Fleet) -> bool {
    let views = views(fleet);
    let distinct: BTreeSet<_> = views.iter().collect();
    views.len() == REPLICAS.len() && distinct.len() == 1
}

/// What each replica that has a Lease has published.
fn views(fleet: &Fleet) -> Vec<Option<String>> {
    let leases = fleet
        .management
        .cluster
        .objects("leases.coordination.k8s.io");
    let text = |lease: &Value, field| lease.pointer(field)?.as_str().map(str::to_owned);
    let is_held = |lease: &&Value| {
        text(lease, "/spec/holderIdentity").is_some_and(|holder| !holder.is_empty())
    };
    let held = leases.iter().filter(is_held);
    held.map(|lease| text(lease, VIEW)).collect()
}

/// Begins attacks, and registers a tenant for each.
async fn begin(stage: &mut Stage, attacks: &[&Attack]) -> anyhow::Result<Vec<Worker>> {
    let mut attackers = Vec::new();
    for attack in attacks {
        let attacker = Worker::of(format!("{ATTACKER}{}", attack.name), 1).await?;
        stage.fleet.give_namespace(&attacker)?;
        attack.begin(stage, &attacker)?;
        stage.fleet.register(&attacker).await?;
        attackers.push(attacker);
    }
    Ok(attackers)
}

/// Removes machine deployments of ordinary tenants before they exceed their quota.
async fn make_room(stage: &mut Stage) -> anyhow::Result<()> {
    let most = stage
        .fleet
        .workers
        .iter()
        .map(|it| it.machine_deployments.len())
        .max();
    if most.unwrap_or_default() < MACHINE_DEPLOYMENTS_MAX {
        return Ok(());
    }
    for worker in &mut stage.fleet.workers {
        for name in worker.machine_deployments.split_off(1) {
            worker.remove_machine_deployment(&name).await?;
        }
    }
    stage.settle().await
}

/// The worst that was seen of any replica during an attack.
#[derive(Clone, Copy, Default)]
struct Worst {
    /// The memory of a replica and its children, in MiB.
    tree_mib: f64,
    /// How long `/livez` took.
    probe_seconds: f64,
}

impl Worst {
    fn figures(self, attack: &str) -> [Figure; 2] {
        let memory = Figure::new(&format!("{attack}: memory"), self.tree_mib, "MiB");
        let livez = Figure::new(&format!("{attack}: /livez"), self.probe_seconds, "s");
        [
            memory.wanted(TREE_MIB_MAX, TREE_MIB_MAX),
            livez.wanted(PROBE_SECONDS_MAX, PROBE_SECONDS_MAX),
        ]
    }
}

/// Serves new machine deployments of ordinary tenants during attacks. Returns how long they took,
/// and the worst of all replicas. Fails if a replica ends or does not answer `/livez`.
async fn besieged(
    stage: &mut Stage,
    ordinary: &[usize],
    attacks: &[&Attack],
) -> anyhow::Result<(Latencies, Worst)> {
    let (begun, window) = (Instant::now(), stage.params.window);
    let (processes, admins) = (stage.process_ids(), stage.admin_addresses());
    let worst = Cell::<Worst>::default();
    let watching = watch(&processes, &admins, &worst);
    let noise = join_all(attacks.iter().map(|it| (it.noise)(admins.clone())));
    let making = make_while(stage, ordinary, |_| begun.elapsed() < window);
    let made = tokio::select! {
        ended = watching => return Err(ended),
        _ = noise => anyhow::bail!("the attack ended by itself"),
        made = making => made?,
    };
    Ok((durations(&made)?, worst.get()))
}

/// Records the worst that is seen of processes, until one ends or does not answer `/livez`.
async fn watch(processes: &[u32], admins: &[String], worst: &Cell<Worst>) -> anyhow::Error {
    let weighing = async {
        loop {
            for id in processes {
                let mib = float(process_tree::resident_kib(*id)?) / 1024.0;
                let seen = worst.get();
                worst.set(Worst {
                    tree_mib: seen.tree_mib.max(mib),
                    ..seen
                });
            }
            sleep(SAMPLE_INTERVAL).await;
        }
    };
    let probing = async {
        loop {
            for admin in admins {
                let took = measure::probe(admin).await?;
                let seen = worst.get();
                worst.set(Worst {
                    probe_seconds: seen.probe_seconds.max(took.as_secs_f64()),
                    ..seen
                });
            }
            sleep(PROBE_INTERVAL).await;
        }
    };
    let ended: anyhow::Result<(Infallible, Infallible)> = try_join(weighing, probing).await;
    let Err(error) = ended;
    error
}

/// Waits until the attacker's status names the cause, and ends the attack.
async fn end(stage: &mut Stage, attack: &Attack, attacker: &Worker) -> anyhow::Result<()> {
    if !attack.cause.is_empty() {
        let what = format!("{} reads \"{}\"", attacker.tenant, attack.cause);
        let says = |fleet: &Fleet| conditions(fleet, &attacker.tenant).contains(attack.cause);
        let named = timeout(CAUSE_TIMEOUT, stage.until(&what, says)).await;
        let named = named.with_context(|| conditions(&stage.fleet, &attacker.tenant));
        named.with_context(|| what)??;
    }
    attack.end(stage, attacker)
}

/// Returns the conditions of a tenant's WorkerClusters as JSON. Empty while there are none.
fn conditions(fleet: &Fleet, tenant: &str) -> String {
    let conditions =
        statuses(fleet, tenant).filter_map(|it| Some(it.get("conditions")?.to_string()));
    conditions.collect()
}

/// Whether a WorkerCluster of a tenant is ready. Returns `None` while nothing is known.
fn ready(fleet: &Fleet, tenant: &str) -> Option<bool> {
    let is_ready = |status: Value| {
        let mut conditions = status.get("conditions")?.as_array()?.iter();
        let ready = conditions.find(|it| it.get("type").is_some_and(|kind| kind == "Ready"))?;
        Some(ready.get("status")? == "True")
    };
    statuses(fleet, tenant).filter_map(is_ready).max()
}

fn statuses(fleet: &Fleet, tenant: &str) -> impl Iterator<Item = Value> {
    let all = fleet
        .management
        .cluster
        .objects("workerclusters.operatingsystemmanager.k8c.io");
    let of_tenant = all.into_iter().filter(move |it| {
        it.pointer("/metadata/namespace").and_then(Value::as_str) == Some(tenant)
    });
    of_tenant.filter_map(|it| it.get("status").cloned())
}
