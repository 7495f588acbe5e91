//! What the clusters of a KKP seed need to be served from here: for each Deployment of an
//! operating-system-manager, a WorkerCluster with the same settings.

use kube::Client;

use super::{
    cluster_client::{ClusterClient, KubeconfigSource},
    inventory,
    selection::Selection,
};
use crate::api::worker_cluster::WorkerCluster;
pub use crate::fleet::discovery::kkp::SECRET;
use crate::fleet::discovery::kkp::{self, DEPLOYMENT, Manager, cluster_in};
use crate::settings::drop_in::deployed::spec_of;

/// A user cluster.
#[derive(Debug)]
pub struct UserCluster {
    /// KKP's name of it.
    pub id: String,
    /// Its namespace in the seed.
    pub namespace: String,
    /// The replicas of its manager.
    pub replicas: i32,
    /// The WorkerCluster with the settings of its manager, or why they cannot be used.
    pub worker_cluster: Result<WorkerCluster, String>,
}

/// Returns the user clusters of a seed: these, or all.
///
/// # Errors
///
/// The Deployments cannot be listed, or one of these clusters has none.
pub async fn user_clusters(
    source: &KubeconfigSource,
    ids: &[String],
) -> anyhow::Result<Vec<UserCluster>> {
    let seed = ClusterClient::management(source).await?;
    let mut clusters = user_clusters_in(&seed.client, &Selection::default()).await?;
    clusters.retain(|it| ids.is_empty() || ids.contains(&it.id));
    for id in ids {
        let is_there = clusters.iter().any(|it| it.id == *id);
        anyhow::ensure!(is_there, "user cluster {id} has no Deployment {DEPLOYMENT}");
    }
    Ok(clusters)
}

/// Returns the user clusters in these namespaces that have a Deployment, in the order of their
/// names.
pub(super) async fn user_clusters_in(
    client: &Client,
    selection: &Selection,
) -> anyhow::Result<Vec<UserCluster>> {
    let found = inventory::user_clusters(client, selection).await?;
    Ok(found.into_values().filter_map(user_cluster).collect())
}

fn user_cluster(found: kkp::UserCluster) -> Option<UserCluster> {
    let replicas = found.manager.replicas();
    let spec = match &found.manager {
        Manager::None => return None,
        Manager::Undecodable => Err("its Deployment cannot be decoded".to_owned()),
        Manager::Deployed(deployment) => spec_of(deployment, SECRET),
    };
    Some(UserCluster {
        id: cluster_in(&found.namespace)?.to_owned(),
        replicas: replicas.unwrap_or_default(),
        worker_cluster: spec.map(|spec| kkp::worker_cluster(&found.namespace, spec)),
        namespace: found.namespace,
    })
}
