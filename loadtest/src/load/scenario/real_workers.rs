//! The worker clusters are real ones: kube-apiserver, etcd and the controllers that fill Secrets.
//! As many as a machine can run beside the manager; with a real management cluster, nothing is in
//! memory.

use std::time::Duration;

use anyhow::Context as _;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use kube::runtime::wait::await_condition;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::load::{
    fleet::{ACCOUNT, KUBE_SYSTEM, WORKER_MANIFESTS, machine_deployment},
    latency::Latencies,
    outcome::{Figure, Outcome, count, float},
    real_cluster::RealCluster,
    requests::Requests,
    served::CLOUD_INIT_SETTINGS,
    stage::Stage,
};

/// Each takes half a gibibyte.
const CLUSTERS_MAX: usize = 5;
/// The time between two new machine deployments in the fleet: the servers share the cores.
const NEW_INTERVAL: Duration = Duration::from_millis(200);
/// On a busy machine.
const SERVED_TIMEOUT: Duration = Duration::from_mins(3);

/// Real worker clusters are served, machine deployments appear in them, and then all is at rest.
pub async fn real_workers(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    let (screen, tenants) = (stage.params.screen, outcome.tenants);
    anyhow::ensure!(
        tenants <= CLUSTERS_MAX,
        "{CLUSTERS_MAX} real clusters at most"
    );
    let started = try_join_all((0..tenants).map(start));
    let what = format!("{tenants} real worker clusters");
    let workers = screen.step(&what, started).await?;
    let all = serve(stage, &workers).await?;
    let joined = take(stage, &workers);
    let made = screen
        .step("machine deployments appear", make(stage, &workers))
        .await?;
    stage.settle().await?;
    let requests = take(stage, &workers);
    let served = stage.sample().await?;
    let rest = Instant::now();
    stage.rest(stage.params.window).await?;
    let window = rest.elapsed().as_secs_f64();
    let rested = stage.sample().await?;
    let at_rest = take(stage, &workers);
    let asked = float(at_rest.total() - at_rest.watches);
    let processor = float(rested.cpu_milliseconds - served.cpu_milliseconds);
    let new = float(made.count.max(1));
    outcome.figures.extend([
        Figure::new("start to all served", all, "s"),
        Figure::new("made to both Secrets, p50", made.p50, "ms").wanted(50.0, 10.0),
        Figure::new("made to both Secrets, p99", made.p99, "ms").wanted(250.0, 50.0),
        Figure::new(
            "requests per tenant until served",
            float(joined.total()) / count(tenants),
            "",
        ),
        Figure::new(
            "requests per new machine deployment",
            float(requests.total()) / new,
            "",
        ),
        Figure::new(
            "requests per tenant at rest",
            asked / window / count(tenants),
            "1/s",
        )
        .wanted(0.02, 0.0),
        Figure::new("writes at rest", float(at_rest.writes), "").wanted(0.0, 0.0),
        Figure::new("CPU at rest", processor / window, "mcore").wanted(20.0, 5.0),
    ]);
    outcome.add_latencies("made to both Secrets", made);
    outcome.add_sample("0 served", served);
    outcome.add_sample("1 rested", rested);
    for (name, requests) in [
        ("0 joined", joined),
        ("1 appear", requests),
        ("2 at rest", at_rest),
    ] {
        outcome.add_requests(name, requests);
    }
    Ok(())
}

/// Starts the manager and registers all; seconds until everything that is there is served.
async fn serve(stage: &mut Stage, workers: &[RealWorker]) -> anyhow::Result<f64> {
    let machine_deployments = stage.params.machine_deployments;
    for worker in workers {
        for index in 0..machine_deployments {
            let made = machine_deployment(&format!("pool-{index}"));
            worker.cluster.put(made).await?;
        }
    }
    let begun = stage.start().await?;
    for worker in workers {
        let kubeconfig = worker.cluster.kubeconfig();
        let registered = stage.fleet.register_other(&worker.tenant, kubeconfig);
        registered.await?;
    }
    let all = workers.iter().flat_map(|worker| {
        (0..machine_deployments).map(move |index| until_served(worker, format!("pool-{index}")))
    });
    let screen = stage.params.screen;
    screen.step("all served", try_join_all(all)).await?;
    let took = begun.elapsed().as_secs_f64();
    stage.settle().await?;
    Ok(took)
}

/// A tenant with a real worker cluster.
struct RealWorker {
    tenant: String,
    cluster: RealCluster,
}

async fn start(index: usize) -> anyhow::Result<RealWorker> {
    let tenant = format!("real-{index:05}");
    let account = (KUBE_SYSTEM, ACCOUNT);
    let cluster = RealCluster::start(&tenant, &WORKER_MANIFESTS, account).await?;
    Ok(RealWorker { tenant, cluster })
}

/// The requests since the last count.
fn take(stage: &Stage, workers: &[RealWorker]) -> Requests {
    let mut counted = Requests::take(&stage.fleet);
    for worker in workers {
        counted.count("worker", &worker.cluster.take_audit());
    }
    counted
}

/// Machine deployments appear in one cluster after the other, for as long as the window; how long
/// each took to be served.
async fn make(stage: &Stage, workers: &[RealWorker]) -> anyhow::Result<Latencies> {
    let mut ticks = interval(NEW_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let begun = Instant::now();
    let mut waiting = Vec::new();
    for (turn, worker) in workers.iter().cycle().enumerate() {
        if begun.elapsed() >= stage.params.window {
            break;
        }
        ticks.tick().await;
        let name = format!("new-{turn}");
        let asked = Instant::now();
        worker.cluster.put(machine_deployment(&name)).await?;
        let served = until_served(worker, name).await?;
        waiting.push(served.duration_since(asked));
    }
    Latencies::of(waiting)
}

/// When our watch showed the second of both documents.
async fn until_served(worker: &RealWorker, name: String) -> anyhow::Result<Instant> {
    let secrets: Api<Secret> = Api::namespaced(worker.cluster.client(), CLOUD_INIT_SETTINGS);
    let documents = ["bootstrap", "provisioning"].map(|document| {
        let secret = format!("{name}-{KUBE_SYSTEM}-{document}-config");
        let secrets = secrets.clone();
        async move {
            let is_there = |found: Option<&Secret>| found.is_some();
            await_condition(secrets, &secret, is_there).await
        }
    });
    let both = timeout(SERVED_TIMEOUT, try_join_all(documents)).await;
    let both = both.with_context(|| format!("{name} of {} is not served", worker.tenant))?;
    both.with_context(|| format!("watching what is made for {name}"))?;
    Ok(Instant::now())
}
