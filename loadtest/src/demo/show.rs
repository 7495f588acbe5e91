//! What happened: tenants, the objects that were made for them, one document, one trace; and how
//! to look around. What is secret in a document is left out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use super::cluster::DemoCluster;
use super::document::{self, Document};
use super::folder::Folder;
use super::screen::{Look, Screen};
use super::tenants::Served;
use crate::collector::{Collector, Span};
use crate::control_plane::Assets;
use crate::machine::SETTINGS;

/// A screen or two; the whole document is one command away.
const DOCUMENT_LINES_MAX: usize = 80;
const REQUEST_ATTRIBUTES: [&str; 3] = [
    "osm.cluster.kind=",
    "url.path=",
    "http.response.status_code=",
];
/// The root of the traces that are worth a look.
const RECONCILE: &str = "reconcile machine deployment";
/// Spans are sent in batches, a moment after they end.
const TRACE_TIMEOUT: Duration = Duration::from_secs(10);

/// What there is to show.
pub struct Params<'a> {
    /// Where it is shown.
    pub screen: Screen,
    /// The management cluster.
    pub management: &'a DemoCluster,
    /// The worker clusters, in the order of the tenants.
    pub workers: &'a [DemoCluster],
    /// What became of each tenant.
    pub served: &'a [Served],
    /// Who has received the traces.
    pub collector: &'a Collector,
}

/// Shows all of it.
pub async fn everything(params: &Params<'_>) -> anyhow::Result<()> {
    tenants(params);
    configs(params).await?;
    let mut first = None;
    params
        .screen
        .heading("Secrets that nodes boot from, each in its own worker cluster");
    let mut rows = Vec::new();
    for worker in params.workers {
        let secrets = secrets(worker).await?;
        rows.extend(secrets.iter().map(|secret| row(worker, secret)));
        first = first.or_else(|| Some((worker.name(), document::first(&secrets)?)));
    }
    let titles = ["CLUSTER", "NAMESPACE", "SECRET", "BYTES"];
    params.screen.table(titles, &rows);
    let (cluster, document) = first.context("no worker cluster has a bootstrap Secret")?;
    bootstrap(params.screen, cluster, &document);
    trace(params).await
}

fn tenants(params: &Params<'_>) {
    params.screen.heading("Tenants");
    let rows: Vec<[String; 6]> = params
        .served
        .iter()
        .map(|served| {
            let (ready, reason) = served.ready();
            [
                served.namespace.clone(),
                served.name.clone(),
                ready,
                reason,
                served.text("/version"),
                served.text("/served"),
            ]
        })
        .collect();
    let titles = ["TENANT", "CLUSTER", "READY", "REASON", "VERSION", "SERVED"];
    params.screen.table(titles, &rows);
}

/// Configs and profiles, which only the management cluster has.
async fn configs(params: &Params<'_>) -> anyhow::Result<()> {
    let client = params.management.client().await?;
    let mut rows = Vec::new();
    for (kind, plural) in [
        ("OperatingSystemProfile", "operatingsystemprofiles"),
        ("OperatingSystemConfig", "operatingsystemconfigs"),
    ] {
        let resource = super::tenants::resource(kind, plural);
        let objects: Api<kube::api::DynamicObject> = Api::all_with(client.clone(), &resource);
        for object in objects.list_metadata(&ListParams::default()).await? {
            rows.push([
                object.namespace().unwrap_or_default(),
                kind.to_owned(),
                object.name_any(),
            ]);
        }
    }
    rows.sort();
    params
        .screen
        .heading("Profiles and configs, in the management cluster only");
    params.screen.table(["NAMESPACE", "KIND", "NAME"], &rows);
    Ok(())
}

/// What the manager has made in a worker cluster.
async fn secrets(worker: &DemoCluster) -> anyhow::Result<Vec<Secret>> {
    let client = worker.client().await?;
    let fetched: Api<Secret> = Api::namespaced(client.clone(), SETTINGS);
    let mut found = fetched.list(&ListParams::default()).await?.items;
    let tokens: Api<Secret> = Api::namespaced(client, "kube-system");
    let with_label = ListParams::default().labels("machinedeployment.k8s.io/name");
    found.extend(tokens.list(&with_label).await?.items);
    Ok(found)
}

