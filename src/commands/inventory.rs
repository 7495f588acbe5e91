//! What an inventory has, and which of it is served. Reads no kubeconfig, and sends no request to
//! worker clusters.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Secret};
use kube::{Api, Client, ResourceExt, api::ListParams};
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
    let rows = clusters.into_iter().filter_map(|cluster| {
        let state = states.get(cluster.namespace.as_str()).copied();
        row(cluster, state, &read)
    });
    Ok(rows.collect())
}

/// Returns KKP's managers in these namespaces, by the namespaces of their user clusters.
pub(super) async fn managers(
    client: &Client,
    selection: &Selection,
) -> anyhow::Result<BTreeMap<String, Manager>> {
    let mut managers = BTreeMap::new();
    for (_, deployments) in selection.apis::<Deployment>(client) {
        let listed = pages::all(&deployments, named(DEPLOYMENT)).await;
        let listed = listed.context("cannot list Deployments")?;
        let undecodable = listed.unreadable.into_iter();
        let undecodable = undecodable.map(|found| (found.namespace, Manager::Undecodable));
        let deployed = listed.objects.into_iter();
        let deployed = deployed.map(|it| (it.namespace(), Manager::Deployed(Box::new(it))));
        let all = undecodable.chain(deployed);
        managers.extend(all.filter_map(|(namespace, manager)| Some((namespace?, manager))));
    }
    managers.retain(|namespace, _| cluster_in(namespace).is_some());
    Ok(managers)
}

async fn user_clusters(client: &Client, selection: &Selection) -> anyhow::Result<Vec<UserCluster>> {
    let mut managers = managers(client, selection).await?;
    let mut clusters = Vec::new();
    for (limit, _) in selection.apis::<Secret>(client) {
        let secrets: Api<Secret> = match &limit {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let listed = secrets.list_metadata(&named(SECRET)).await;
        let listed = listed.context("cannot list the names of Secrets")?;
        for secret in listed.items {
            let namespace = secret.namespace().unwrap_or_default();
            if cluster_in(&namespace).is_some() {
                clusters.push(UserCluster {
                    manager: managers.remove(&namespace).unwrap_or(Manager::None),
                    secret: Some(secret.metadata),
                    namespace,
                });
            }
        }
    }
    clusters.extend(
        managers
            .into_iter()
            .map(|(namespace, manager)| UserCluster {
                namespace,
                manager,
                secret: None,
            }),
    );
    clusters.sort_by(|a, b| a.namespace.cmp(&b.namespace));
    Ok(clusters)
}

/// Selects the objects of this name.
pub(super) fn named(name: &str) -> ListParams {
    ListParams::default().fields(&format!("metadata.name={name}"))
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
