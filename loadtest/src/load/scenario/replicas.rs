//! Three replicas share a fleet, and one is killed without a warning while machine deployments
//! appear everywhere: how long its tenants wait, and that nobody wrote where another did.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use fake_cluster::AuditEntry;
use serde_json::Value;
use tokio::time::Instant;

use super::making::{Made, compare, halves, latencies, make, make_while};
use crate::load::{
    fleet::Fleet,
    latency::Latencies,
    outcome::{Figure, Outcome, count, float},
    requests::{Requests, replica},
    served::engages,
    stage::Stage,
};

const REPLICAS: [&str; 3] = ["osm-0", "osm-1", "osm-2"];
/// How long a killed replica's tenants may wait: the Lease that it leaves, and five seconds.
const TAKEN_MAX_SECONDS: f64 = 20.0;
/// The annotation with the digest of the replica set that a replica follows.
const VIEW: &str = "/metadata/annotations/operatingsystemmanager.k8c.io~1members";

/// Three replicas, of which one is killed.
pub async fn replicas(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    start_all(stage, &[]).await?;
    stage.register_all().await?;
    stage.until_all_served(1).await?;
    stage.settle().await?;
    let (making, quiet) = halves(stage.params.tenants);
    let alone = make(stage, &making).await?;
    stage.settle().await?;
    // On a busy machine a replica may have lost its Lease, and its tenants, until now.
    let owners = owners(&stage.fleet)?;
    let killed = busiest(&owners).context("there are tenants")?;
    let is_moving = |index: &usize| owners.get(*index) == Some(&killed);
    let shared = owners.iter().filter(|owner| **owner == killed).count();
    Requests::take(&stage.fleet);
    let before = stage.sample().await?;
    let at = stage.kill(&killed).await?;
    let window = stage.params.window;
    let made = make_while(stage, &making, |fleet| {
        at.elapsed() < window || taken(fleet, (&owners, &killed), at).is_none()
    });
    let made = made.await?;
    stage.settle().await?;
    let after = stage.sample().await?;
    let taken = taken(&stage.fleet, (&owners, &killed), at).context("all were taken over")?;
    outcome.figures.extend([
        Figure::new("most tenants of one", count(shared), ""),
        Figure::new("killed to taken over, max", taken.max / 1000.0, "s")
            .wanted(TAKEN_MAX_SECONDS, TAKEN_MAX_SECONDS),
    ]);
    let writers = Writers::of(&stage.fleet, (&owners, &killed));
    outcome.figures.extend(writers.figures());
    let (moved, stayed): (Vec<Made>, Vec<Made>) =
        made.into_iter().partition(|made| is_moving(&made.tenant));
    compare(
        outcome,
        alone,
        latencies(&stayed)?,
        "of those whose replica lives",
    );
    let waited = latencies(&moved)?;
    let name = "made to both Secrets, whose replica was killed";
    outcome.figures.push(Figure::new(
        &format!("{name}, max"),
        waited.max / 1000.0,
        "s",
    ));
    outcome.add_latencies(name, waited);
    outcome.add_latencies("killed to taken over", taken);
    let moving: Vec<usize> = quiet.into_iter().filter(is_moving).collect();
    let requests = of_workers(&stage.fleet, &moving);
    let each = |total: u64| float(total) / count(moving.len().max(1));
    outcome.figures.extend([
        Figure::new("requests to each that moves", each(requests.total()), ""),
        Figure::new("writes to each that moves", each(requests.writes), ""),
    ]);
    outcome.add_requests("those that move", requests);
    outcome.add_requests("all", Requests::take(&stage.fleet));
    outcome.add_sample("0 three", before);
    outcome.add_sample("1 two", after);
    Ok(())
}