fn row(worker: &DemoCluster, secret: &Secret) -> [String; 4] {
    let data = secret.data.iter().flat_map(BTreeMap::values);
    let bytes: usize = data.map(|value| value.0.len()).sum();
    [
        worker.name().to_owned(),
        secret.namespace().unwrap_or_default(),
        secret.name_any(),
        bytes.to_string(),
    ]
}

fn bootstrap(screen: Screen, cluster: &str, document: &Document) {
    let Document { secret, key, text } = document;
    screen.heading(&format!(
        "What a new machine of {cluster} boots from: {secret}, key {key}, files decoded"
    ));
    for line in text.lines().take(DOCUMENT_LINES_MAX) {
        screen.print(&format!("  {line}"));
    }
    let left = text.lines().count().saturating_sub(DOCUMENT_LINES_MAX);
    if left > 0 {
        screen.print(&screen.paint(Look::Dim, &format!("  … {left} more lines")));
    }
}

/// The longest trace of the first tenant: the one that made everything.
async fn trace(params: &Params<'_>) -> anyhow::Result<()> {
    let first = params.served.first().context("there is a tenant")?;
    let last_trace = first.text("/machineDeployments/0/traceId");
    // The trace that the status names is the last one: with its root, all others have come.
    let have_come = |spans: &[Span]| {
        let mut of_trace = spans.iter().filter(|span| span.trace_id == last_trace);
        of_trace.any(|span| span.parent_span_id.is_none())
    };
    params
        .collector
        .wait_for(have_come, TRACE_TIMEOUT)
        .await
        .with_context(|| format!("waiting for trace {last_trace}"))?;
    let traces = params.collector.traces();
    let of_first = traces.iter().filter(|(_, spans)| {
        spans.iter().any(|span| {
            let tenant = span.attributes.get("tenant");
            span.name == RECONCILE && tenant == Some(&first.namespace)
        })
    });
    let (trace_id, _) = of_first
        .max_by_key(|(_, spans)| spans.len())
        .context("no trace is of a reconcile")?;
    params.screen.heading(&format!(
        "How {} of {} was served: one reconcile, one trace",
        first.text("/machineDeployments/0/name"),
        first.name
    ));
    for line in params.collector.tree(trace_id).lines() {
        // Of requests, the values speak for themselves.
        let line = REQUEST_ATTRIBUTES
            .iter()
            .fold(line.to_owned(), |line, name| line.replace(name, ""));
        params.screen.print(&format!("  {line}"));
    }
    Ok(())
}

/// Commands that can be copied.
pub struct LookAround<'a> {
    /// Where they are printed.
    pub screen: Screen,
    /// Where the kubeconfigs are.
    pub folder: &'a Folder,
    /// What stands before each command, where the clusters are in a network of their own.
    pub prefix: &'a str,
}

impl LookAround<'_> {
    /// Prints them.
    pub fn print(&self, clusters: &[DemoCluster], (log, admin): (&Path, &str)) {
        let Self { screen, prefix, .. } = self;
        screen.heading("Look around");
        let Some((management, workers)) = clusters.split_first() else {
            return;
        };
        self.get(management, "workerclusters -A");
        self.get(
            management,
            "operatingsystemprofiles,operatingsystemconfigs -A",
        );
        for worker in workers {
            self.get(worker, "machinedeployments -A");
            self.get(worker, &format!("secrets -n {SETTINGS}"));
        }
        if prefix.is_empty() {
            screen.print(&format!("  http://{admin}/fleet   in a browser"));
        } else {
            self.get(workers.first().unwrap_or(management), "nodes,pods -o wide");
        }
        screen.print(&format!("  {prefix}curl -s http://{admin}/metrics"));
        screen.print(&format!("  tail -f {}", log.display()));
        screen.print(&screen.paint(Look::Dim, "\nEverything stays up until ^C."));
    }

    fn get(&self, cluster: &DemoCluster, what: &str) {
        let kubeconfig = self.folder.kubeconfig(cluster);
        self.screen.print(&format!(
            "  {}{} --kubeconfig {} get {what}",
            self.prefix,
            kubectl().display(),
            kubeconfig.display()
        ));
    }
}

/// The user's own kubectl, or the one that was built with the control plane.
#[expect(
    clippy::disallowed_methods,
    reason = "only the environment knows where kubectl is"
)]
fn kubectl() -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    let is_installed = std::env::split_paths(&path).any(|it| it.join("kubectl").is_file());
    let built = Assets::built().filter(|_| !is_installed);
    built.map_or_else(|| PathBuf::from("kubectl"), |built| built.binary("kubectl"))
}
