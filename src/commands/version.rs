//! The versions of the manager's replicas.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, ResourceExt as _, api::ListParams, core::DeserializeGuard};
use tokio::time::timeout;

use super::{
    cluster_client::{ClusterClient, KubeconfigSource},
    doctor::management::is_held,
};
use crate::api::names::{FLEET_LABEL, RUNS_VERSION};
use crate::client::pages;

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
    let leases: Api<DeserializeGuard<Lease>> = Api::namespaced(client, namespace);
    let params = ListParams::default().labels(FLEET_LABEL);
    let listed = timeout(PATIENCE, pages::all(&leases, params)).await;
    let listed = listed.context("the management cluster does not answer")?;
    let listed = listed.with_context(|| format!("cannot list Leases in {namespace}"))?;
    let now = Timestamp::now();
    let mut replicas = BTreeMap::new();
    for lease in listed.objects.iter().filter(|lease| is_held(lease, now)) {
        let version = lease.annotations().get(RUNS_VERSION);
        *replicas
            .entry(version.cloned().unwrap_or_default())
            .or_default() += 1;
    }
    Ok(replicas)
}
