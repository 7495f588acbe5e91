//! Scenarios in which all tenants are alike: at rest, from nothing, and after a restart.

use anyhow::Context as _;
use tokio::time::Instant;

use super::making::{engaged_since, serve_all};
use crate::load::{
    fleet::Fleet,
    latency::Latencies,
    measure::Sample,
    outcome::{Figure, Outcome, count, float},
    requests::Requests,
    served,
    stage::Stage,
};

/// So often a page of the manager is asked for.
const PAGES: usize = 20;

/// A fleet is registered while the manager runs, served, and then left alone.
pub async fn idle(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    stage.start().await?;
    stage.settle().await?;
    let empty = stage.sample().await?;
    outcome.add_sample("0 empty", empty);
    let before = management_bytes(stage).await?;
    stage.register_all().await?;
    stage.until_all_served(1).await?;
    stage.settle().await?;
    outcome.add_requests("0 served", Requests::take(&stage.fleet));
    let served = stage.sample().await?;
    outcome.add_sample("1 served", served);
    let begun = Instant::now();
    stage.rest(stage.params.window).await?;
    let window = begun.elapsed().as_secs_f64();
    let requests = Requests::take(&stage.fleet);
    let rested = stage.sample().await?;
    outcome.add_sample("2 rested", rested);
    let tenants = count(stage.params.tenants);
    let per_tenant = |kib: u64| (float(kib) - float(empty.resident_kib)) / tenants;
    let asked = requests.total() - requests.watches;
    let bytes = (management_bytes(stage).await? - before) / tenants / 1024.0;
    outcome.figures.extend([
        Figure::new(
            "memory, no tenant",
            float(empty.resident_kib) / 1024.0,
            "MiB",
        )
        .wanted(30.0, 15.0),
        Figure::new("memory, served", float(rested.resident_kib) / 1024.0, "MiB"),
        Figure::new("memory per tenant", per_tenant(rested.resident_kib), "KiB")
            .wanted(256.0, 128.0),
        Figure::new("CPU at rest", cpu(served, rested) / window, "mcore").wanted(20.0, 5.0),
        Figure::new(
            "requests per tenant at rest",
            float(asked) / window / tenants,
            "1/s",
        )
        .wanted(0.02, 0.0),
        Figure::new("writes at rest", float(requests.writes), "").wanted(0.0, 0.0),
        Figure::new(in_etcd(stage), bytes, "KiB"),
    ]);
    outcome.figures.extend(by_kind(stage));
    outcome.add_requests("1 at rest", requests);
    pages(stage, outcome).await
}

/// Asks for the fleet page and the metrics, one time after the other.
async fn pages(stage: &Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    let (mut fleet, mut metrics) = (Vec::new(), Vec::new());
    for _ in 0..PAGES {
        fleet.push(stage.fleet_page().await?);
        metrics.push(stage.metrics_page().await?);
    }
    for (name, times, (must, aim)) in [
        ("fleet page", fleet, (100.0, 30.0)),
        ("metrics page", metrics, (50.0, 20.0)),
    ] {
        let times = Latencies::of(times)?;
        let figure = Figure::new(name, times.max, "ms").wanted(must, aim);
        outcome.figures.push(figure);
        outcome.add_latencies(name, times);
    }
    Ok(())
}

/// Everything is registered before the manager starts for the first time.
pub async fn cold_start(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    stage.register_all().await?;
    let begun = stage.start().await?;
    stage.until_all_served(1).await?;
    let all = stage.sample().await?;
    outcome.add_sample("0 served", all);
    let served = served_since(stage, begun, 1);
    let engaged = all_engaged_since(stage, begun)?;
    stage.settle().await?;
    let settled = stage.sample().await?;
    outcome.add_sample("1 settled", settled);
    outcome.figures.extend([
        Figure::new("all engaged", engaged.max / 1000.0, "s").wanted(30.0, 10.0),
        Figure::new("all served", served?.max / 1000.0, "s"),
        Figure::new(
            "CPU until served",
            float(all.cpu_milliseconds) / 1000.0,
            "s",
        ),
    ]);
    outcome.add_latencies("start to engaged", engaged);
    outcome.add_latencies("start to served", served_since(stage, begun, 1)?);
    Ok(())
}

