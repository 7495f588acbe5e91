//! Whether another program serves a worker cluster, or has served it: the Operating System Manager
//! that runs once per cluster. It must have let go before anything is written.
//!
//! A cluster that it never served costs two reads: its definitions are not there, nor is its Lease.

mod lease;
mod webhooks;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt, api::ListParams};

pub use self::{
    lease::{Holder, LEASE, WORKER_LEASE},
    webhooks::Leftover,
};
use super::{
    clock::Clock,
    pages::{is_forbidden, is_not_served},
    removal,
};
use crate::api::{
    names::{CLAIM, CLOUD_INIT_SETTINGS, KUBE_SYSTEM},
    profile::OperatingSystemProfile,
    reason::Reason,
};

/// Where the program before us keeps its profiles and configs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Predecessor {
    /// There was none.
    #[default]
    None,
    /// In `kube-system` of the worker cluster.
    InWorker,
    /// In the tenant's namespace of the management cluster.
    InManagement,
}

/// Why a cluster must not be engaged yet.
#[derive(Debug, thiserror::Error)]
pub enum Obstacle {
    /// The program before us runs.
    #[error(
        "the operating-system-manager of the worker cluster is running: {} holds Lease \
         {KUBE_SYSTEM}/{}; scale it to zero, and this cluster is engaged once the Lease has run \
         out", .0.identity, .0.lease
    )]
    Running(Holder),
    /// Its webhooks would refuse every write of a machine deployment.
    #[error(
        "webhooks of the operating-system-manager that served this cluster are left, and would \
         refuse every write of a machine deployment; run in the worker cluster: {}", fix(.0)
    )]
    Webhooks(Vec<Leftover>),
    /// The kubeconfig may not look, and there are signs of a program before us.
    #[error(
        "machine deployments carry the finalizer of an operating-system-manager, but the \
         kubeconfig may not look whether one runs; apply manifests/rbac/worker-adoption.yaml in \
         the worker cluster"
    )]
    MayNotLook,
    /// A call failed.
    #[error("cannot look whether another operating-system-manager serves the cluster")]
    Call(#[from] kube::Error),
}

impl Obstacle {
    /// The machine-readable CamelCase reason.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Running(_) => Reason::UpstreamRunning,
            Self::Webhooks(_) => Reason::LeftoverWebhooks,
            Self::MayNotLook => Reason::AdoptionForbidden,
            Self::Call(_) => Reason::Unreachable,
        }
    }
}

/// The commands that remove the leftovers.
fn fix(leftovers: &[Leftover]) -> String {
    let commands: Vec<String> = leftovers
        .iter()
        .map(|left| format!("kubectl delete {} {}", left.resource, left.name))
        .collect();
    commands.join("; ")
}

/// Looks for a program before us, and whether it has let go. Writes nothing.
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

/// Who runs the program before us now, if anybody does. Where that may not be read nobody is known.
pub async fn running(worker: &Client, clock: &Clock) -> Result<Option<Holder>, kube::Error> {
    match signs(worker, clock).await {
        Err(Obstacle::Running(holder)) => Ok(Some(holder)),
        Err(Obstacle::Call(error)) if !is_forbidden(&error) => Err(error),
        _ => Ok(None),
    }
}

/// The Leases come first: a program that runs is the first thing to say.
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

/// Without the right to look there may be signs still: a finalizer, where nobody like us has ever
/// claimed the cluster.
async fn blind(worker: &Client) -> Result<Predecessor, Obstacle> {
    let namespaces: Api<Namespace> = Api::all(worker.clone());
    let namespace = namespaces.get_metadata_opt(CLOUD_INIT_SETTINGS).await?;
    let is_claimed = namespace.is_some_and(|found| found.annotations().contains_key(CLAIM));
    if is_claimed {
        return Ok(Predecessor::None);
    }
    match removal::held(worker).await {
        Ok(held) if held.is_empty() => Ok(Predecessor::None),
        Ok(_) => Err(Obstacle::MayNotLook),
        Err(error) if is_not_served(&error) => Ok(Predecessor::None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests;
