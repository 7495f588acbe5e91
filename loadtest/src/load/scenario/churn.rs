//! A fleet in which something changes all the time, and which ends as it began: machine deployments
//! are made, change and go, and tenants leave and come back.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::leaks::{CALM, returned, served_and_calm};
use crate::load::{
    fleet::Fleet,
    latency::Latencies,
    outcome::{Figure, Outcome, count, float},
    requests::Requests,
    served,
    stage::Stage,
};

/// The time between two steps.
const STEP_INTERVAL: Duration = Duration::from_millis(50);
/// How many steps a machine deployment lives: ten seconds.
const LIFE_STEPS: usize = 200;
/// After how many steps a tenant leaves, or comes back: one a second.
const TENANT_STEPS: usize = 20;
/// The last tenants leave and come back, one of ten; in the others machine deployments come and go.
const LEAVING: usize = 10;
const SERVED_TIMEOUT: Duration = Duration::from_mins(2);

/// A machine deployment that was made: the tenant it is in, and its name.
type Made = (usize, String);

/// Two windows of churn: the first brings the process to its working size, the second is compared
/// with it.
pub async fn churn(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    served_and_calm(stage, outcome).await?;
    let mut samples = Vec::new();
    for window in ["1 first", "2 second"] {
        Requests::take(&stage.fleet);
        let steps = one_window(stage, outcome, window).await?;
        stage.settle().await?;
        let requests = Requests::take(&stage.fleet);
        stage.rest(CALM).await?;
        let sample = stage.sample().await?;
        samples.push(sample);
        let name = format!("{window} window, requests per step");
        let asked = float(requests.total()) / count(steps);
        outcome.figures.push(Figure::new(&name, asked, ""));
        outcome.add_sample(window, sample);
        outcome.add_requests(window, requests);
    }
    if let [first, second] = samples.as_slice() {
        outcome.figures.extend(returned(*first, *second));
    }
    Ok(())
}

/// Steps for as long as the window, then everything that was made goes; tells how many steps.
async fn one_window(
    stage: &mut Stage,
    outcome: &mut Outcome,
    window: &str,
) -> anyhow::Result<usize> {
    let staying = stage.params.tenants - stage.params.tenants / LEAVING;
    let mut ticks = interval(STEP_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let begun = Instant::now();
    let mut alive: VecDeque<Made> = VecDeque::new();
    let (mut served, mut away, mut steps) = (Vec::new(), None, 0);
    while begun.elapsed() < stage.params.window {
        ticks.tick().await;
        steps += 1;
        let index = steps % staying;
        let worker = stage.fleet.workers.get_mut(index);
        let worker = worker.context("the tenant does not exist")?;
        alive.push_back((index, worker.add_machine_deployment()?));
        if alive.len() > LIFE_STEPS
            && let Some(made) = alive.pop_front()
        {
            served.push(end(stage, &made).await?);
        }
        if steps % TENANT_STEPS == 0 {
            away = move_one(stage, away, steps / TENANT_STEPS).await?;
        }
    }
    for made in &alive {
        served.push(end(stage, made).await?);
    }
    if let Some(index) = away {
        come_back(stage, index).await?;
    }
    stage
        .until("all are watched again", Fleet::is_watched)
        .await?;
    let latencies = Latencies::of(served)?;
    let name = format!("made to both Secrets, {window} window");
    outcome.add_latencies(&name, latencies);
    Ok(steps)
}

/// How long a machine deployment took to be served; it is deleted then.
async fn end(stage: &mut Stage, (index, name): &Made) -> anyhow::Result<Duration> {
    let worker = stage.fleet.workers.get_mut(*index);
    let worker = worker.context("the tenant does not exist")?;
    let found = tokio::time::timeout(SERVED_TIMEOUT, served::until_served(worker, name, 1));
    let found = found
        .await
        .with_context(|| format!("{name} of {} is not served", worker.tenant))?;
    worker.remove_machine_deployment(name).await?;
    Ok(found.served.duration_since(found.asked))
}

/// The tenant that is away comes back; if none is, one leaves.
async fn move_one(
    stage: &Stage,
    away: Option<usize>,
    turn: usize,
) -> anyhow::Result<Option<usize>> {
    if let Some(index) = away {
        come_back(stage, index).await?;
        return Ok(None);
    }
    let tenants = stage.params.tenants;
    let leaving = tenants / LEAVING;
    if leaving == 0 {
        return Ok(None);
    }
    let index = tenants - 1 - turn % leaving;
    let worker = stage.fleet.workers.get(index);
    stage
        .fleet
        .remove(worker.context("the tenant does not exist")?)
        .await?;
    Ok(Some(index))
}

async fn come_back(stage: &Stage, index: usize) -> anyhow::Result<()> {
    let worker = stage.fleet.workers.get(index);
    let worker = worker.context("the tenant does not exist")?;
    stage.fleet.give_namespace(worker)?;
    stage.fleet.register(worker).await
}
