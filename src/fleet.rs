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

use std::{collections::BTreeSet, future::ready, pin::Pin, sync::Arc};

use futures::{Stream, StreamExt, stream};
use kube::{Client, runtime::watcher};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use self::{
    discovery::{
        Discovered, discover,
        kkp::{self, ReadSettings},
    },
    engagement::Shared,
    sharding::membership::Placement,
    supervisor::Supervisor,
};
use crate::client::watch::Scope;
use crate::tenant::inventory::Inventory;

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
    /// Where registrations come from.
    pub sources: Sources,
    /// Cancelled when the process ends.
    pub cancel: CancellationToken,
}

/// Where registrations come from.
#[derive(Clone)]
pub struct Sources {
    /// The inventories.
    pub inventories: Vec<Source>,
    /// The namespaces whose registrations are ignored.
    pub except: BTreeSet<String>,
}

/// An inventory, with what it takes to find its registrations.
#[derive(Clone)]
pub enum Source {
    /// Secrets that the API server selects.
    Secrets {
        /// The inventory.
        inventory: Inventory,
        /// What the API server selects.
        selected: watcher::Config,
    },
    /// The user clusters of a KKP seed.
    Kkp {
        /// The management API, for reads of user clusters.
        reads: Client,
        /// Returns the settings of a user cluster.
        read: ReadSettings,
    },
}

impl Sources {
    fn discover(
        self,
        management: &Client,
        scope: &Scope,
    ) -> impl Stream<Item = Discovered> + Unpin + use<> {
        let inventories = self.inventories.into_iter();
        let found = inventories.map(|source| source.discover(management, scope));
        let is_ignored = move |found: &Discovered| match found {
            Discovered::Present(it) => self.except.contains(it.id.tenant.namespace()),
            Discovered::Gone(_) | Discovered::Complete { .. } => false,
        };
        stream::select_all(found).filter(move |found| ready(!is_ignored(found)))
    }
}

impl Source {
    fn discover(
        self,
        management: &Client,
        scope: &Scope,
    ) -> Pin<Box<dyn Stream<Item = Discovered> + Send>> {
        match self {
            Self::Secrets {
                inventory,
                selected,
            } => Box::pin(discover(management, scope, (inventory, selected))),
            Self::Kkp { reads, read } => Box::pin(kkp::discover(management, scope, (reads, read))),
        }
    }
}

/// Serves the fleet until it is cancelled. Each registered cluster has a task; one that panics is
/// restarted, and the others are not affected.
pub async fn run(params: Params) {
    let Params {
        shared,
        placement,
        management,
        scope,
        sources,
        cancel,
    } = params;
    for class in shared.policies.classes() {
        shared.metrics.begin_class(class.as_str());
    }
    let mut supervisor = Supervisor::new(shared, placement, cancel.clone());
    let mut registrations = sources.discover(&management, &scope);
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
