//! Lists the fleet from its WorkerClusters, and says of those that no replica serves any more that
//! they are not. Sends no request to worker clusters.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    ResourceExt,
    api::ObjectMeta,
    core::DeserializeGuard,
    runtime::{
        WatchStreamExt as _,
        watcher::{self, Event, watcher},
    },
};
use serde::Serialize;

use super::{
    cluster_client::{ClusterClient, KubeconfigSource, cannot_list, ensure_namespace},
    managers::{Fleets, Serving},
    selection::Selection,
};
use crate::api::{
    change::Class,
    condition::ConditionType,
    reason::{Reason, Severity},
    worker_cluster::{FleetId, WorkerCluster},
};
use crate::client::watch::covers;
use crate::telemetry::chain::whole;
use crate::tenant::id::TenantId;

/// How often it is read again, while watching, which replicas run.
const REREAD: Duration = Duration::from_secs(10);

/// One tenant, according to its WorkerCluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The tenant's namespace.
    pub tenant: String,
    /// The name of the WorkerCluster.
    pub name: String,
    /// `Ready`, or the reason why it is not. `NoManager` or `NotWatched` if nobody serves it, so
    /// that its WorkerCluster says what was.
    pub state: String,
    /// The time since which it is ready, or is not, according to its WorkerCluster.
    pub since: Option<Timestamp>,
    /// The version of the worker cluster's API server.
    pub version: Option<String>,
    /// The number of machine deployments that are served. This and what else is known only while
    /// the cluster is served is `None` otherwise.
    pub served: Option<u32>,
    /// The number of machine deployments.
    pub machine_deployments: Option<u32>,
    /// The number that render a default profile that is older than the manager's.
    pub outdated: Option<u32>,
    /// The number whose machines may have an older document, by what it takes to bring the current
    /// one into effect on them; of the hundred that a status can contain.
    pub behind: Option<BTreeMap<Class, usize>>,
    /// The number that are refused or failing, of the hundred that a status can contain.
    pub failing: Option<u32>,
    /// The time at which the WorkerCluster was created.
    pub created: Option<Timestamp>,
    /// The API server.
    pub server: Option<String>,
    /// The fleet that writes its status.
    pub fleet: Option<String>,
    /// The namespace of that fleet's Leases.
    pub fleet_namespace: Option<String>,
    /// The replica of that fleet that serves it, according to the replicas' Leases.
    pub replica: Option<String>,
    /// True if the cluster is paused.
    pub paused: bool,
    /// A sentence about the state.
    pub message: String,
}

impl Row {
    /// Returns how bad its state is. One that is no reason of this release may be anything.
    pub fn severity(&self) -> Severity {
        Reason::named(&self.state).map_or(Severity::Error, Reason::severity)
    }

    /// Returns the number of machine deployments that are neither served nor failing.
    pub fn waiting(&self) -> Option<u32> {
        let others = self.served?.saturating_add(self.failing?);
        Some(self.machine_deployments?.saturating_sub(others))
    }
}

/// The tenants.
#[derive(Clone, Debug)]
pub struct Listed {
    /// One row for each.
    pub rows: Vec<Row>,
    /// Says why it is not known for all whether somebody serves them.
    pub remark: Option<String>,
}

/// A change while watching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantEvent {
    /// All tenants, once at the beginning.
    Listed(Vec<Row>),
    /// A tenant that is new, or that has changed.
    Row(Box<Row>),
    /// The WorkerCluster was deleted: tenant and name.
    Gone(String, String),
}

/// Receives the changes. An error ends the watch.
pub type EventHandler = dyn FnMut(TenantEvent) -> anyhow::Result<()> + Send;

/// A tenant's namespace, and the name of its WorkerCluster.
type Key = (String, String);

/// Returns the tenants, in the order of their namespaces. `manager` is the manager's namespace.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn list(
    source: &KubeconfigSource,
    selection: &Selection,
    manager: &str,
) -> anyhow::Result<Listed> {
    let management = ClusterClient::management(source).await?;
    let listed = selection.worker_clusters(&management.client).await?;
    let fleets = match Fleets::read(&management.client, manager).await {
        Ok(fleets) => {
            let owns = listed.objects.iter();
            Ok(fleets.with_those_of(&management.client, owns).await)
        }
        Err(error) => Err(error),
    };
    let known = fleets.as_ref().ok();
    let served = (listed.objects.iter()).map(|own| serving(row(own), known));
    let mut rows: Vec<Row> = served
        .chain(listed.unreadable.iter().map(unreadable_row))
        .collect();
    rows.sort_by_cached_key(key);
    let remark = fleets.err();
    let remark = remark.map(|error| whole(error.as_ref()).to_string());
    Ok(Listed { rows, remark })
}

