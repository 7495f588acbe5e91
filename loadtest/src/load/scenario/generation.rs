//! A fleet that a release with another generation of the renderer has left: everything is rendered
//! once more, and written where it says something else.

use std::collections::BTreeSet;

use fake_cluster::{AuditEntry, object};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::making::{compare, halves, latencies, make, make_while, serve_all, until_watched};
use crate::load::{
    fleet::{Fleet, KUBE_SYSTEM, Server, Worker},
    outcome::{Figure, Outcome, count, float},
    requests::Requests,
    served::CLOUD_INIT_SETTINGS,
    stage::Stage,
};

/// Annotation of what is made: the digest of what it was made from, the renderer's generation among
/// it.
const INPUTS: &str = "/metadata/annotations/operatingsystemmanager.k8c.io~1inputs";
const OLDER: &str = "of another generation";
/// The document in a Secret.
const DOCUMENT: &str = "/data/cloud-config";
/// `older` in base64.
const OLDER_DOCUMENT: &str = "b2xkZXI=";
const CONFIGS: &str = "operatingsystemconfigs";

/// What the other generation made of the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bytes {
    /// The same bytes: there is nothing to say but what they were made from.
    Same,
    /// Different bytes: the documents are recreated.
    Others,
}

/// A new generation that renders the same bytes, one that renders others, and machine deployments
/// that appear meanwhile.
pub async fn generation(stage: &mut Stage, outcome: &mut Outcome) -> anyhow::Result<()> {
    serve_all(stage).await?;
    let (making, _) = halves(stage.params.tenants);
    let alone = make(stage, &making).await?;
    stage.settle().await?;
    stage.stop().await?;
    for (name, bytes) in [("same bytes", Bytes::Same), ("other bytes", Bytes::Others)] {
        one_more(stage, outcome, (name, bytes)).await?;
        stage.stop().await?;
    }
    age(&stage.fleet, Bytes::Others)?;
    stage.start().await?;
    until_watched(stage).await?;
    let mut aged = Aged::default();
    let made = make_while(stage, &making, |fleet| aged.is_left(fleet)).await?;
    compare(outcome, alone, latencies(&made)?, "beside a new generation");
    Ok(())
}

/// The manager starts in a fleet of another generation, and nothing else happens.
async fn one_more(
    stage: &mut Stage,
    outcome: &mut Outcome,
    (name, bytes): (&str, Bytes),
) -> anyhow::Result<()> {
    age(&stage.fleet, bytes)?;
    let before = documents(&stage.fleet);
    Requests::take(&stage.fleet);
    let begun = stage.start().await?;
    let mut aged = Aged::default();
    let what = format!("all is rewritten, {name}");
    stage.until(&what, |fleet| !aged.is_left(fleet)).await?;
    stage.settle().await?;
    let took = last_write(&stage.fleet, begun);
    let sample = stage.sample().await?;
    let workers = stage.fleet.workers.iter();
    let told = workers.map(|it| it.server.cluster.count_requests(writes_machine_deployment));
    let told: usize = told.sum();
    let requests = Requests::take(&stage.fleet);
    let workers = stage.fleet.workers.iter();
    let machine_deployments: usize = workers.map(|it| it.machine_deployments.len()).sum();
    let each = |total: u64| float(total) / count(machine_deployments);
    let remade = before.difference(&documents(&stage.fleet)).count();
    let figure = |what: &str, value: f64, unit: &str| {
        let name = format!("{name}: {what}");
        Figure::new(&name, value, unit)
    };
    let remade = figure("documents recreated", count(remade), "");
    let told = figure("writes to machine deployments", count(told), "");
    let writes = each(requests.writes);
    outcome.figures.extend([
        figure("all written", took, "s"),
        figure(
            "requests per machine deployment",
            each(requests.total()),
            "",
        ),
        figure("writes per machine deployment", writes, ""),
        told.wanted(0.0, 0.0),
        match bytes {
            Bytes::Same => remade.wanted(0.0, 0.0),
            Bytes::Others => remade,
        },
    ]);
    outcome.add_sample(name, sample);
    outcome.add_requests(name, requests);
    Ok(())
}

/// Lets everything look as a manager with another generation left it.
fn age(fleet: &Fleet, bytes: Bytes) -> anyhow::Result<()> {
    for worker in &fleet.workers {
        for secret in worker.server.cluster.objects("secrets") {
            age_one(&worker.server, secret, bytes)?;
        }
    }
    for config in fleet.management.cluster.objects(CONFIGS) {
        age_one(&fleet.management, config, Bytes::Same)?;
    }
    Ok(())
}

fn age_one(server: &Server, mut found: Value, bytes: Bytes) -> anyhow::Result<()> {
    let Some(inputs) = found.pointer_mut(INPUTS) else {
        return Ok(());
    };
    *inputs = json!(OLDER);
    if let (Bytes::Others, Some(document)) = (bytes, found.pointer_mut(DOCUMENT)) {
        *document = json!(OLDER_DOCUMENT);
    }
    server.put(found)
}

/// How far the fleet has been looked through: a tenant that is done is not looked at again.
#[derive(Default)]
struct Aged {
    done: usize,
}

impl Aged {
    /// Whether anything is left of the other generation.
    fn is_left(&mut self, fleet: &Fleet) -> bool {
        let left = fleet.workers.iter().skip(self.done);
        self.done += left.take_while(|worker| !is_aged(fleet, worker)).count();
        self.done < fleet.workers.len()
    }
}

fn is_aged(fleet: &Fleet, worker: &Worker) -> bool {
    let management = &fleet.management.cluster;
    worker.machine_deployments.iter().any(|name| {
        let config = format!("{name}-{KUBE_SYSTEM}-config");
        let config = management.get(object(CONFIGS, &worker.tenant, &config));
        let documents = ["bootstrap", "provisioning"].map(|document| {
            let name = format!("{name}-{KUBE_SYSTEM}-{document}-config");
            let secret = object("secrets", CLOUD_INIT_SETTINGS, &name);
            worker.server.cluster.get(secret)
        });
        // What is not there is being recreated.
        let is_aged = |found: &Option<Value>| {
            let inputs = found.as_ref().and_then(|it| it.pointer(INPUTS));
            inputs.is_none_or(|inputs| *inputs == json!(OLDER))
        };
        is_aged(&config) || documents.iter().any(is_aged)
    })
}

/// The uids of all documents: a recreated one has another.
fn documents(fleet: &Fleet) -> BTreeSet<String> {
    let mut uids = BTreeSet::new();
    for worker in &fleet.workers {
        let secrets = worker.server.cluster.objects("secrets");
        let documents = secrets.iter().filter(|it| it.pointer(DOCUMENT).is_some());
        let found = documents.filter_map(|it| it.pointer("/metadata/uid")?.as_str());
        uids.extend(found.map(str::to_owned));
    }
    uids
}

/// Seconds from a moment to the last write of what is made for machine deployments.
fn last_write(fleet: &Fleet, begun: Instant) -> f64 {
    let mut last = begun;
    for server in fleet.servers() {
        let writes = server.cluster.writes();
        let made = writes
            .iter()
            .filter(|it| ["secrets", CONFIGS].contains(&it.target.resource.as_str()));
        last = made.map(|it| it.at).max().unwrap_or(last).max(last);
    }
    last.duration_since(begun).as_secs_f64()
}

fn writes_machine_deployment(request: &AuditEntry) -> bool {
    request.wrote && request.target.resource == "machinedeployments"
}
