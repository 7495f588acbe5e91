//! The fleet: every registered worker cluster, each with a task, a client and a budget of its own.
//!
//! ```text
//! discovery ──► registry ──► cluster task ──► connect ──► claim ──► prerequisites ──► serve
//!  Secrets      who owns    one per          client,     who       what nodes       given by
//!  with label   a namespace registration     budget      serves    need             the app
//! ```
//!
//! The fleet does not know how an engaged cluster is served: the app passes the function.

pub mod adoption;
pub mod claim;
pub mod cluster_info;
pub mod cluster_task;
pub mod discovery;
pub mod engage;
pub mod engagement;
pub mod events;
pub mod fleet_summary;
pub mod give_back;
pub mod index;
pub mod prerequisites;
mod quarantine;
pub mod registry;
pub mod removal;
pub mod sharding;
pub mod single_cluster;
mod supervisor;
mod tenant_limits;
pub mod worker_clusters;

use std::sync::Arc;

use futures::StreamExt;
use kube::Client;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use self::{
    discovery::discover, engagement::Shared, sharding::membership::Placement,
    supervisor::Supervisor,
};
use crate::client::watch::Scope;

/// The arguments of [`run`].
pub struct Params {
    /// The state that all tenants share.
    pub shared: Arc<Shared>,
    /// Decides which tenants this replica serves.
    pub placement: Placement,
    /// The management API, for the watches of the whole fleet.
    pub management: Client,
    /// The namespaces in which registrations are discovered.
    pub scope: Scope,
    /// The label selector of registrations.
    pub selector: String,
    /// Cancelled when the process ends.
    pub cancel: CancellationToken,
}

/// Serves the fleet until it is cancelled. Each registered cluster has a task; one that panics is
/// restarted, and the others are not affected.
pub async fn run(params: Params) {
    let Params {
        shared,
        placement,
        management,
        scope,
        selector,
        cancel,
    } = params;
    for class in shared.policies.classes() {
        shared.metrics.begin_class(class.as_str());
    }
    let mut supervisor = Supervisor::new(shared, placement, cancel.clone());
    let registrations = discover(&management, &scope, &selector);
    tokio::pin!(registrations);
    loop {
        // Cancellation comes first, then the supervisor: when a registration comes back, its
        // previous task has been removed.
        tokio::select! {
            biased;
            () = cancel.cancelled() => break,
            () = supervisor.moved() => {}
            Some(discovered) = registrations.next() => supervisor.discovered(discovered),
        }
        supervisor.report();
    }
    supervisor.finish().await;
    // Freeing ten thousand registered clusters would block a thread of the runtime for too long.
    drop(spawn_blocking(move || drop(supervisor)));
}