/// Returns a row with who serves the tenant. What the status of one that nobody serves says was
/// true once.
fn serving(mut row: Row, fleets: Option<&Fleets>) -> Row {
    let Some(fleets) = fleets else {
        return row;
    };
    let fleet = row.fleet.clone().map(|name| FleetId {
        name,
        namespace: row.fleet_namespace.clone(),
    });
    match fleets.serving(&TenantId::new(&row.tenant), fleet.as_ref()) {
        Serving::By(replica) => row.replica = Some(replica),
        Serving::Elsewhere(_) | Serving::Unknown => {}
        Serving::Nobody(unserved, why) => {
            row.message = format!("{why}; before that: {}", row.state);
            unserved.as_str().clone_into(&mut row.state);
            (row.served, row.outdated, row.failing) = (None, None, None);
            row.behind = None;
        }
    }
    row
}

/// Returns the machine deployments that the statuses of tenants name, as `namespace/name`.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn machine_deployments(
    source: &KubeconfigSource,
    selection: &Selection,
) -> anyhow::Result<BTreeSet<String>> {
    let management = ClusterClient::management(source).await?;
    let listed = selection.worker_clusters(&management.client).await?;
    let statuses = listed.objects.into_iter().filter_map(|own| own.status);
    let entries = statuses.flat_map(|status| status.machine_deployments);
    Ok(entries.map(|entry| entry.name).collect())
}

/// Passes all tenants to `handler`, and then every change, until `handler` returns an error.
///
/// # Errors
///
/// The first list fails, or `handler` returns an error.
pub async fn watch(
    source: &KubeconfigSource,
    (selection, manager): (&Selection, &str),
    handler: &mut EventHandler,
) -> anyhow::Result<()> {
    let client = ClusterClient::management(source).await?.client;
    let apis = selection.apis::<WorkerCluster>(&client);
    let mut to_list = apis.len();
    let watches = apis.into_iter().map(|(limit, api)| {
        let config = watcher::Config {
            label_selector: selection.labels.clone(),
            ..watcher::Config::default()
        };
        let events = watcher(api, config).default_backoff();
        events.map(move |event| (limit.clone(), event)).boxed()
    });
    let mut events = stream::select_all(watches);
    let mut known = Known::new(Fleets::read(&client, manager).await.ok());
    let mut listed = BTreeSet::new();
    let mut reread = tokio::time::interval(REREAD);
    loop {
        let next = tokio::select! {
            next = events.next() => next,
            _ = reread.tick(), if to_list == 0 => {
                known.served_by(Fleets::read(&client, manager).await.ok(), handler)?;
                continue;
            }
        };
        let Some((limit, event)) = next else {
            return Ok(());
        };
        match event {
            Ok(Event::Init) => listed.retain(|key: &Key| !covers(limit.as_ref(), &key.0)),
            Ok(Event::InitApply(found)) => {
                let row = row_of(&found);
                listed.insert(key(&row));
                if to_list > 0 {
                    known.keep(row);
                } else {
                    known.update(row, handler)?;
                }
            }
            Ok(Event::InitDone) if to_list > 0 => {
                to_list -= 1;
                if let (Some(namespace), true) = (&limit, listed.is_empty()) {
                    ensure_namespace(&client, namespace).await?;
                }
                if to_list == 0 {
                    handler(TenantEvent::Listed(known.shown()))?;
                }
            }
            Ok(Event::InitDone) => {
                let is_gone = |key: &Key| covers(limit.as_ref(), &key.0) && !listed.contains(key);
                for (tenant, name) in known.remove(is_gone) {
                    handler(TenantEvent::Gone(tenant, name))?;
                }
            }
            Ok(Event::Apply(found)) => known.update(row_of(&found), handler)?,
            Ok(Event::Delete(found)) => {
                let (tenant, name) = key(&row_of(&found));
                known.remove(|it| *it == (tenant.clone(), name.clone()));
                handler(TenantEvent::Gone(tenant, name))?;
            }
            // An error at first is a mistake of the user; later it is transient.
            Err(watcher::Error::InitialListFailed(error)) if to_list > 0 => {
                return Err(cannot_list::<WorkerCluster>(error));
            }
            Err(_) => {}
        }
    }
}

