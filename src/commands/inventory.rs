//! What an inventory has, and which of it is served. Reads no kubeconfig, and sends no request to
//! worker clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, ObjectMeta},
};
use serde::Serialize;

use super::{
    cluster_client::{ClusterClient, KubeconfigSource},
    selection::Selection,
    tenants,
};
use crate::client::pages;
use crate::fleet::discovery::{
    Settings,
    kkp::{DEPLOYMENT, Manager, ReadSettings, SECRET, UserCluster, cluster_in},
};
use crate::settings::drop_in::deployed::spec_of;

/// One user cluster of a KKP seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its namespace in the seed.
    pub tenant: String,
    /// KKP's name of it.
    pub cluster: String,
    /// The number of replicas that KKP's manager should have. `None` if there is none.
    pub replicas: Option<i32>,
    /// `LeftOut`, `Waiting` if it is to be served and has no WorkerCluster yet, `SettingsRefused`,
    /// or else the state of its WorkerCluster.
    pub state: String,
    /// A sentence about the state.
    pub message: String,
}

/// Returns the user clusters of a KKP seed, in the order of their namespaces.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn kkp(source: &KubeconfigSource, selection: &Selection) -> anyhow::Result<Vec<Row>> {
    let seed = ClusterClient::management(source).await?;
    let clusters = user_clusters(&seed.client, selection).await?;
    let served = tenants::list(source, selection).await?;
    let states: BTreeMap<_, _> = served
        .iter()
        .map(|row| (row.tenant.as_str(), row))
        .collect();
    let read: ReadSettings = Arc::new(spec_of);
    let rows = clusters.into_values().filter_map(|cluster| {
        let state = states.get(cluster.namespace.as_str()).copied();
        row(cluster, state, &read)
    });
    Ok(rows.collect())
}

/// Returns the user clusters in these namespaces, by their namespaces.
pub(super) async fn user_clusters(
    client: &Client,
    selection: &Selection,
) -> anyhow::Result<BTreeMap<String, UserCluster>> {
    let mut clusters = BTreeMap::new();
    for (limit, deployments) in selection.apis::<Deployment>(client) {
        let named = |name| ListParams::default().fields(&format!("metadata.name={name}"));
        let listed = pages::all(&deployments, named(DEPLOYMENT)).await;
        let listed = listed.context("cannot list Deployments")?;
        let secrets: Api<Secret> = match &limit {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let secrets = secrets.list_metadata(&named(SECRET)).await;
        let secrets = secrets.context("cannot list the names of Secrets")?;
        let of = |metadata: &ObjectMeta| metadata.namespace.clone().unwrap_or_default();
        let mut kubeconfigs: BTreeMap<_, _> = secrets
            .items
            .into_iter()
            .map(|found| (of(&found.metadata), found.metadata))
            .collect();
        let undecodable = listed.unreadable.iter();
        let undecodable = undecodable.map(|found| (of(found), Manager::Undecodable));
        let deployed = listed.objects.into_iter().map(|found| {
            let namespace = found.namespace().unwrap_or_default();
            (namespace, Manager::Deployed(Box::new(found)))
        });
        let mut managers: BTreeMap<_, _> = undecodable.chain(deployed).collect();
        let namespaces: BTreeSet<String> =
            managers.keys().chain(kubeconfigs.keys()).cloned().collect();
        for namespace in namespaces {
            let cluster = UserCluster {
                manager: managers.remove(&namespace).unwrap_or(Manager::None),
                secret: kubeconfigs.remove(&namespace),
                namespace: namespace.clone(),
            };
            clusters.insert(namespace, cluster);
        }
    }
    Ok(clusters)
}

fn row(cluster: UserCluster, served: Option<&tenants::Row>, read: &ReadSettings) -> Option<Row> {
    let id = cluster_in(&cluster.namespace)?.to_owned();
    let (state, message) = match (cluster.settings(read), served) {
        (Err(why), _) => ("LeftOut".to_owned(), why.to_string()),
        (Ok(Settings::Unusable(why)), None) => ("SettingsRefused".to_owned(), why),
        (Ok(Settings::Unusable(why)), Some(served)) => {
            let message = format!("it keeps its settings, because KKP's cannot be used: {why}");
            (served.state.clone(), message)
        }
        (Ok(_), Some(served)) => (served.state.clone(), served.message.clone()),
        (Ok(_), None) => {
            let message = "no manager has created its WorkerCluster yet: does it run with \
                           --inventory=kkp?";
            ("Waiting".to_owned(), message.to_owned())
        }
    };
    Some(Row {
        replicas: cluster.manager.replicas(),
        tenant: cluster.namespace,
        cluster: id,
        state,
        message,
    })
}
