//! The fleet: every registered worker cluster, each with a task, a client and a budget of its own.
//!
//! ```text
//! discovery ──► roster ──► cluster task ──► connect ──► claim ──► prerequisites ──► serve
//!  Secrets      who owns    one per          client,     who       what nodes       given by
//!  with label   a namespace registration     budget      serves    need             the app
//! ```
//!
//! The fleet does not know what is done with an engaged cluster: the app hands it the function.

pub mod account;
pub mod adoption;
pub mod board;
mod border;
mod bounds;
pub mod census;
pub mod claim;
pub mod clock;
pub mod cluster_task;
pub mod connect;
mod crew;
pub mod discovery;
pub mod engage;
pub mod engagement;
pub mod events;
pub mod facts;
pub mod health;
pub mod index;
pub mod jitter;
pub mod memory;
pub mod pages;
pub mod partition;
pub mod permits;
pub mod prerequisites;
mod quarantine;
pub mod rate_limit;
pub mod removal;
pub mod retry_delay;
pub mod roster;
pub mod solo;
pub mod transport;
pub mod vitals;
pub mod watch;
pub mod worker_clusters;

use std::sync::Arc;

use futures::StreamExt;
use kube::Client;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use self::{
    crew::Crew, discovery::discover, engagement::Shared, partition::membership::Placement,
    watch::Scope,
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

/// Serves the fleet until it is cancelled. Each member's task is awaited; one that panics is
/// started again, and no other notices.
pub async fn run(params: Params) {
    let Params {
        shared,
        placement,
        management,
        scope,
        selector,
        cancel,
    } = params;
    let mut crew = Crew::new(shared, placement, cancel.clone());
    let registrations = discover(&management, &scope, &selector);
    tokio::pin!(registrations);
    loop {
        // The end of the process comes first, then the crew: a registration that comes back finds
        // its place free.
        tokio::select! {
            biased;
            () = cancel.cancelled() => break,
            () = crew.moved() => {}
            Some(discovered) = registrations.next() => crew.discovered(discovered),
        }
        crew.tell();
    }
    crew.finish().await;
    // Ten thousand members take longer to free than a thread of the runtime may be held up.
    drop(spawn_blocking(move || drop(crew)));
}