/// The manager ends and starts again; nothing has changed meanwhile.
pub async fn restart(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    serve_all(stage).await?;
    let first = stage.sample().await?;
    outcome.add_sample("0 before", first);
    stage.stop().await?;
    Requests::take(&stage.fleet);
    let begun = stage.start().await?;
    let empty = stage.sample().await?;
    let tenants = stage.params.tenants;
    let what = "all worker clusters are watched again";
    stage.until(what, Fleet::is_watched).await?;
    let took = begun.elapsed();
    let watched = stage.sample().await?;
    stage.rest(stage.params.window).await?;
    let engaged = all_engaged_since(stage, begun)?;
    let requests = Requests::take(&stage.fleet);
    let rested = stage.sample().await?;
    outcome.add_sample("1 started", empty);
    outcome.add_sample("2 watching", watched);
    outcome.add_sample("3 rested", rested);
    outcome.figures.extend([
        Figure::new("all engaged", engaged.max / 1000.0, "s").wanted(30.0, 10.0),
        Figure::new("all watched", took.as_secs_f64(), "s"),
        Figure::new("writes after a restart", float(requests.writes), "").wanted(0.0, 0.0),
        Figure::new(
            "requests per tenant for a restart",
            float(requests.total()) / count(tenants),
            "",
        ),
        Figure::new(
            "memory after a restart",
            float(rested.resident_kib) / 1024.0,
            "MiB",
        ),
        Figure::new(
            "CPU of the restart",
            float(watched.cpu_milliseconds) / 1000.0,
            "s",
        ),
    ]);
    outcome.add_latencies("start to engaged", engaged);
    outcome.add_requests("restart", requests);
    Ok(())
}

/// From a moment to the first look at each tenant's machine deployments.
fn all_engaged_since(stage: &Stage, begun: Instant) -> anyhow::Result<Latencies> {
    engaged_since(stage.fleet.workers.iter().map(|worker| (worker, begun)))
}

/// From a moment to both documents of each machine deployment.
fn served_since(stage: &Stage, begun: Instant, revision: u64) -> anyhow::Result<Latencies> {
    let mut durations = Vec::new();
    for worker in &stage.fleet.workers {
        for name in &worker.machine_deployments {
            let serving = served::serving(worker, name, revision);
            let serving = serving.with_context(|| format!("{name} was never served"))?;
            durations.push(serving.served.duration_since(begun));
        }
    }
    Latencies::of(durations)
}

/// What the objects of the management cluster take: what a real etcd says, or as JSON, in which
/// etcd keeps those of our kinds.
/// What each tenant has in the management cluster, besides [`CONFIGS`].
const WITHOUT_CONFIGS: [&str; 3] = ["secrets", "workerclusters", "operatingsystemprofiles"];
const CONFIGS: &str = "operatingsystemconfigs";

async fn management_bytes(stage: &Stage) -> anyhow::Result<f64> {
    if let Some(real) = &stage.fleet.real {
        return real.etcd_bytes().await;
    }
    let of_kind = |kind: &&str| bytes_of(stage, kind);
    Ok(WITHOUT_CONFIGS.iter().chain(&[CONFIGS]).map(of_kind).sum())
}

/// What the objects of a kind take in a management cluster in memory.
fn bytes_of(stage: &Stage, kind: &str) -> f64 {
    let objects = stage.fleet.management.cluster.objects(kind);
    let bytes = objects.iter().map(|object| object.to_string().len());
    count(bytes.sum())
}

/// What a tenant takes in the management cluster, by kind, if that is in memory.
fn by_kind(stage: &Stage) -> Vec<Figure> {
    if stage.fleet.real.is_some() {
        return Vec::new();
    }
    let kib = |kind: &str| bytes_of(stage, kind) / count(stage.params.tenants) / 1024.0;
    let of_kind = |kind: &&str| Figure::new(&format!("etcd per tenant, {kind}"), kib(kind), "KiB");
    let figures = WITHOUT_CONFIGS.iter().chain(&[CONFIGS]).map(of_kind);
    let without = WITHOUT_CONFIGS.iter().map(|kind| kib(kind)).sum();
    let without = Figure::new("etcd per tenant without configs", without, "KiB");
    figures.chain([without.wanted(24.0, 16.0)]).collect()
}

fn in_etcd(stage: &Stage) -> &'static str {
    match stage.fleet.real {
        Some(_) => "management etcd per tenant, by etcd",
        None => "management etcd per tenant",
    }
}

/// Processor time between two samples, in milliseconds a thousand times: by seconds it is mcore.
fn cpu(before: Sample, after: Sample) -> f64 {
    float(after.cpu_milliseconds - before.cpu_milliseconds)
}
