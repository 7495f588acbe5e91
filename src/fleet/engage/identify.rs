//! Identifies a worker cluster: it must be the one that was engaged before.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, Client, ResourceExt};

use super::{EngageError, Params, not_connected};
use crate::api::{
    condition::ConditionType,
    names::KUBE_SYSTEM,
    reason::Reason,
    worker_cluster::{Home, UID_CHARACTERS_MAX, VERSION_CHARACTERS_MAX, WorkerCluster},
};
use crate::client::pages;
use crate::telemetry::chain::chain;
use crate::tenant::report::{ConditionState, excerpt};

/// The `ConfigMap` in `kube-system` that every API server creates, and keeps.
const AUTHENTICATION: &str = "extension-apiserver-authentication";

/// Returns the uid of an object that exists for as long as the cluster: its namespace
/// `kube-system`, or a `ConfigMap` there if the cluster is its tenant's home, where we may not read
/// namespaces.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn identity(worker: &Client, home: Home) -> Result<Option<String>, kube::Error> {
    match home {
        Home::Management => {
            let namespaces: Api<Namespace> = Api::all(worker.clone());
            Ok(namespaces.get_metadata(KUBE_SYSTEM).await?.uid())
        }
        Home::Worker => {
            let maps: Api<ConfigMap> = Api::namespaced(worker.clone(), KUBE_SYSTEM);
            Ok(maps.get_metadata(AUTHENTICATION).await?.uid())
        }
    }
}

/// Returns the uid of the same object of the management cluster.
async fn of_management(params: &Params<'_>, home: Home) -> Result<String, EngageError> {
    let known = &params.shared.management_uid;
    if home == Home::Management {
        return Ok(known.of_namespace.clone());
    }
    let read = async || {
        let found = identity(&params.management.client(), home).await;
        found.map(Option::unwrap_or_default)
    };
    let found = known.as_home.get_or_try_init(read).await;
    let found = found.map_err(|error| {
        let remedy = if pages::is_forbidden(&error) {
            "; apply what `osm rbac management` prints, which grants this right"
        } else {
            ""
        };
        EngageError::failed(
            ConditionType::Claimed,
            Reason::ClaimFailed,
            format!(
                "cannot read whether this is the management cluster (ConfigMap \
                 {KUBE_SYSTEM}/{AUTHENTICATION} there){remedy}: {}",
                chain(&error)
            ),
        )
    })?;
    Ok(found.clone())
}

/// Checks that this is the same cluster as before, and not the management cluster. Returns its uid.
pub(super) async fn identify(
    params: &Params<'_>,
    worker: &Client,
    own: &WorkerCluster,
) -> Result<String, EngageError> {
    let found = identity(worker, own.spec.home)
        .await
        .map_err(|error| not_connected(params.health, &error))?;
    // The pinned uid has at most this number of characters, and is compared with it.
    let found = excerpt(&found.unwrap_or_default(), UID_CHARACTERS_MAX);
    if found == of_management(params, own.spec.home).await? {
        return Err(EngageError::refused(
            ConditionType::Registered,
            Reason::KubeconfigRefused,
            "the kubeconfig leads to the management cluster; name a worker cluster's API server",
        ));
    }
    let version = worker
        .apiserver_version()
        .await
        .map_err(|error| not_connected(params.health, &error))?;
    // The pin is also kept in memory: deleting the WorkerCluster or wiping its status does not make
    // us accept another cluster.
    let pinned = own
        .status
        .as_ref()
        .and_then(|status| status.cluster_uid.clone())
        .or_else(|| {
            params
                .registered
                .status
                .read(|report| report.cluster_uid.clone())
        });
    let is_another = pinned.as_ref().is_some_and(|pinned| *pinned != found);
    if let Some(pinned) = pinned
        && is_another
        && own.spec.confirmed_cluster_uid.as_ref() != Some(&found)
    {
        return Err(EngageError::refused(
            ConditionType::Claimed,
            Reason::ClusterChanged,
            format!(
                "the kubeconfig leads to cluster {found}, but this was {pinned}; set \
                     spec.confirmedClusterUid to {found} if that is intended"
            ),
        ));
    }
    let tenant_status = &params.registered.status;
    if is_another {
        let message = "another cluster answers than before, and is not claimed yet";
        let finding = ConditionState::wrong(Reason::NotClaimed, message);
        tenant_status.set_condition(ConditionType::Claimed, finding);
    }
    tenant_status.set(|report| &mut report.cluster_uid, Some(found.clone()));
    let version = excerpt(&version.git_version, VERSION_CHARACTERS_MAX);
    tenant_status.set(|report| &mut report.version, Some(version));
    Ok(found)
}
