//! The fleet: every registered worker cluster, each with a task, a client and a budget of its own.
//!
//! ```text
//! discovery ──► roster ──► cluster task ──► connect ──► claim ──► prerequisites ──► serve
//!  Secrets      who owns    one per          client,     who       what nodes       given by
//!  with label   a namespace registration     budget      serves    need             the app
//! ```
//!
//! The fleet does not know what is done with an engaged cluster: the app hands it the function.

pub mod adoption;
pub mod board;
mod bounded_lines;
pub mod census;
pub mod claim;
pub mod clock;
pub mod cluster_task;
pub mod connect;
pub mod discovery;
pub mod engage;
pub mod engagement;
pub mod facts;
pub mod health;
pub mod permits;
pub mod prerequisites;
pub mod rate_limit;
pub mod removal;
pub mod retry_delay;
pub mod roster;
pub mod transport;
pub mod watch;
pub mod worker_clusters;

use std::{collections::HashMap, sync::Arc};

use futures::StreamExt;
use kube::Client;
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;

use self::{
    discovery::{Discovered, discover},
    engagement::Shared,
    roster::Member,
    watch::{Scope, covers},
};

/// What running a fleet needs.
pub struct Params {
    /// What all tenants share.
    pub shared: Arc<Shared>,
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
        management,
        scope,
        selector,
        cancel,
    } = params;
    let mut crew = Crew {
        shared,
        cancel: cancel.clone(),
        tasks: JoinSet::new(),
        serving: HashMap::new(),
    };
    let registrations = discover(&management, &scope, &selector);
    tokio::pin!(registrations);
    loop {
        // The end of the process comes first, then those that ended: a registration that comes
        // back finds its place free.
        tokio::select! {
            biased;
            () = cancel.cancelled() => break,
            Some(ended) = crew.tasks.join_next_with_id() => crew.ended(ended.map(|(id, ())| id)),
            Some(discovered) = registrations.next() => crew.discovered(discovered),
        }
    }
    while crew.tasks.join_next().await.is_some() {}
}

/// The tasks of the members.
struct Crew {
    shared: Arc<Shared>,
    cancel: CancellationToken,
    tasks: JoinSet<()>,
    serving: HashMap<Id, Arc<Member>>,
}

impl Crew {
    fn discovered(&mut self, discovered: Discovered) {
        let roster = Arc::clone(&self.shared.roster);
        match discovered {
            Discovered::Present(registration) => {
                if let Some(member) = roster.present(*registration) {
                    self.serve(member);
                }
            }
            Discovered::Gone(id) => roster.gone(&id),
            Discovered::Complete { limit, seen } => {
                roster.listed(limit.clone());
                for member in roster.members() {
                    let is_covered = covers(limit.as_ref(), member.id.tenant.namespace());
                    if is_covered && !seen.contains(&member.id) {
                        roster.gone(&member.id);
                    }
                }
            }
        }
    }

    fn serve(&mut self, member: Arc<Member>) {
        let task = cluster_task::run(
            Arc::clone(&self.shared),
            Arc::clone(&member),
            self.cancel.clone(),
        );
        let id = self.tasks.spawn(task).id();
        self.serving.insert(id, member);
    }

    fn ended(&mut self, ended: Result<Id, tokio::task::JoinError>) {
        let (id, has_panicked) = match ended {
            Ok(id) => (id, false),
            Err(error) => (error.id(), error.is_panic()),
        };
        let Some(member) = self.serving.remove(&id) else {
            return;
        };
        if has_panicked {
            // What it panicked with may hold a tenant's data, and is not logged.
            tracing::error!(registration = %member.id, "a cluster's task panicked and is restarted");
        }
        if self.shared.roster.remove(&member.id) {
            self.shared.metrics.remove_cluster(&member.id.to_string());
        } else if !self.cancel.is_cancelled() {
            self.serve(member);
        }
    }
}
