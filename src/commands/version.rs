//! The versions of the manager's replicas.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::timeout;

use super::{
    cluster_client::{ClusterClient, KubeconfigSource},
    managers::Fleets,
};

/// A person who asks for the version of this program does not wait for a cluster.
const PATIENCE: Duration = Duration::from_secs(3);

/// Returns the number of replicas by version. Replicas of releases that did not publish it have an
/// empty version.
///
/// # Errors
///
/// The management cluster does not answer in time, or its Leases cannot be listed.
pub async fn of_replicas(
    source: &KubeconfigSource,
    namespace: &str,
) -> anyhow::Result<BTreeMap<String, usize>> {
    let client = ClusterClient::management(source).await?.client;
    let fleets = timeout(PATIENCE, Fleets::read(&client, namespace)).await;
    let fleets = fleets.context("the management cluster does not answer")??;
    let mut replicas = BTreeMap::new();
    for (version, number) in fleets.all().iter().flat_map(|fleet| &fleet.versions) {
        *replicas.entry(version.clone()).or_default() += number;
    }
    Ok(replicas)
}
