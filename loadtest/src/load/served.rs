//! When things happened, as the clusters saw it: a machine deployment was made or changed, both of
//! its documents were there, a worker cluster was asked for the first time.

use std::time::Duration;

use fake_cluster::{AuditEntry, HistoryEntry, Verb, object};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::fleet::{KUBE_SYSTEM, REVISION, Worker};
pub use crate::machine::SETTINGS as CLOUD_INIT_SETTINGS;

/// Annotation of what is made for it: the revision that it was made for.
const MADE_FOR_REVISION: &str = "k8c.io/machine-deployment-revision";
/// Times are taken from the clusters' histories: looking seldom costs no precision.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// From a machine deployment's revision to both of its documents.
#[derive(Clone, Copy, Debug)]
pub struct Serving {
    /// When the machine deployment had the revision.
    pub asked: Instant,
    /// When both documents were there that were made for it.
    pub served: Instant,
}

/// When a revision of a machine deployment was served; `None` while it is not.
pub fn serving(worker: &Worker, name: &str, revision: u64) -> Option<Serving> {
    let revision = revision.to_string();
    let cluster = &worker.server.cluster;
    let of_machine_deployment = cluster.history(worker.machine_deployment(name));
    let asked = first(&of_machine_deployment, REVISION, &revision)?;
    let mut served = asked;
    for document in ["bootstrap", "provisioning"] {
        let secret = format!("{name}-{KUBE_SYSTEM}-{document}-config");
        let history = cluster.history(object("secrets", CLOUD_INIT_SETTINGS, &secret));
        served = served.max(first(&history, MADE_FOR_REVISION, &revision)?);
    }
    Some(Serving { asked, served })
}

/// Waits until a revision of a machine deployment is served.
pub async fn until_served(worker: &Worker, name: &str, revision: u64) -> Serving {
    loop {
        if let Some(serving) = serving(worker, name, revision) {
            return serving;
        }
        sleep(LOOK_INTERVAL).await;
    }
}

/// When an annotation had a value for the first time.
fn first(history: &[HistoryEntry], annotation: &str, value: &str) -> Option<Instant> {
    let has_it = |object: &Value| {
        let annotations = object.pointer("/metadata/annotations");
        annotations
            .and_then(|all| all.get(annotation))
            .and_then(Value::as_str)
            == Some(value)
    };
    let mut entries = history.iter();
    let found = entries.find(|entry| entry.object.as_deref().is_some_and(has_it));
    found.map(|entry| entry.at)
}

/// When the manager began to serve a worker cluster.
pub fn engaged(requests: &[AuditEntry]) -> Option<Instant> {
    requests.iter().find(|it| engages(it)).map(|it| it.at)
}

/// Whether a request tells that a worker cluster is engaged: only then are machine deployments
/// asked for.
pub fn engages(request: &AuditEntry) -> bool {
    let is_list = request.verb == Verb::List && request.code == 200;
    is_list && request.target.resource == "machinedeployments"
}