/// Starts all replicas. Each has its Lease before the next one starts: one that sees neither a
/// Lease nor the mark of the last replica that left waits for as long as a Lease lasts.
pub(super) async fn start_all(stage: &mut Stage, more: &[&str]) -> anyhow::Result<()> {
    for (earlier, instance) in REPLICAS.into_iter().enumerate() {
        let arguments = [&["--instance", instance], more].concat();
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

/// Who serves each tenant: the replica that sent the latest request to its cluster.
fn owners(fleet: &Fleet) -> anyhow::Result<Vec<String>> {
    let workers = fleet.workers.iter();
    let owners = workers.map(|worker| {
        let requests = worker.server.cluster.audit();
        let owner = requests.iter().rev().find_map(replica).map(str::to_owned);
        owner.with_context(|| format!("nobody serves {}", worker.tenant))
    });
    owners.collect()
}

fn busiest(owners: &[String]) -> Option<String> {
    let mut tenants: BTreeMap<&String, usize> = BTreeMap::new();
    for owner in owners {
        *tenants.entry(owner).or_default() += 1;
    }
    let most = tenants.into_iter().max_by_key(|(_, tenants)| *tenants)?;
    Some(most.0.clone())
}

/// From the kill to the first look of another replica at each tenant's machine deployments;
/// nothing while one still waits.
fn taken(fleet: &Fleet, (owners, killed): (&[String], &str), at: Instant) -> Option<Latencies> {
    let mut waited = Vec::new();
    for (worker, owner) in fleet.workers.iter().zip(owners) {
        if owner == killed {
            let requests = worker.server.cluster.audit();
            let looks = |it: &&AuditEntry| {
                let is_another = replica(it).is_some_and(|replica| replica != killed);
                is_another && it.at > at && engages(it)
            };
            let first = requests.iter().find(looks)?;
            waited.push(first.at.duration_since(at));
        }
    }
    Latencies::of(waited).ok()
}

fn of_workers(fleet: &Fleet, tenants: &[usize]) -> Requests {
    let mut counted = Requests::default();
    for worker in tenants.iter().filter_map(|index| fleet.workers.get(*index)) {
        counted.count("worker", &worker.server.cluster.audit());
    }
    counted
}

/// In how many tenants somebody wrote who should not have, since the kill.
#[derive(Debug, Default, PartialEq, Eq)]
struct Writers {
    /// Tenants for which one wrote, another, and the first again.
    shared: usize,
    /// Tenants of a replica that lives for which another wrote.
    strayed: usize,
}

impl Writers {
    fn of(fleet: &Fleet, (owners, killed): (&[String], &str)) -> Self {
        let mut by_tenant: BTreeMap<String, Vec<AuditEntry>> = BTreeMap::new();
        for entry in fleet.management.cluster.writes() {
            let tenant = entry.target.namespace.clone();
            by_tenant.entry(tenant).or_default().push(entry);
        }
        let mut found = Self::default();
        for (worker, owner) in fleet.workers.iter().zip(owners) {
            let mut all = by_tenant.remove(&worker.tenant).unwrap_or_default();
            all.extend(worker.server.cluster.writes());
            all.sort_by_key(|it| it.at);
            let writers: Vec<&str> = all.iter().filter_map(replica).collect();
            found.add(&writers, (owner, killed));
        }
        found
    }

    /// Counts a tenant, by who wrote for it in the order of time.
    fn add(&mut self, writers: &[&str], (owner, killed): (&str, &str)) {
        let mut turns = vec![owner];
        turns.extend(writers);
        turns.dedup();
        let distinct: BTreeSet<&&str> = turns.iter().collect();
        self.shared += usize::from(distinct.len() < turns.len());
        self.strayed += usize::from(owner != killed && turns.len() > 1);
    }

    fn figures(&self) -> [Figure; 2] {
        [
            ("tenants with two writers at a time", self.shared),
            ("tenants of those that live that moved", self.strayed),
        ]
        .map(|(name, found)| Figure::new(name, count(found), "").wanted(0.0, 0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_again_after_another_is_found_and_so_is_who_strays() {
        for (owner, writers, shared, strayed) in [
            ("a", vec!["a", "a"], 0, 0),
            ("a", vec!["a", "b", "b"], 0, 0),
            ("a", vec!["b", "a"], 1, 0),
            ("c", vec!["c"], 0, 0),
            ("c", vec!["b"], 0, 1),
            ("c", vec!["b", "c"], 1, 1),
            ("c", vec![], 0, 0),
        ] {
            let mut found = Writers::default();
            found.add(&writers, (owner, "a"));
            assert_eq!(found, Writers { shared, strayed }, "{owner} {writers:?}");
        }
    }
}
