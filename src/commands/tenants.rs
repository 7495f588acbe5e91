//! Lists the fleet from its WorkerClusters. Reads nothing else, and sends no request to worker
//! clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api, Client, Resource as _, ResourceExt,
    api::ObjectMeta,
    core::{DeserializeGuard, error_boundary::InvalidObject},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use serde::Serialize;

use super::cluster_client::{
    ClusterClient, KubeconfigSource, cannot_list, ensure_namespace, list_own,
};
use crate::api::{
    condition::ConditionType,
    worker_cluster::{MachineDeploymentState, WorkerCluster},
};

/// One tenant, according to its WorkerCluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The tenant's namespace.
    pub tenant: String,
    /// The name of the WorkerCluster.
    pub name: String,
    /// `Ready`, or the reason why it is not.
    pub state: String,
    /// The time since which it is ready, or is not.
    pub since: Option<Timestamp>,
    /// The version of the worker cluster's API server.
    pub version: Option<String>,
    /// The number of machine deployments that are served.
    pub served: Option<u32>,
    /// The number of machine deployments.
    pub machine_deployments: Option<u32>,
    /// The number that render a default profile that is older than the manager's.
    pub outdated: Option<u32>,
    /// The number that are refused or failing, of the hundred that a status can contain.
    pub failing: usize,
    /// The time at which the WorkerCluster was created.
    pub created: Option<Timestamp>,
    /// The API server.
    pub server: Option<String>,
    /// True if the cluster is paused.
    pub paused: bool,
    /// A sentence about the state.
    pub message: String,
}

/// The tenants to list.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Access to the management cluster.
    pub management: KubeconfigSource,
    /// The namespace of the only tenant to list; `None` for all tenants.
    pub namespace: Option<String>,
}

/// A change while watching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The current state of a tenant.
    Row(Box<Row>),
    /// The WorkerCluster was deleted: tenant and name.
    Gone(String, String),
}

/// Receives the changes. An error ends the watch.
pub type Hear = dyn FnMut(News) -> anyhow::Result<()> + Send;

/// The last known rows, by tenant and name.
type Known = BTreeMap<(String, String), Row>;

/// Returns every tenant, in the order of their namespaces.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn list(selection: &Selection) -> anyhow::Result<Vec<Row>> {
    let management = ClusterClient::management(&selection.management).await?;
    let api = api(&management.client, selection);
    let listed = list_own(&api, "WorkerClusters").await?;
    let unreadable = listed.unreadable.iter().map(unreadable_row);
    let rows = listed.objects.iter().map(row).chain(unreadable);
    let rows: Known = rows
        .map(|row| ((row.tenant.clone(), row.name.clone()), row))
        .collect();
    if let (Some(namespace), true) = (&selection.namespace, rows.is_empty()) {
        ensure_namespace(&management.client, namespace).await?;
    }
    Ok(rows.into_values().collect())
}

/// Passes all tenants to `hear`, and then every change, until `hear` returns an error.
///
/// # Errors
///
/// The first list fails, or `hear` returns an error.
pub async fn watch(selection: &Selection, hear: &mut Hear) -> anyhow::Result<()> {
    let management = ClusterClient::management(&selection.management).await?;
    let api = api(&management.client, selection);
    let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff());
    let mut known = Known::new();
    let mut listed = BTreeSet::new();
    let mut has_begun = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(found)) => {
                listed.insert(key(found.meta()));
                update(&mut known, row_of(&found.0), hear)?;
            }
            Ok(Event::InitDone) => {
                if let (Some(namespace), true, false) =
                    (&selection.namespace, known.is_empty(), has_begun)
                {
                    ensure_namespace(&management.client, namespace).await?;
                }
                has_begun = true;
                for (key, _) in known.extract_if(.., |key, _| !listed.contains(key)) {
                    hear(News::Gone(key.0, key.1))?;
                }
            }
            Ok(Event::Apply(found)) => update(&mut known, row_of(&found.0), hear)?,
            Ok(Event::Delete(found)) => {
                known.remove(&key(found.meta()));
                let (tenant, name) = key(found.meta());
                hear(News::Gone(tenant, name))?;
            }
            // An error at first is a mistake of the user; later it is transient.
            Err(watcher::Error::InitialListFailed(error)) if !has_begun => {
                return Err(cannot_list(error, "WorkerClusters"));
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Passes a row to `hear` if it is not the known one.
fn update(known: &mut Known, row: Row, hear: &mut Hear) -> anyhow::Result<()> {
    let key = (row.tenant.clone(), row.name.clone());
    if known.get(&key) != Some(&row) {
        hear(News::Row(Box::new(row.clone())))?;
        known.insert(key, row);
    }
    Ok(())
}

fn api(client: &Client, selection: &Selection) -> Api<DeserializeGuard<WorkerCluster>> {
    match &selection.namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

fn key(found: &ObjectMeta) -> (String, String) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&found.namespace), text(&found.name))
}

