//! Says when a replica is ready.

use std::sync::Arc;

use tokio::sync::watch;

use crate::admin::{Gate, Readiness};
use crate::client::watch::Scope;
use crate::controllers::serve::Controllers;
use crate::fleet::{registry::Registry, sharding::shard::Shard, worker_clusters::WorkerClusters};

/// Opens the gate once the registrations and the other objects in the management cluster were
/// listed. No worker cluster can make the process unready.
pub(super) fn open_watches(
    readiness: &Readiness,
    (controllers, worker_clusters): (&Controllers, &WorkerClusters),
    (registry, scope): (&Arc<Registry>, &Scope),
) -> impl Future<Output = ()> + use<> {
    let (profiles, worker_clusters) = (controllers.profiles.clone(), worker_clusters.clone());
    let (registry, scope) = (Arc::clone(registry), scope.clone());
    let readiness = readiness.clone();
    async move {
        profiles.ready().await;
        worker_clusters.ready().await;
        registry.until_listed(&scope).await;
        readiness.set_ready(Gate::ManagementWatches);
    }
}

/// Opens the gate once all replicas have agreed on a replica set that contains this one.
pub(super) async fn open_membership(readiness: Readiness, mut shards: watch::Receiver<Shard>) {
    if shards.wait_for(Shard::has_begun).await.is_ok() {
        readiness.set_ready(Gate::Membership);
    }
}
