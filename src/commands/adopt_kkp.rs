//! What the clusters of a KKP seed need to be served from here: for each Deployment of an
//! operating-system-manager, a WorkerCluster with the same settings.

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, ResourceExt, api::ListParams, core::DeserializeGuard};

use super::cluster_client::{ClusterClient, KubeconfigSource};
use crate::api::worker_cluster::WorkerCluster;
use crate::client::pages;
pub use crate::fleet::discovery::kkp::SECRET;
use crate::fleet::discovery::kkp::{DEPLOYMENT, cluster_in, worker_cluster};
use crate::settings::drop_in::deployed::spec_of;
use crate::telemetry::chain::chain;

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
    let all: Api<DeserializeGuard<Deployment>> = Api::all(seed.client.clone());
    let params = ListParams::default().fields(&format!("metadata.name={DEPLOYMENT}"));
    let listed = pages::all(&all, params).await;
    let listed = listed.context("cannot list Deployments")?;
    let readable = listed.objects.iter().filter_map(user_cluster);
    let unreadable = listed.unreadable.iter().filter_map(|metadata| {
        let namespace = metadata.namespace.clone()?;
        Some(UserCluster {
            id: cluster_in(&namespace)?.to_owned(),
            namespace,
            replicas: 0,
            worker_cluster: Err("its Deployment cannot be decoded".to_owned()),
        })
    });
    let mut clusters: Vec<UserCluster> = readable.chain(unreadable).collect();
    clusters.retain(|it| ids.is_empty() || ids.contains(&it.id));
    for id in ids {
        let is_there = clusters.iter().any(|it| it.id == *id);
        anyhow::ensure!(is_there, "user cluster {id} has no Deployment {DEPLOYMENT}");
    }
    clusters.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(clusters)
}

fn user_cluster(deployment: &Deployment) -> Option<UserCluster> {
    let namespace = deployment.namespace()?;
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let spec = spec_of(deployment, SECRET).map_err(|error| chain(&error).to_string());
    Some(UserCluster {
        id: cluster_in(&namespace)?.to_owned(),
        // Kubernetes' default.
        replicas: replicas.unwrap_or(1),
        worker_cluster: spec.map(|spec| worker_cluster(&namespace, spec)),
        namespace,
    })
}
