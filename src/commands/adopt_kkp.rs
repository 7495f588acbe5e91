//! What the clusters of a KKP seed need to be served from here: for each Deployment of an
//! operating-system-manager, a WorkerCluster with the same settings.

use std::sync::Arc;

use super::{
    cluster_client::{ClusterClient, KubeconfigSource},
    inventory,
    selection::Selection,
};
use crate::api::worker_cluster::WorkerCluster;
pub use crate::fleet::discovery::kkp::SECRET;
use crate::fleet::discovery::kkp::{DEPLOYMENT, ReadSettings, cluster_in};
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
    let managers = inventory::managers(&seed.client, &Selection::default()).await?;
    let read: ReadSettings = Arc::new(spec_of);
    let clusters = managers.into_iter().filter_map(|(namespace, manager)| {
        Some(UserCluster {
            id: cluster_in(&namespace)?.to_owned(),
            replicas: manager.replicas().unwrap_or_default(),
            worker_cluster: manager.worker_cluster(&namespace, &read),
            namespace,
        })
    });
    let mut clusters: Vec<UserCluster> = clusters.collect();
    clusters.retain(|it| ids.is_empty() || ids.contains(&it.id));
    for id in ids {
        let is_there = clusters.iter().any(|it| it.id == *id);
        anyhow::ensure!(is_there, "user cluster {id} has no Deployment {DEPLOYMENT}");
    }
    Ok(clusters)
}
