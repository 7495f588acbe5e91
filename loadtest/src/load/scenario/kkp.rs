//! A KKP seed. Its user clusters have what KKP makes for them, and nobody registers them: they are
//! handed over by the replicas of their managers, one by one and all at once. Then all certificates
//! are renewed, and a tenth goes back and comes again, and then all of them.

use std::time::Duration;

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use fake_cluster::{AuditEntry, User, Verb, object};
use serde_json::{Value, json};
use tokio::time::{Instant, interval};

use super::making::engaged_since;
use crate::load::{
    fleet::{ACCOUNT, Fleet, KUBE_SYSTEM, Worker},
    latency::Latencies,
    outcome::{Figure, Outcome, count, float},
    per_cluster::prepare,
    requests::Requests,
    served,
    stage::Stage,
};

/// The manager's rights in a seed.
const ROLE: &str = include_str!("../../../../manifests/rbac/kkp-seed/management.yaml");
/// User clusters that are handed over one by one.
const ONE_BY_ONE: usize = 100;
/// Tokio ends an idle thread after ten seconds; jemalloc gives back what is free over ten seconds,
/// starting over whenever something is freed, as when those threads end.
const CALM: Duration = Duration::from_secs(45);
/// The time between two of them.
const INTERVAL: Duration = Duration::from_millis(200);
/// When KKP made the Secrets, which it only updates after that.
const CREATED: &str = "2026-01-01T00:00:00Z";
/// Those that go back: each tenth, and then each.
const A_TENTH: (&str, usize) = ("a tenth", 10);
const ALL: (&str, usize) = ("all", 1);

/// Replicas of KKP's manager.
#[derive(Clone, Copy)]
enum Replicas {
    /// KKP's manager serves the cluster.
    One,
    /// We do.
    None,
}

pub async fn kkp(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    let seed = &stage.fleet.management.cluster;
    seed.apply_yaml(ROLE).context("the role in a seed")?;
    prepare(&stage.fleet, &stage.definitions).await?;
    for worker in &stage.fleet.workers {
        has_cluster(&stage.fleet, worker)?;
        has_kubeconfig(&stage.fleet, worker)?;
        scale(&stage.fleet, worker, Replicas::One)?;
    }
    stage.start_with("", &["--inventory=kkp"]).await?;
    stage.settle().await?;
    let empty = stage.sample().await?;
    outcome.add_sample("0 nothing handed over", empty);
    let first = one_by_one(stage).await?;
    let others = all_at_once(stage).await?;
    outcome.figures.extend([
        Figure::new("handed over to engaged, p50", first.p50, "ms"),
        Figure::new("handed over to engaged, p99", first.p99, "ms").wanted(200.0, 100.0),
        Figure::new("all others at once, engaged", others.max / 1000.0, "s").wanted(15.0, 10.0),
    ]);
    outcome.add_latencies("0 one by one", first);
    outcome.add_latencies("1 all others at once", others);
    stage.settle().await?;
    stage.rest(CALM).await?;
    outcome.add_requests("0 served", Requests::take(&stage.fleet));
    stage.rest(stage.params.window).await?;
    let rested = stage.sample().await?;
    outcome.add_sample("1 served", rested);
    let tenants = count(stage.params.tenants);
    let per_tenant = (float(rested.resident_kib) - float(empty.resident_kib)) / tenants;
    outcome
        .figures
        .push(Figure::new("memory per tenant", per_tenant, "KiB"));
    let rest = Requests::take(&stage.fleet);
    let figure = Figure::new("writes at rest", besides_leases(&rest), "");
    outcome.figures.push(figure.wanted(0.0, 0.0));
    outcome.add_requests("1 at rest", rest);
    renewed(stage, outcome).await?;
    back_and_forth(stage, outcome, A_TENTH).await?;
    let again = back_and_forth(stage, outcome, ALL).await?;
    let figure = Figure::new("all at once again, engaged", again.max / 1000.0, "s");
    outcome.figures.push(figure.wanted(15.0, 10.0));
    Ok(())
}

