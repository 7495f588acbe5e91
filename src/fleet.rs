//! The fleet: every registered worker cluster, each with a task, a client and a budget of its own.
//!
//! ```text
//! discovery ──► registry ──► cluster task ──► connect ──► claim ──► prerequisites ──► serve
//!  Secrets      who owns    one per          client,     who       what nodes       given by
//!  with label   a namespace registration     budget      serves    need             the app
//! ```
//!
//! The fleet does not know what is done with an engaged cluster: the app hands it the function.

pub mod account;
pub mod adoption;
mod border;
pub mod claim;
pub mod clock;
pub mod cluster_info;
pub mod cluster_task;
pub mod connect;
pub mod discovery;
pub mod engage;
pub mod engagement;
pub mod events;
pub mod fleet_summary;
pub mod health;
pub mod index;
pub mod jitter;
pub mod memory;
pub mod pages;
pub mod permits;
pub mod prerequisites;
mod quarantine;
pub mod rate_limit;
pub mod registry;
pub mod removal;
pub mod retry_delay;
pub mod sharding;
pub mod single_cluster;
pub mod statistics;
mod supervisor;
mod tenant_limits;
pub mod tenant_status;
pub mod transport;
pub mod watch;
pub mod worker_clusters;

use std::sync::Arc;

use futures::StreamExt;
use kube::Client;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use self::{
    discovery::discover, engagement::Shared, sharding::membership::Placement,
    supervisor::Supervisor, watch::Scope,
};

/// What running a fleet needs.
pub struct Params {
    /// What all tenants share.
    pub shared: Arc<Shared>,
    /// Which tenants are this replica's.
    pub placement: Placement,
    /// The management API, for the watches of the whole fleet.
    pub management: Client,
    /// Where registrations are looked for.
    pub scope: Scope,
    /// The label selector of registrations.
    pub selector: String,
    /// Set when the process ends.
    pub cancel: CancellationToken,
}

/// Serves the fleet until it is cancelled. Each registered cluster's task is awaited; one that
/// panics is started again, and no other notices.
pub async fn run(params: Params) {
    let Params {
        shared,
        placement,
        management,
        scope,
        selector,
        cancel,
    } = params;
    let mut supervisor = Supervisor::new(shared, placement, cancel.clone());
    let registrations = discover(&management, &scope, &selector);
    tokio::pin!(registrations);
    loop {
        // The end of the process comes first, then the supervisor: a registration that comes back
        // finds its place free.
        tokio::select! {
            biased;
            () = cancel.cancelled() => break,
            () = supervisor.moved() => {}
            Some(discovered) = registrations.next() => supervisor.discovered(discovered),
        }
        supervisor.report();
    }
    supervisor.finish().await;
    // Ten thousand registered clusters take longer to free than a thread of the runtime may be held
    // up.
    drop(spawn_blocking(move || drop(supervisor)));
}
