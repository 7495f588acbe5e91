//! Scenarios in which something changes all the time: new tenants and machine deployments, a storm
//! of changes, one tenant that asks for far more than the others, worker clusters that fail.

use std::time::Duration;

use anyhow::Context as _;
use fake_cluster::{Fault, Matcher};
use tokio::time::{Instant, interval};

use super::making::{compare, durations, engaged_since, make, serve_all};
use crate::load::{
    fleet::{Revisions, Worker},
    latency::Latencies,
    outcome::{Figure, Outcome, count, float},
    requests::Requests,
    stage::Stage,
};

/// Tenants that join a fleet that is served.
const JOINING: usize = 100;
/// The time between two that join.
const JOIN_INTERVAL: Duration = Duration::from_millis(200);
/// The quiet tenants among which new machine deployments are dealt out while one is noisy: each
/// gets one in five seconds.
const QUIET: usize = 100;
/// The time between two changes of the noisy tenant: a hundred times as often, and not in step.
const NOISE_INTERVAL: Duration = Duration::from_millis(49);
/// Each tenth worker cluster fails.
const FAILING: usize = 10;
/// How slow a slow worker cluster is: half of what a call may take.
const SLOW: Duration = Duration::from_secs(5);

/// Tenants join a served fleet, and machine deployments appear.
pub async fn steady(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    serve_all(stage).await?;
    let joined = join(stage).await?;
    outcome.figures.extend([
        Figure::new("Secret to engaged, p50", joined.p50, "ms").wanted(250.0, 50.0),
        Figure::new("Secret to engaged, p99", joined.p99, "ms").wanted(1000.0, 200.0),
    ]);
    outcome.add_latencies("Secret to engaged", joined);
    stage.settle().await?;
    Requests::take(&stage.fleet);
    let tenants: Vec<usize> = (0..stage.params.tenants).collect();
    let made = make(stage, &tenants).await?;
    let requests = Requests::take(&stage.fleet);
    outcome.figures.extend([
        Figure::new("made to both Secrets, p50", made.p50, "ms").wanted(50.0, 10.0),
        Figure::new("made to both Secrets, p99", made.p99, "ms").wanted(250.0, 50.0),
        Figure::new(
            "requests per new machine deployment",
            float(requests.total() - requests.watches) / float(made.count.max(1)),
            "",
        ),
    ]);
    outcome.add_latencies("made to both Secrets", made);
    outcome.add_requests("new machine deployments", requests);
    Ok(())
}

/// The revision of every machine deployment is raised at once.
pub async fn storm(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    serve_all(stage).await?;
    let before = stage.sample().await?;
    Requests::take(&stage.fleet);
    let begun = Instant::now();
    for worker in &stage.fleet.workers {
        let revisions = worker.revisions();
        for name in &worker.machine_deployments {
            revisions.raise(name, 2).await?;
        }
    }
    let raised = begun.elapsed();
    let all = stage.until_all_served(2).await?;
    let took = all.iter().map(|one| one.served.duration_since(begun)).max();
    let after = stage.sample().await?;
    let requests = Requests::take(&stage.fleet);
    let changed = count(all.len());
    let processor = float(after.cpu_milliseconds - before.cpu_milliseconds);
    outcome.figures.extend([
        Figure::new("raising them took", raised.as_secs_f64(), "s"),
        Figure::new("all served", took.unwrap_or_default().as_secs_f64(), "s"),
        Figure::new("CPU per change", processor / changed, "ms"),
        Figure::new("requests per change", float(requests.total()) / changed, ""),
    ]);
    outcome.add_latencies("raised to served", durations(&all)?);
    outcome.add_sample("0 before", before);
    outcome.add_sample("1 after", after);
    outcome.add_requests("storm", requests);
    Ok(())
}

/// One tenant's machine deployments change a hundred times as often as the others'.
pub async fn noisy(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    serve_all(stage).await?;
    let quiet: Vec<usize> = (1..stage.params.tenants.min(QUIET + 1)).collect();
    let alone = make(stage, &quiet).await?;
    let first = stage.fleet.workers.first().context("there is a tenant")?;
    let noise = make_noise(first.revisions(), first.machine_deployments.clone());
    let beside = tokio::select! {
        ended = noise => return ended.context("the noise ended first"),
        beside = make(stage, &quiet) => beside?,
    };
    compare(outcome, alone, beside, "beside a noisy tenant");
    Ok(())
}

async fn make_noise(revisions: Revisions, names: Vec<String>) -> anyhow::Result<()> {
    let mut ticks = interval(NOISE_INTERVAL);
    let mut names = names.iter().cycle();
    for revision in 2_u64.. {
        ticks.tick().await;
        let name = names.next().context("there is a machine deployment")?;
        revisions.raise(name, revision).await?;
    }
    Ok(())
}

/// What goes wrong in the worker clusters that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing listens.
    Dead,
    /// Each answer takes five seconds.
    Slow,
    /// Each answer is 429.
    Busy,
}

/// Each tenth worker cluster fails, while machine deployments appear in the others.
pub async fn failing(
    stage: &mut Stage,
    outcome: &mut Outcome,
    failure: Failure,
) -> anyhow::Result<()> {
    serve_all(stage).await?;
    let is_failing = |index: &usize| index.is_multiple_of(FAILING);
    let healthy: Vec<usize> = (0..stage.params.tenants)
        .filter(|it| !is_failing(it))
        .collect();
    let alone = make(stage, &healthy).await?;
    for worker in stage.fleet.workers.iter_mut().step_by(FAILING) {
        // Something to do there that cannot be done.
        worker.add_machine_deployment()?;
        fail(worker, failure).await;
    }
    let made = make(stage, &healthy).await?;
    compare(outcome, alone, made, "beside those that fail");
    Ok(())
}

async fn fail(worker: &Worker, failure: Failure) {
    let cluster = &worker.server.cluster;
    let fault = match failure {
        Failure::Dead => return worker.server.front.stop().await,
        Failure::Slow => Fault::Delay(SLOW),
        Failure::Busy => Fault::overloaded(Duration::from_secs(1)),
    };
    cluster.inject(Matcher::any(), fault);
    cluster.close_watches();
}

/// More tenants are registered, one after the other; from each registration to the first look at
/// its machine deployments.
async fn join(stage: &mut Stage) -> anyhow::Result<Latencies> {
    let (before, machine_deployments) = (stage.params.tenants, stage.params.machine_deployments);
    stage
        .fleet
        .grow(before + JOINING, machine_deployments)
        .await?;
    let mut ticks = interval(JOIN_INTERVAL);
    let mut begun = Vec::new();
    for worker in stage.fleet.workers.iter().skip(before) {
        ticks.tick().await;
        begun.push(Instant::now());
        stage.fleet.register(worker).await?;
    }
    stage.until_all_served(1).await?;
    engaged_since(stage.fleet.workers.iter().skip(before).zip(begun))
}
