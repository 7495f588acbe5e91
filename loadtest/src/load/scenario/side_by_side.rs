//! The same work done twice: by one process for each cluster, and by one process for all.

use tokio::time::Instant;

use crate::load::{
    fleet::Fleet,
    measure::Sample,
    outcome::{Figure, Outcome, float},
    per_cluster::{CommandLine, PerCluster},
    requests::Requests,
    served::until_served,
    stage::Stage,
};

/// One side of the comparison.
struct Side {
    /// All processes together, when all is served and nothing is written any more.
    served: Sample,
    /// The same after a while at rest.
    rested: Sample,
    /// How long they rested, in seconds.
    window: f64,
    /// Requests of that while.
    requests: Requests,
}

/// Each worker cluster has a process of its own, then one process serves as many clusters.
pub async fn side_by_side(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    let screen = stage.params.screen;
    let tenants = stage.params.tenants;
    let what = format!("{tenants} clusters with a process each");
    let each = screen.step(&what, a_process_each(stage)).await?;
    let all = one_for_all(stage).await?;
    let gib = |side: &Side| float(side.rested.proportional_kib) / 1024.0;
    compare(outcome, "memory", (gib(&each), gib(&all), "MiB"));
    let served = |side: &Side| float(side.served.cpu_milliseconds) / 1000.0;
    compare(
        outcome,
        "CPU until served",
        (served(&each), served(&all), "s"),
    );
    compare(outcome, "CPU at rest", (cpu(&each), cpu(&all), "mcore"));
    let asked = |side: &Side| {
        let requests = side.requests.total() + side.requests.leases;
        float(requests) / side.window
    };
    compare(
        outcome,
        "requests at rest",
        (asked(&each), asked(&all), "1/s"),
    );
    for (name, side) in [("a process each", each), ("one for all", all)] {
        let sample = |moment: &str| format!("{name}, {moment}");
        outcome.samples.insert(sample("served"), side.served);
        outcome.samples.insert(sample("rested"), side.rested);
        outcome.requests.insert(sample("at rest"), side.requests);
    }
    Ok(())
}

fn compare(outcome: &mut Outcome, name: &str, (each, all, unit): (f64, f64, &str)) {
    outcome.figures.extend([
        Figure::new(&format!("{name}, a process each"), each, unit),
        Figure::new(&format!("{name}, one for all"), all, unit),
    ]);
    // Nothing against something is no ratio.
    if all > 0.0 {
        outcome.figures.push(Figure::new(
            &format!("{name}, times as much"),
            each / all,
            "x",
        ));
    }
}

fn cpu(side: &Side) -> f64 {
    let used = side.rested.cpu_milliseconds - side.served.cpu_milliseconds;
    float(used) / side.window
}

async fn a_process_each(stage: &Stage) -> anyhow::Result<Side> {
    let params = &stage.params;
    let mut fleet = Fleet::start(&stage.definitions).await?;
    fleet
        .grow(params.tenants, params.machine_deployments)
        .await?;
    fleet.delay(params.latency);
    let mut processes = PerCluster::new(&fleet, &stage.definitions).await?;
    let line = match &params.per_cluster_cmd {
        Some(text) => CommandLine::parse(text)?,
        None => CommandLine::of_osm(&params.osm, processes.folder())?,
    };
    processes.start(&line)?;
    let all_served = async {
        for worker in &fleet.workers {
            for name in &worker.machine_deployments {
                until_served(worker, name, 1).await;
            }
        }
    };
    processes.with(all_served).await?;
    processes.settle().await?;
    take(&fleet);
    let served = processes.sample().await?;
    let begun = Instant::now();
    processes.with(tokio::time::sleep(params.window)).await?;
    let window = begun.elapsed().as_secs_f64();
    let side = Side {
        served,
        rested: processes.sample().await?,
        window,
        requests: take(&fleet),
    };
    processes.stop().await?;
    Ok(side)
}

async fn one_for_all(stage: &mut Stage) -> anyhow::Result<Side> {
    stage.start().await?;
    stage.register_all().await?;
    stage.until_all_served(1).await?;
    stage.settle().await?;
    Requests::take(&stage.fleet);
    let served = stage.sample().await?;
    let begun = Instant::now();
    stage.rest(stage.params.window).await?;
    let window = begun.elapsed().as_secs_f64();
    Ok(Side {
        served,
        rested: stage.sample().await?,
        window,
        requests: Requests::take(&stage.fleet),
    })
}

/// The requests since the last count. Here a worker cluster is the management cluster as well: the
/// Lease of each process is told apart.
fn take(fleet: &Fleet) -> Requests {
    let mut counted = Requests::default();
    for worker in &fleet.workers {
        counted.count("management", &worker.server.cluster.take_audit());
    }
    counted
}
