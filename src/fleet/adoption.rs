//! Finds out whether another operating-system-manager serves a worker cluster, or served it before.
//! Upstream's manager runs once per cluster, and must have stopped before we write anything.
//!
//! A cluster that it never served costs two reads: neither its CRDs nor its Lease exist there.

pub(super) mod lease;
mod webhooks;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PartialObjectMeta},
};

pub use self::{
    lease::{Holder, LEASE, WORKER_LEASE},
    webhooks::Leftover,
};
use super::removal::Held;
use crate::api::{
    names::{CLAIM, CLOUD_INIT_SETTINGS, INPUTS, KUBE_SYSTEM},
    profile::OperatingSystemProfile,
    reason::Reason,
};
use crate::client::{
    clock::Clock,
    pages::{is_forbidden, is_not_served},
};

/// The number of documents among which one that this program made is looked for.
const DOCUMENTS: u32 = 100;

/// Where the previous manager keeps its profiles and configs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Predecessor {
    /// There was no previous manager.
    #[default]
    None,
    /// In `kube-system` of the worker cluster.
    InWorker,
    /// In the tenant's namespace of the management cluster.
    InManagement,
}

/// The reason why a cluster must not be engaged yet.
#[derive(Debug, thiserror::Error)]
pub enum Obstacle {
    /// The previous manager is running.
    #[error(
        "the operating-system-manager of the worker cluster is running: {} holds Lease \
         {KUBE_SYSTEM}/{}; scale it to zero, and this cluster is engaged once the Lease has run \
         out", .0.identity, .0.lease
    )]
    Running(Holder),
    /// Webhooks of the previous manager are left, and would refuse every write of a machine
    /// deployment.
    #[error(
        "webhooks of the operating-system-manager that served this cluster are left, and would \
         refuse every write of a machine deployment; run in the worker cluster: {}", fix(.0)
    )]
    Webhooks(Vec<Leftover>),
    /// The kubeconfig may not read the Leases or webhooks, and there are signs of a previous
    /// manager.
    #[error(
        "machine deployments carry the finalizer of an operating-system-manager, but the \
         kubeconfig has no permission to check whether one runs; apply \
         what `osm rbac worker-adoption` prints in the worker cluster"
    )]
    MayNotLook,
    /// A call failed.
    #[error("cannot check whether another operating-system-manager serves the cluster")]
    Call(#[from] kube::Error),
}

impl Obstacle {
    /// Returns the reason for the condition.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Running(_) => Reason::UpstreamRunning,
            Self::Webhooks(_) => Reason::LeftoverWebhooks,
            Self::MayNotLook => Reason::AdoptionForbidden,
            Self::Call(_) => Reason::Unreachable,
        }
    }
}

/// Returns the commands that remove the leftovers.
fn fix(leftovers: &[Leftover]) -> String {
    let commands: Vec<String> = leftovers
        .iter()
        .map(|left| format!("kubectl delete {} {}", left.resource, left.name))
        .collect();
    commands.join("; ")
}

/// Looks for a previous manager, and checks that it has stopped. Writes nothing.
///
/// # Errors
///
/// The previous manager still runs, its webhooks are left, or this cannot be read.
pub async fn find_predecessor(worker: &Client, clock: &Clock) -> Result<Predecessor, Obstacle> {
    match signs(worker, clock).await {
        Ok(Predecessor::None) => Ok(Predecessor::None),
        Ok(found) => {
            let leftovers = webhooks::leftovers(worker).await;
            match leftovers {
                Ok(none) if none.is_empty() => Ok(found),
                Ok(some) => Err(Obstacle::Webhooks(some)),
                Err(error) if is_forbidden(&error) => Err(Obstacle::MayNotLook),
                Err(error) => Err(error.into()),
            }
        }
        Err(Obstacle::Call(error)) if is_forbidden(&error) => blind(worker).await,
        Err(obstacle) => Err(obstacle),
    }
}

/// Returns the holder of the Lease if the previous manager is running. Returns `None` if the
/// kubeconfig may not read the Leases.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn running(worker: &Client, clock: &Clock) -> Result<Option<Holder>, kube::Error> {
    match signs(worker, clock).await {
        Err(Obstacle::Running(holder)) => Ok(Some(holder)),
        Err(Obstacle::Call(error)) if !is_forbidden(&error) => Err(error),
        _ => Ok(None),
    }
}

/// Looks for signs of a previous manager. The Leases come first, so that a running manager is
/// reported before anything else.
async fn signs(worker: &Client, clock: &Clock) -> Result<Predecessor, Obstacle> {
    let is_released = |found: Option<lease::Found>| match found {
        Some(lease::Found::Held(holder)) => Err(Obstacle::Running(holder)),
        Some(lease::Found::Free) => Ok(true),
        None => Ok(false),
    };
    if is_released(lease::read(worker, WORKER_LEASE, clock).await?)? {
        return Ok(Predecessor::InManagement);
    }
    let profiles: Api<OperatingSystemProfile> = Api::namespaced(worker.clone(), KUBE_SYSTEM);
    match profiles
        .list_metadata(&ListParams::default().limit(1))
        .await
    {
        Err(error) if is_not_served(&error) => return Ok(Predecessor::None),
        listed => drop(listed?),
    }
    is_released(lease::read(worker, LEASE, clock).await?)?;
    Ok(Predecessor::InWorker)
}

/// Looks for a previous manager where the kubeconfig may not read the Leases. The finalizer on a
/// machine deployment is a sign, unless it may be ours: the cluster has a claim, or documents of
/// this program, whose claim somebody has removed.
async fn blind(worker: &Client) -> Result<Predecessor, Obstacle> {
    let namespaces: Api<Namespace> = Api::all(worker.clone());
    let namespace = namespaces.get_metadata_opt(CLOUD_INIT_SETTINGS).await?;
    if namespace.is_some_and(|found| found.annotations().contains_key(CLAIM)) {
        return Ok(Predecessor::None);
    }
    let mut held = Held::of(worker);
    loop {
        match held.next().await {
            Ok(Some(page)) if page.is_empty() => {}
            Ok(Some(_)) if has_documents(worker).await? => return Ok(Predecessor::None),
            Ok(Some(_)) => return Err(Obstacle::MayNotLook),
            Ok(None) => return Ok(Predecessor::None),
            Err(error) if is_not_served(&error) => return Ok(Predecessor::None),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns true if this program made one of the first documents in the cluster.
async fn has_documents(worker: &Client) -> Result<bool, kube::Error> {
    let documents: Api<Secret> = Api::namespaced(worker.clone(), CLOUD_INIT_SETTINGS);
    let page = ListParams::default().limit(DOCUMENTS);
    let found = match documents.list_metadata(&page).await {
        // The right to read them went with their namespace.
        Err(error) if is_forbidden(&error) => return Ok(false),
        found => found?,
    };
    let is_ours = |it: &PartialObjectMeta<Secret>| it.annotations().contains_key(INPUTS);
    Ok(found.items.iter().any(is_ours))
}

#[cfg(test)]
mod tests;