/// The last known rows, as the WorkerClusters say them, and who serves the tenants.
struct Known {
    rows: BTreeMap<Key, Row>,
    fleets: Option<Fleets>,
}

impl Known {
    fn new(fleets: Option<Fleets>) -> Self {
        let rows = BTreeMap::new();
        Self { rows, fleets }
    }

    fn keep(&mut self, row: Row) {
        self.rows.insert(key(&row), row);
    }

    fn shown(&self) -> Vec<Row> {
        let rows = self.rows.values().cloned();
        rows.map(|row| serving(row, self.fleets.as_ref())).collect()
    }

    /// Passes a row to `handler` if it is not the known one.
    fn update(&mut self, row: Row, handler: &mut EventHandler) -> anyhow::Result<()> {
        if self.rows.get(&key(&row)) != Some(&row) {
            let shown = serving(row.clone(), self.fleets.as_ref());
            handler(TenantEvent::Row(Box::new(shown)))?;
            self.keep(row);
        }
        Ok(())
    }

    /// Passes the rows that change with who serves the tenants.
    fn served_by(
        &mut self,
        fleets: Option<Fleets>,
        handler: &mut EventHandler,
    ) -> anyhow::Result<()> {
        let before = self.shown();
        self.fleets = fleets;
        for (before, now) in before.into_iter().zip(self.shown()) {
            if before != now {
                handler(TenantEvent::Row(Box::new(now)))?;
            }
        }
        Ok(())
    }

    /// Removes rows.
    fn remove(&mut self, is_gone: impl Fn(&Key) -> bool) -> Vec<Key> {
        let gone = self.rows.extract_if(.., |key, _| is_gone(key));
        gone.map(|(key, _)| key).collect()
    }
}

fn key(row: &Row) -> Key {
    (row.tenant.clone(), row.name.clone())
}

fn row_of(found: &DeserializeGuard<WorkerCluster>) -> Row {
    match &found.0 {
        Ok(found) => row(found),
        Err(unreadable) => unreadable_row(&unreadable.metadata),
    }
}

/// Returns the row of a WorkerCluster of which only the metadata can be decoded.
fn unreadable_row(found: &ObjectMeta) -> Row {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let message = "this version cannot decode it: compare it with the CRD (osm crds), or use the \
                   version of osm that wrote it";
    Row {
        tenant: text(&found.namespace),
        name: text(&found.name),
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
    let listed = found.condition(ConditionType::MachineDeploymentsServed);
    let is_served = listed.is_none_or(|it| it.status != "Unknown");
    let entries = status.machine_deployments.iter();
    let failing = entries.filter(|entry| entry.state.is_failing()).count();
    let behind = status.behind();
    Row {
        tenant: found.namespace().unwrap_or_default(),
        name: found.name_any(),
        state: ready.map_or_else(|| "Unknown".to_owned(), |it| it.reason.clone()),
        since: ready.map(|it: &Condition| it.last_transition_time.0),
        version: status.version,
        served: served.filter(|_| is_served),
        machine_deployments: all,
        outdated: status.outdated.filter(|_| is_served),
        behind: is_served.then_some(behind),
        failing: u32::try_from(failing).ok().filter(|_| is_served),
        created: found.creation_timestamp().map(|time| time.0),
        server: status.server,
        fleet: status.fleet,
        fleet_namespace: status.fleet_namespace,
        replica: None,
        paused: found.spec.paused,
        message: ready.map_or_else(
            || "no condition was reported yet: osm doctor says why".to_owned(),
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
        assert_eq!((row.outdated, row.failing), (Some(1), Some(1)));
    }

    #[test]
    fn one_that_nobody_has_spoken_of_says_so() {
        let found = WorkerCluster::new(
            "berlin",
            serde_json::from_value(json!({ "kubeconfigSecretRef": { "name": "berlin" } })).unwrap(),
        );
        let row = row(&found);
        assert_eq!(row.state, "Unknown");
        assert!(row.message.contains("osm doctor says why"));
    }
}
