//! Scenarios that end where they began: what is left of the process then must be what it was.

use std::time::Duration;

use fake_cluster::{AuditEntry, Verb};
use tokio::time::Instant;

use super::making::serve_all;
use crate::load::{
    fleet::Fleet,
    measure::Sample,
    outcome::{Figure, Outcome, count, float},
    requests::Requests,
    stage::Stage,
};

/// Rounds of adding and removing all tenants.
const ROUNDS: usize = 5;
/// Tokio ends an idle thread after ten seconds; jemalloc gives back what is free over ten seconds,
/// starting over whenever something is freed, as when those threads end.
pub(super) const CALM: Duration = Duration::from_secs(45);
/// How often every kubeconfig is replaced.
const TURNS: usize = 3;
/// Rotations of one kubeconfig.
const ROTATIONS: usize = 1000;
/// The first rotations bring the process to its working size.
const WARM: usize = 100;
/// A budget that a rotation need not wait for: each takes some dozen requests of
/// both.
const UNHURRIED: [&str; 4] = [
    "--worker-requests=2000",
    "--worker-burst=2000",
    "--management-requests=2000",
    "--management-burst=2000",
];

/// All tenants are added and removed, over and over. The first round compiles what is kept, and
/// brings the process to its working size: the last one is compared with it.
pub async fn add_remove(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    stage.start().await?;
    stage.settle().await?;
    let begun = stage.sample().await?;
    outcome.add_sample("0 empty", begun);
    let mut first = None;
    let mut last = begun;
    for round in 1..=ROUNDS {
        for worker in &stage.fleet.workers {
            stage.fleet.give_namespace(worker)?;
            stage.fleet.register(worker).await?;
        }
        stage
            .until("all are watched", |fleet| watches(fleet, 2))
            .await?;
        stage.settle().await?;
        let full = stage.sample().await?;
        outcome.add_sample(&format!("{round} full"), full);
        for worker in &stage.fleet.workers {
            stage.fleet.remove(worker).await?;
        }
        stage
            .until("nothing is watched", |fleet| watches(fleet, 0))
            .await?;
        stage.settle().await?;
        stage.rest(CALM).await?;
        last = stage.sample().await?;
        outcome.add_sample(&format!("{round} none"), last);
        first.get_or_insert(last);
        Requests::take(&stage.fleet);
    }
    outcome
        .figures
        .extend(returned(first.unwrap_or(begun), last));
    let (before, after) = (float(begun.resident_kib), float(last.resident_kib));
    outcome.figures.push(Figure::new(
        "memory, more than before the first round",
        (after - before) / 1024.0,
        "MiB",
    ));
    Ok(())
}

/// The fleet is served, and the allocator has given back what that took.
pub(super) async fn served_and_calm(
    stage: &mut Stage,
    outcome: &mut Outcome,
) -> anyhow::Result<Sample> {
    serve_all(stage).await?;
    stage.rest(CALM).await?;
    let begun = stage.sample().await?;
    outcome.add_sample("0 before", begun);
    Ok(begun)
}

/// Every kubeconfig is replaced at once, a few times.
pub async fn rotate_all(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    let begun = served_and_calm(stage, outcome).await?;
    let mut first = None;
    let mut last = begun;
    for turn in 1..=TURNS {
        Requests::take(&stage.fleet);
        let rotated = Instant::now();
        for worker in &stage.fleet.workers {
            stage.fleet.rotate(worker, turn).await?;
        }
        stage
            .until("all are watched again", |fleet| {
                let mut workers = fleet.workers.iter();
                workers.all(|worker| worker.server.cluster.count_requests(watches_secrets) > 0)
            })
            .await?;
        let took = rotated.elapsed().as_secs_f64();
        stage.settle().await?;
        let requests = Requests::take(&stage.fleet);
        stage.rest(CALM).await?;
        last = stage.sample().await?;
        outcome.add_sample(&format!("{turn} after"), last);
        first.get_or_insert(last);
        let name = format!("turn {turn}, until all are watched again");
        outcome.figures.push(Figure::new(&name, took, "s"));
        let writes = float(requests.writes) / count(stage.params.tenants);
        let name = format!("turn {turn}, writes per tenant");
        outcome.figures.push(Figure::new(&name, writes, ""));
        let requests_name = format!("turn {turn}");
        outcome.requests.insert(requests_name, requests);
    }
    let first = first.unwrap_or(begun);
    outcome.figures.extend(returned(first, last));
    Ok(())
}

/// One kubeconfig is replaced, over and over, while the rest of the fleet is served.
pub async fn rotate_one(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    let arguments = &mut stage.params.arguments;
    arguments.extend(UNHURRIED.map(str::to_owned));
    let begun = served_and_calm(stage, outcome).await?;
    let mut warm = begun;
    for turn in 1..=ROTATIONS {
        rotate(stage, turn).await?;
        if turn == WARM {
            stage.settle().await?;
            stage.rest(CALM).await?;
            warm = stage.sample().await?;
            outcome.add_sample(&format!("1 after {WARM}"), warm);
        }
    }
    stage.settle().await?;
    stage.rest(CALM).await?;
    let ended = stage.sample().await?;
    outcome.add_sample(&format!("2 after {ROTATIONS}"), ended);
    outcome.figures.extend(returned(warm, ended));
    Ok(())
}

/// Replaces the first tenant's kubeconfig, and waits until its Secrets are watched again.
async fn rotate(stage: &Stage, turn: usize) -> anyhow::Result<()> {
    let Some(worker) = stage.fleet.workers.first() else {
        return Ok(());
    };
    worker.server.cluster.clear_audit();
    stage.fleet.rotate(worker, turn).await?;
    let watched = worker.server.cluster.wait_until(|cluster| {
        let watches = cluster.count_requests(watches_secrets);
        watches > 0
    });
    tokio::time::timeout(Duration::from_secs(30), watched).await?;
    Ok(())
}

fn watches_secrets(request: &AuditEntry) -> bool {
    request.verb == Verb::Watch && request.target.resource == "secrets"
}

/// Whether each worker cluster has this many watches, or none.
fn watches(fleet: &Fleet, wanted: usize) -> bool {
    let mut workers = fleet
        .workers
        .iter()
        .map(|worker| worker.server.cluster.open_watches());
    workers.all(|open| {
        if wanted == 0 {
            open == 0
        } else {
            open >= wanted
        }
    })
}

/// What there is more of at the end, in percent of the beginning: of a process that has rested so
/// long that idle threads have ended. Memory is what is resident then.
pub(super) fn returned(before: Sample, after: Sample) -> Vec<Figure> {
    let percent = |name: &str, before: u64, after: u64| {
        let more = (float(after) - float(before)) / float(before.max(1)) * 100.0;
        Figure::new(name, more, "% more").wanted(5.0, 0.0)
    };
    vec![
        percent("tasks", before.tasks, after.tasks),
        percent("descriptors", before.descriptors, after.descriptors),
        percent("threads", before.threads, after.threads),
        percent("series", before.series, after.series),
        percent("memory", before.resident_kib, after.resident_kib),
    ]
}