/// The number of those that are handed over one by one.
fn few(stage: &Stage) -> usize {
    ONE_BY_ONE.min(stage.params.tenants.div_ceil(2))
}

async fn one_by_one(stage: &mut Stage) -> anyhow::Result<Latencies> {
    let few = few(stage);
    let mut ticks = interval(INTERVAL);
    let mut begun = Vec::new();
    for worker in stage.fleet.workers.iter().take(few) {
        ticks.tick().await;
        begun.push(Instant::now());
        scale(&stage.fleet, worker, Replicas::None)?;
    }
    until_engaged(stage, few).await?;
    engaged_since(stage.fleet.workers.iter().zip(begun))
}

async fn all_at_once(stage: &mut Stage) -> anyhow::Result<Latencies> {
    let (few, begun) = (few(stage), Instant::now());
    for worker in stage.fleet.workers.iter().skip(few) {
        scale(&stage.fleet, worker, Replicas::None)?;
    }
    until_engaged(stage, stage.params.tenants).await?;
    stage.until_all_served(1).await?;
    let others = stage.fleet.workers.iter().skip(few);
    engaged_since(others.map(|worker| (worker, begun)))
}

async fn until_engaged(stage: &mut Stage, first: usize) -> anyhow::Result<()> {
    let are_engaged = |fleet: &Fleet| {
        let mut workers = fleet.workers.iter().take(first);
        workers.all(|it| it.server.cluster.count_requests(served::engages) > 0)
    };
    stage.until("they are engaged", are_engaged).await
}

/// KKP renews the certificate of every cluster.
async fn renewed(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    let begun = Instant::now();
    for worker in &stage.fleet.workers {
        has_kubeconfig(&stage.fleet, worker)?;
    }
    let are_tried = |fleet: &Fleet| {
        let mut workers = fleet.workers.iter();
        workers.all(|it| it.server.cluster.count_requests(tries) > 0)
    };
    stage.until("all are in use", are_tried).await?;
    let took = begun.elapsed().as_secs_f64();
    stage.settle().await?;
    let requests = Requests::take(&stage.fleet);
    let writes = of_workers(&requests);
    let lists = requests.by_kind.get("worker list machinedeployments");
    let lists = float(lists.copied().unwrap_or_default());
    outcome.figures.extend([
        Figure::new("all certificates renewed, in use", took, "s"),
        Figure::new("lists of machine deployments by a renewal", lists, "").wanted(0.0, 0.0),
        Figure::new("writes to user clusters by a renewal", writes, "").wanted(0.0, 0.0),
    ]);
    outcome.add_requests("2 renewed", requests);
    Ok(())
}

/// Whether a request tries a renewed certificate.
fn tries(request: &AuditEntry) -> bool {
    request.verb == Verb::Get && request.target.resource == "configmaps"
}

/// Some are given back to KKP, and handed over again.
async fn back_and_forth(
    stage: &mut Stage,
    outcome: &mut Outcome,
    (which, each): (&str, usize),
) -> anyhow::Result<Latencies> {
    let begun = Instant::now();
    for worker in stage.fleet.workers.iter().step_by(each) {
        scale(&stage.fleet, worker, Replicas::One)?;
    }
    let are_free = |fleet: &Fleet| fleet.workers.iter().step_by(each).all(is_free);
    stage.until("their Leases are free", are_free).await?;
    let freed = begun.elapsed().as_secs_f64();
    stage.settle().await?;
    let given_back = Requests::take(&stage.fleet);
    let begun = Instant::now();
    for worker in stage.fleet.workers.iter().step_by(each) {
        scale(&stage.fleet, worker, Replicas::None)?;
    }
    let are_engaged = |fleet: &Fleet| {
        let mut workers = fleet.workers.iter().step_by(each);
        workers.all(|it| it.server.cluster.count_requests(served::engages) > 0)
    };
    stage.until("they are engaged again", are_engaged).await?;
    let workers = stage.fleet.workers.iter().step_by(each);
    let engaged = engaged_since(workers.map(|worker| (worker, begun)))?;
    stage.settle().await?;
    let requests = Requests::take(&stage.fleet);
    let written = of_workers(&given_back) + of_workers(&requests);
    let writes = format!("writes to user clusters by {which} back and forth");
    outcome.figures.extend([
        Figure::new(&format!("{which} given back"), freed, "s"),
        Figure::new(&writes, written, "").wanted(0.0, 0.0),
    ]);
    let step = format!("3 {which} handed over again");
    outcome.add_requests(&step, requests);
    outcome.add_latencies(&step, engaged);
    Ok(engaged)
}