fn row_of(found: &Result<WorkerCluster, InvalidObject>) -> Row {
    match found {
        Ok(found) => row(found),
        Err(unreadable) => unreadable_row(&unreadable.metadata),
    }
}

/// Returns the row of a WorkerCluster of which only the metadata can be decoded.
fn unreadable_row(found: &ObjectMeta) -> Row {
    let (tenant, name) = key(found);
    let message = "this version cannot decode it: compare it with the CRD (osm crds), or use the \
                   version of osm that wrote it";
    Row {
        tenant,
        name,
        state: "Unreadable".to_owned(),
        created: found.creation_timestamp.as_ref().map(|time| time.0),
        message: message.to_owned(),
        ..Row::default()
    }
}

fn row(found: &WorkerCluster) -> Row {
    let status = found.status.clone().unwrap_or_default();
    let ready = found.condition(ConditionType::Ready);
    let (served, all) = counts(status.served.as_deref());
    let failing = status.machine_deployments.iter().filter(|entry| {
        [
            MachineDeploymentState::Refused,
            MachineDeploymentState::Failing,
        ]
        .contains(&entry.state)
    });
    Row {
        tenant: found.namespace().unwrap_or_default(),
        name: found.name_any(),
        state: ready.map_or_else(|| "Unknown".to_owned(), |it| it.reason.clone()),
        since: ready.map(|it: &Condition| it.last_transition_time.0),
        version: status.version,
        served,
        machine_deployments: all,
        outdated: status.outdated,
        failing: failing.count(),
        created: found.creation_timestamp().map(|time| time.0),
        server: status.server,
        paused: found.spec.paused,
        message: ready.map_or_else(
            || "nobody has said anything about it; does the manager run?".to_owned(),
            |it| it.message.clone(),
        ),
    }
}

/// Parses counts such as `2/3`.
fn counts(served: Option<&str>) -> (Option<u32>, Option<u32>) {
    let pair = served.and_then(|served| served.split_once('/'));
    pair.map_or((None, None), |(served, all)| {
        (served.parse().ok(), all.parse().ok())
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_says_what_the_status_says() {
        let found: WorkerCluster = serde_json::from_value(json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
            "metadata": { "name": "berlin", "namespace": "tenant-berlin" },
            "spec": { "kubeconfigSecretRef": { "name": "berlin" } },
            "status": {
                "served": "2/3", "outdated": 1,
                "conditions": [{
                    "type": "Ready", "status": "False", "reason": "SomeNotServed",
                    "message": "1 not served", "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
                "machineDeployments": [{
                    "name": "kube-system/lost", "state": "Refused", "reason": "ProfileNotFound",
                    "since": "2026-01-01T00:00:00Z",
                }],
            },
        }))
        .unwrap();
        let row = row(&found);
        assert_eq!(row.state, "SomeNotServed");
        assert_eq!((row.served, row.machine_deployments), (Some(2), Some(3)));
        assert_eq!((row.outdated, row.failing), (Some(1), 1));
    }

    #[test]
    fn one_that_nobody_has_spoken_of_says_so() {
        let found = WorkerCluster::new(
            "berlin",
            serde_json::from_value(json!({ "kubeconfigSecretRef": { "name": "berlin" } })).unwrap(),
        );
        let row = row(&found);
        assert_eq!(row.state, "Unknown");
        assert!(row.message.contains("does the manager run"));
    }
}
