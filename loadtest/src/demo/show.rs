//! What happened: tenants, the objects that were made for them, one document, one trace; and how
//! to look around. What is secret in a document is left out.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use super::cluster::DemoCluster;
use super::folder::Folder;
use super::screen::{Look, Screen};
use super::tenants::Served;
use crate::collector::Collector;

/// Where nodes fetch what they boot from.
const CLOUD_INIT_SETTINGS: &str = "cloud-init-settings";
/// Where bootstrap tokens are.
const KUBE_SYSTEM: &str = "kube-system";
const BOOTSTRAP_SUFFIX: &str = "-bootstrap-config";
const DOCUMENT_KEY: &str = "cloud-config";
/// What stands in place of a secret.
const REDACTED: &str = "<redacted>";
/// Shorter values are words such as `true`, not secrets.
const SECRET_BYTES_MIN: usize = 12;
/// A screen or two; the whole document is one command away.
const DOCUMENT_LINES_MAX: usize = 60;
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
        first = first.or_else(|| document(worker, &secrets));
    }
    let titles = ["CLUSTER", "NAMESPACE", "SECRET", "BYTES"];
    params.screen.table(titles, &rows);
    let document = first.context("no worker cluster has a bootstrap Secret")?;
    bootstrap(params.screen, &document);
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
    let fetched: Api<Secret> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let mut found = fetched.list(&ListParams::default()).await?.items;
    let tokens: Api<Secret> = Api::namespaced(client, KUBE_SYSTEM);
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

/// A document that is safe to show, and where it is from.
struct Document {
    cluster: String,
    secret: String,
    text: String,
}

fn document(worker: &DemoCluster, secrets: &[Secret]) -> Option<Document> {
    let bootstrap = secrets.iter().find(|secret| {
        let name = secret.name_any();
        name.ends_with(BOOTSTRAP_SUFFIX) && !name.contains("-kubelet-")
    })?;
    let bytes = &bootstrap.data.as_ref()?.get(DOCUMENT_KEY)?.0;
    Some(Document {
        cluster: worker.name().to_owned(),
        secret: bootstrap.name_any(),
        text: redacted(&String::from_utf8_lossy(bytes), &values(secrets)),
    })
}

/// Everything in the cluster's Secrets that a document might repeat, but the documents themselves.
fn values(secrets: &[Secret]) -> Vec<String> {
    let with_tokens = secrets.iter().filter(|secret| {
        matches!(
            secret.type_.as_deref(),
            Some("kubernetes.io/service-account-token" | "bootstrap.kubernetes.io/token")
        )
    });
    let named = with_tokens
        .flat_map(|secret| secret.data.iter().flatten())
        .filter(|(key, _)| matches!(key.as_str(), "token" | "token-secret"));
    named
        .map(|(_, value)| String::from_utf8_lossy(&value.0).into_owned())
        .collect()
}

/// The text without these values, as they are or in base64.
fn redacted(text: &str, values: &[String]) -> String {
    let long = values.iter().filter(|value| value.len() >= SECRET_BYTES_MIN);
    long.fold(text.to_owned(), |text, value| {
        text.replace(value, REDACTED)
            .replace(&STANDARD.encode(value), REDACTED)
    })
}

fn bootstrap(screen: Screen, document: &Document) {
    let Document {
        cluster,
        secret,
        text,
    } = document;
    screen.heading(&format!(
        "What a new machine of {cluster} gets: {secret}, key {DOCUMENT_KEY}"
    ));
    for line in text.lines().take(DOCUMENT_LINES_MAX) {
        screen.print(&format!("  {line}"));
    }
    let count = text.lines().count();
    if count > DOCUMENT_LINES_MAX {
        let left = count - DOCUMENT_LINES_MAX;
        screen.print(&screen.paint(Look::Dim, &format!("  … and {left} lines more")));
    }
}

/// The trace that the status of the first tenant names.
async fn trace(params: &Params<'_>) -> anyhow::Result<()> {
    let first = params.served.first().context("there is a tenant")?;
    let trace_id = first.text("/machineDeployments/0/traceId");
    // The root ends last, and comes last.
    let is_whole = |spans: &[crate::collector::Span]| {
        let mut of_trace = spans.iter().filter(|span| span.trace_id == trace_id);
        of_trace.any(|span| span.parent_span_id.is_none())
    };
    params
        .collector
        .wait_for(is_whole, TRACE_TIMEOUT)
        .await
        .with_context(|| format!("waiting for trace {trace_id}"))?;
    params.screen.heading(&format!(
        "How {} was served: one reconcile, one trace",
        first.text("/machineDeployments/0/name")
    ));
    for line in params.collector.tree(&trace_id).lines() {
        params.screen.print(&format!("  {line}"));
    }
    Ok(())
}

/// Prints commands that can be copied.
pub fn how_to_look_around(
    screen: Screen,
    folder: &Folder,
    clusters: &[DemoCluster],
    (log, admin): (&Path, &str),
) {
    screen.heading("Look around");
    let kubectl = kubectl();
    let kubectl = kubectl.display();
    let get = |cluster: &DemoCluster, what: &str| {
        let kubeconfig = folder.kubeconfig(cluster);
        screen.print(&format!(
            "  {kubectl} --kubeconfig {} get {what}",
            kubeconfig.display()
        ));
    };
    let Some((management, workers)) = clusters.split_first() else {
        return;
    };
    get(management, "workerclusters -A");
    get(management, "operatingsystemprofiles,operatingsystemconfigs -A");
    for worker in workers {
        get(worker, "machinedeployments -A");
        get(worker, &format!("secrets -n {CLOUD_INIT_SETTINGS}"));
    }
    screen.print(&format!("  curl -s http://{admin}/metrics"));
    screen.print(&format!("  tail -f {}", log.display()));
    screen.print(&screen.paint(Look::Dim, "\nEverything stays up until ^C."));
}

/// The user's own kubectl, or the one that was built with the control plane.
#[expect(
    clippy::disallowed_methods,
    reason = "only the environment knows where kubectl is"
)]
fn kubectl() -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    let built = super::repository().join("target/kube");
    let is_installed = std::env::split_paths(&path).any(|it| it.join("kubectl").is_file());
    if !is_installed && built.join("kubectl").is_file() {
        return built.join("kubectl");
    }
    PathBuf::from("kubectl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_redacted_as_it_is_and_in_base64() {
        let value = "a-long-enough-token".to_owned();
        let text = format!("plain {value} coded {} short true", STANDARD.encode(&value));
        assert_eq!(
            redacted(&text, &[value, "true".to_owned()]),
            "plain <redacted> coded <redacted> short true"
        );
    }
}