/// The writes to user clusters, besides those of Leases.
fn of_workers(requests: &Requests) -> f64 {
    let writes = ["create", "update", "patch", "delete"];
    let is_write = |kind: &str| {
        let mut words = kind.split(' ');
        let (side, verb) = (words.next(), words.next().unwrap_or_default());
        side == Some("worker") && writes.contains(&verb) && words.next() != Some("leases")
    };
    let kinds = requests.by_kind.iter();
    float(
        kinds
            .filter(|(kind, _)| is_write(kind))
            .map(|(_, count)| count)
            .sum(),
    )
}

/// All writes, besides those of Leases.
fn besides_leases(requests: &Requests) -> f64 {
    let leases = requests.by_kind.get("worker update leases");
    float(
        requests
            .writes
            .saturating_sub(leases.copied().unwrap_or_default()),
    )
}

fn is_free(worker: &Worker) -> bool {
    let lease = object("leases", KUBE_SYSTEM, ACCOUNT);
    let lease = worker.server.cluster.get(lease);
    let holder = lease
        .as_ref()
        .and_then(|it| it.pointer("/spec/holderIdentity"));
    holder.and_then(Value::as_str).is_none_or(str::is_empty)
}

fn namespace(worker: &Worker) -> String {
    format!("cluster-{}", worker.tenant)
}

fn has_cluster(fleet: &Fleet, worker: &Worker) -> anyhow::Result<()> {
    fleet.management.put(json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace(worker) },
    }))
}

/// The kubeconfig that KKP keeps, with the certificate of a turn.
/// A new certificate for the same user, as KKP renews it.
fn has_kubeconfig(fleet: &Fleet, worker: &Worker) -> anyhow::Result<()> {
    let user = User::service_account(KUBE_SYSTEM, ACCOUNT);
    let kubeconfig = worker.server.front.kubeconfig_with_certificate(&user);
    fleet.management.put(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": "operatingsystemmanager-kubeconfig", "namespace": namespace(worker),
            "creationTimestamp": CREATED,
        },
        "data": { "kubeconfig": STANDARD.encode(kubeconfig) },
    }))
}

/// KKP's Deployment with a number of replicas.
fn scale(fleet: &Fleet, worker: &Worker, replicas: Replicas) -> anyhow::Result<()> {
    // The generation is another one with each change.
    let (replicas, generation) = match replicas {
        Replicas::One => (1, 1),
        Replicas::None => (0, 2),
    };
    let line = json!({
        "command": "/usr/local/bin/osm-controller",
        "args": [
            "-kubeconfig", "/etc/kubernetes/kubeconfig/kubeconfig", "-namespace", "kube-system",
            "-cluster-dns", "169.254.20.10", "-container-runtime", "containerd",
        ],
    });
    let container = json!({
        "name": ACCOUNT, "command": ["/http-prober-bin/http-prober"],
        "args": ["-endpoint", "https://api/healthz", "-command", line.to_string()],
    });
    fleet.management.put(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": ACCOUNT, "namespace": namespace(worker), "generation": generation,
        },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": ACCOUNT } },
            "template": {
                "metadata": { "labels": { "app": ACCOUNT } },
                "spec": { "containers": [container] },
            },
        },
    }))
}
