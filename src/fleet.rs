//! The fleet: every registered worker cluster, each with a task, a client and a budget of its own.
//!
//! ```text
//! discovery ──► roster ──► cluster task ──► connect ──► claim ──► prerequisites ──► serve
//!  Secrets      who owns    one per          client,     who       what nodes       given by
//!  with label   a namespace registration     budget      serves    need             the app
//! ```
//!
//! The fleet does not know what is done with an engaged cluster: the app hands it the function.

pub mod board;
mod bounded_lines;
mod bounds;
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
pub mod jitter;
pub mod permits;
pub mod prerequisites;
pub mod rate_limit;
pub mod removal;
pub mod retry_delay;
pub mod roster;
pub mod transport;
pub mod watch;
pub mod worker_clusters;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::StreamExt;
use kube::Client;
use tokio::{
    task::{Id, JoinSet},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use self::{
    discovery::{Discovered, discover},
    engagement::Shared,
    retry_delay::RetryDelay,
    roster::Member,
    watch::{Scope, covers},
};
use crate::tenant::id::RegistrationId;

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

/// A task that has run for this long without a panic has recovered from those before.
const RECOVERED_AFTER: Duration = Duration::from_mins(10);

/// Serves the fleet until it is cancelled. Each member's task is awaited; one that panics is
/// started again after a delay that grows, and no other notices.
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
        panics: HashMap::new(),
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
    /// When members last panicked, and how long they wait the next time.
    panics: HashMap<RegistrationId, (Instant, RetryDelay)>,
}

impl Crew {
    fn discovered(&mut self, discovered: Discovered) {
        let roster = Arc::clone(&self.shared.roster);
        match discovered {
            Discovered::Present(registration) => {
                if let Some(member) = roster.present(*registration) {
                    self.serve(member, Duration::ZERO);
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

    fn serve(&mut self, member: Arc<Member>, after: Duration) {
        let task = cluster_task::run(
            Arc::clone(&self.shared),
            Arc::clone(&member),
            self.cancel.clone(),
        );
        let cancel = self.cancel.clone();
        let task = async move {
            if !after.is_zero() {
                // One that is cancelled still runs: it ends by itself.
                let _ = timeout(after, cancel.cancelled()).await;
            }
            task.await;
        };
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
        let mut after = Duration::ZERO;
        if has_panicked {
            after = self.panicked(&member.id);
            // What it panicked with may hold a tenant's data, and is not logged.
            tracing::error!(registration = %member.id, "a cluster's task panicked and is restarted");
        }
        if self.shared.roster.remove(&member.id) {
            self.panics.remove(&member.id);
            self.shared.metrics.remove_cluster(&member.id.to_string());
        } else if !self.cancel.is_cancelled() {
            self.serve(member, after);
        }
    }

    /// How long a member that panicked waits: one that always does must not be busy with it.
    fn panicked(&mut self, id: &RegistrationId) -> Duration {
        let now = Instant::now();
        let first = || (now, RetryDelay::default());
        let (last, delay) = self.panics.entry(id.clone()).or_insert_with(first);
        if now - *last > RECOVERED_AFTER {
            *delay = RetryDelay::default();
        }
        *last = now;
        delay.next().unwrap_or_default()
    }
}
