//! Machine deployments that appear in a served fleet, and how long each takes to be served: alone,
//! and beside whatever a scenario does to the others.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::load::{
    fleet::{Fleet, Worker},
    latency::Latencies,
    outcome::{Figure, Outcome},
    served::{self, Serving},
    stage::Stage,
};

/// The time between two new machine deployments in the fleet: a big fleet's busy hour.
const NEW_INTERVAL: Duration = Duration::from_millis(50);
/// Each tenant gets no more than one a second: more would wait for the tenant's own budget.
const TENANT_INTERVAL: Duration = Duration::from_secs(1);
/// How often is looked whether there have been enough of them: a look may be at every cluster.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// On a busy machine; a machine deployment that takes longer is lost.
const SERVED_TIMEOUT: Duration = Duration::from_mins(2);
/// What others are done with by then, or never.
const BESIDE_TIMEOUT: Duration = Duration::from_mins(20);

/// Registers all tenants, starts the manager, and waits until all is served and written.
pub(super) async fn serve_all(stage: &mut Stage) -> anyhow::Result<()> {
    stage.register_all().await?;
    stage.start().await?;
    stage.until_all_served(1).await?;
    stage.settle().await
}

/// Machine deployments appear among these tenants, in turn, for as long as the window.
pub(super) async fn make(stage: &mut Stage, tenants: &[usize]) -> anyhow::Result<Latencies> {
    let (begun, window) = (Instant::now(), stage.params.window);
    let made = make_while(stage, tenants, |_| begun.elapsed() < window).await?;
    durations(&made)
}

/// Machine deployments appear among these tenants, in turn, for as long as a condition holds; it is
/// looked at once a second. Then all of them are waited for.
pub(super) async fn make_while(
    stage: &mut Stage,
    tenants: &[usize],
    mut goes_on: impl FnMut(&Fleet) -> bool,
) -> anyhow::Result<Vec<Serving>> {
    let screen = stage.params.screen;
    let all = async {
        let fair = TENANT_INTERVAL / u32::try_from(tenants.len().max(1))?;
        let mut ticks = interval(NEW_INTERVAL.max(fair));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (begun, mut looked) = (Instant::now(), Instant::now());
        let mut made = Vec::new();
        for index in tenants.iter().cycle() {
            ticks.tick().await;
            if looked.elapsed() >= LOOK_INTERVAL {
                looked = Instant::now();
                if !goes_on(&stage.fleet) {
                    break;
                }
            }
            anyhow::ensure!(begun.elapsed() < BESIDE_TIMEOUT, "waited too long");
            let worker = stage.fleet.workers.get_mut(*index);
            let worker = worker.context("the tenant does not exist")?;
            made.push((*index, worker.add_machine_deployment()?));
        }
        until_served(&stage.fleet, made).await
    };
    screen.step("machine deployments appear", all).await
}

async fn until_served(fleet: &Fleet, made: Vec<(usize, String)>) -> anyhow::Result<Vec<Serving>> {
    let mut all = Vec::new();
    for (tenant, name) in made {
        let worker = fleet.workers.get(tenant);
        let worker = worker.context("the tenant does not exist")?;
        let served = served::until_served(worker, &name, 1);
        let served = tokio::time::timeout(SERVED_TIMEOUT, served).await;
        let serving = served.with_context(|| format!("{name} of {}", worker.tenant));
        let serving = serving.context("waiting until it is served")?;
        all.push(serving);
    }
    Ok(all)
}

/// From a moment of its own until each worker cluster was engaged.
pub(super) fn engaged_since<'a>(
    begun: impl IntoIterator<Item = (&'a Worker, Instant)>,
) -> anyhow::Result<Latencies> {
    let mut durations = Vec::new();
    for (worker, begun) in begun {
        let engaged = served::engaged(&worker.server.cluster.audit());
        let engaged = engaged.with_context(|| format!("{} was never engaged", worker.tenant))?;
        durations.push(engaged.duration_since(begun));
    }
    Latencies::of(durations)
}

/// From being asked for to being served.
pub(super) fn durations<'a>(
    all: impl IntoIterator<Item = &'a Serving>,
) -> anyhow::Result<Latencies> {
    let durations = all.into_iter();
    Latencies::of(durations.map(|one| one.served.duration_since(one.asked)))
}

/// How much longer the same takes beside what others do: it must not be felt.
pub(super) fn compare(outcome: &mut Outcome, alone: Latencies, beside: Latencies, what: &str) {
    outcome.figures.extend([
        Figure::new("p99 alone", alone.p99, "ms"),
        Figure::new(&format!("p99 {what}"), beside.p99, "ms"),
    ]);
    // Nothing against something is no ratio.
    if alone.p99 > 0.0 && beside.count > 0 {
        let longer = Figure::new("times as long", beside.p99 / alone.p99, "x");
        outcome.figures.push(longer.wanted(1.25, 1.1));
    }
    outcome.add_latencies("0 alone", alone);
    outcome.add_latencies(&format!("1 {what}"), beside);
}
