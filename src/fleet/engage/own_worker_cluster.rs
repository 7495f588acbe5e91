//! The WorkerCluster of a registered cluster. It is created for a registration that has none. If an
//! inventory has the settings, it follows them.

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, ResourceExt, api::PostParams};
use tokio::time::timeout;

use super::{EngageError, Params};
use crate::api::{condition::ConditionType, reason::Reason, worker_cluster::WorkerCluster};
use crate::client::connect::Clients;
use crate::fleet::{
    discovery::{Registration, Settings, with_settings_of},
    engagement::Shared,
    registry::RegisteredCluster,
    worker_clusters,
};
use crate::telemetry::chain::chain;
use crate::tenant::inventory::Inventory;

/// Returns the WorkerCluster. It is created if it does not exist, and updated if the inventory has
/// other settings.
pub(super) async fn find_or_create(params: &Params<'_>) -> Result<Arc<WorkerCluster>, EngageError> {
    params.shared.worker_clusters.ready().await;
    worker_clusters::notify(&params.shared.worker_clusters, params.registered);
    let own = params.registered.worker_cluster.borrow().clone();
    match own {
        Some(own) => {
            let following = Following {
                shared: params.shared,
                registered: params.registered,
                management: params.management,
                settings: &params.registration.settings,
            };
            follow_inventory(following, own).await
        }
        None => create(params).await,
    }
}

/// The settings of an inventory, and what it takes to follow them.
#[derive(Clone, Copy)]
pub struct Following<'a> {
    /// The state that all tenants share.
    pub shared: &'a Shared,
    /// The tenant's registration.
    pub registered: &'a RegisteredCluster,
    /// The tenant's share of the management API.
    pub management: &'a Clients,
    /// The settings.
    pub settings: &'a Settings,
}

/// Updates the WorkerCluster of a cluster that is served, if the inventory has other settings for
/// it.
///
/// # Errors
///
/// It is gone, or cannot be updated.
pub async fn follow_settings(following: Following<'_>) -> Result<(), EngageError> {
    let own = following.registered.worker_cluster.borrow().clone();
    let own = own.ok_or_else(|| failed("it is gone".to_owned()))?;
    follow_inventory(following, own).await.map(drop)
}

/// Returns an error about the registration.
fn failed(message: String) -> EngageError {
    EngageError::failed(ConditionType::Registered, Reason::NoWorkerCluster, message)
}

/// Returns an error about the registration that only a change of it ends.
fn refused(message: String) -> EngageError {
    EngageError::refused(ConditionType::Registered, Reason::NoWorkerCluster, message)
}

async fn create(params: &Params<'_>) -> Result<Arc<WorkerCluster>, EngageError> {
    let (management, registered) = (params.management.client(), params.registered);
    // It may belong to this registration, with settings that must not be ignored.
    if let Some(name) = params
        .shared
        .worker_clusters
        .unreadable_in(&registered.id.tenant)
    {
        return Err(EngageError::failed(
            ConditionType::Registered,
            Reason::WorkerClusterUnreadable,
            format!(
                "WorkerCluster {name} cannot be read by this version of the manager: correct it \
                 (osm crds has its schema), or delete it"
            ),
        ));
    }
    let deleted = registered.last.borrow().clone();
    let inventory = &params.registration.inventory;
    let mut new = match (&params.registration.settings, deleted) {
        (_, Some(deleted)) => worker_clusters::restored(&deleted),
        (Settings::Operator, None) => worker_clusters::with_defaults(&registered.id, inventory),
        (Settings::Inventory(derived), None) => derived.as_ref().clone(),
        (Settings::Unusable(why), None) => {
            let message = format!("the settings in the inventory cannot be used: {why}");
            return Err(refused(message));
        }
    };
    if *inventory != Inventory::Label {
        new.metadata.owner_references = Some(vec![owner(params.registration)]);
    }
    if let Some(other) = (params.shared.worker_clusters)
        .named(registered.id.tenant.namespace(), &new.name_any())
        .map(|other| other.spec.kubeconfig_secret_ref.name.clone())
        .filter(|secret| **secret != *registered.id.name)
    {
        return Err(failed(format!(
            "WorkerCluster {} refers to Secret {other}, so Secret {} can have none of this name: \
             one namespace is one tenant; remove one of the two registrations, or delete the \
             WorkerCluster if {other} is none",
            new.name_any(),
            registered.id.name
        )));
    }
    let created = worker_clusters::create(&management, &new).await;
    created.map_err(|error| {
        let why = format!("cannot create the WorkerCluster: {}", chain(&error));
        if is_invalid(&error) {
            refused(why)
        } else {
            failed(why)
        }
    })?;
    let timeout = params.shared.request_timeout;
    seen((registered, timeout), |_| true).await
}

/// Returns the reference to the Secret that another program made. When that program deletes it,
/// Kubernetes deletes what was created for it.
fn owner(registration: &Registration) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        name: registration.id.name.to_string(),
        uid: registration.uid.clone(),
        ..OwnerReference::default()
    }
}

/// Returns true if the API server finds the settings invalid, as they stay until they change.
fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 422)
}

/// Updates the WorkerCluster if the inventory has other settings for it.
async fn follow_inventory(
    following: Following<'_>,
    own: Arc<WorkerCluster>,
) -> Result<Arc<WorkerCluster>, EngageError> {
    let Settings::Inventory(derived) = following.settings else {
        return Ok(own);
    };
    let wanted = with_settings_of(&own.spec, &derived.spec);
    if wanted == own.spec {
        return Ok(own);
    }
    let registered = following.registered;
    let namespace = registered.id.tenant.namespace();
    let api: Api<WorkerCluster> = Api::namespaced(following.management.client(), namespace);
    // Its version is that of the copy that was compared.
    let updated = WorkerCluster {
        spec: wanted.clone(),
        status: None,
        ..own.as_ref().clone()
    };
    let name = own.name_any();
    let replaced = api.replace(&name, &PostParams::default(), &updated).await;
    match replaced {
        // What cannot be used changes nothing.
        Err(error) if is_invalid(&error) => {
            let why = chain(&error);
            tracing::warn!(registration = %registered.id, %why, "the settings in the inventory are invalid");
            return Ok(own);
        }
        Err(error) => {
            return Err(failed(format!(
                "cannot update the WorkerCluster with the settings in the inventory: {}",
                chain(&error)
            )));
        }
        Ok(_) => {}
    }
    tracing::info!(registration = %registered.id, "took over the settings in the inventory");
    let timeout = following.shared.request_timeout;
    seen((registered, timeout), |found| found.spec == wanted).await
}

/// Waits until the watch has the WorkerCluster as it should be.
async fn seen(
    (registered, limit): (&RegisteredCluster, Duration),
    mut is_wanted: impl FnMut(&WorkerCluster) -> bool,
) -> Result<Arc<WorkerCluster>, EngageError> {
    let mut seen = registered.worker_cluster.subscribe();
    let is_there = seen.wait_for(|own| own.as_deref().is_some_and(&mut is_wanted));
    let own = timeout(limit, is_there).await;
    match own {
        Ok(Ok(own)) => own
            .clone()
            .ok_or_else(|| failed("it is gone again".to_owned())),
        _ => Err(failed(
            "the WorkerCluster that was written is not seen yet".to_owned(),
        )),
    }
}
