//! Starts, stops and joins the tasks of the registered clusters that this replica serves. No other
//! module does that.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::{
    task::{Id, JoinError, JoinSet, coop::consume_budget},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    cluster_task,
    discovery::{Discovered, Gone},
    engagement::Shared,
    quarantine::{Quarantine, TRIAL},
    registry::{Moves, RegisteredCluster},
    sharding::{membership::Placement, shard::Shard, suspicion::Suspicion},
    worker_clusters,
};
use crate::client::{fence::Fence, retry_delay::RetryDelay};
use crate::tenant::id::{RegistrationId, TenantId};

/// How long a release is remembered. A watch that lags for longer has started over by then.
const GIVEN_BACK_MAX_AGE: Duration = Duration::from_mins(10);

/// The tasks of the registered clusters.
pub(super) struct Supervisor {
    shared: Arc<Shared>,
    placement: Placement,
    cancel: CancellationToken,
    tasks: JoinSet<()>,
    serving: HashMap<Id, Serving>,
    /// The tasks by registration. Each has at most one that has not ended.
    here: HashMap<RegistrationId, Id>,
    /// The shard that the running tasks follow.
    placed: Shard,
    /// The tenants that may be the cause of crashes.
    quarantine: Quarantine,
    /// The time of the next trial.
    next_trial: Option<Instant>,
    /// The tasks that are not in `placed` and have not ended yet.
    leaving: HashSet<Id>,
    /// The times of the last panics of tasks, and the delays of their next restarts.
    panics: HashMap<RegistrationId, (Instant, RetryDelay)>,
    /// The clusters that were released here, and when. The watch may not have shown their last
    /// status yet.
    given_back: HashMap<RegistrationId, Instant>,
    has_all_worker_clusters: bool,
}

/// One task.
struct Serving {
    registered: Arc<RegisteredCluster>,
    cancel: CancellationToken,
    fence: Fence,
}

impl Supervisor {
    pub(super) fn new(
        shared: Arc<Shared>,
        placement: Placement,
        cancel: CancellationToken,
    ) -> Self {
        let placed = placement.shards.borrow().clone();
        Self {
            shared,
            placement,
            cancel,
            tasks: JoinSet::new(),
            serving: HashMap::new(),
            here: HashMap::new(),
            placed,
            quarantine: Quarantine::default(),
            next_trial: None,
            leaving: HashSet::new(),
            panics: HashMap::new(),
            given_back: HashMap::new(),
            has_all_worker_clusters: false,
        }
    }

    /// Waits until a task ends or the shard changes, and handles that.
    pub(super) async fn moved(&mut self) {
        tokio::select! {
            biased;
            Some(ended) = self.tasks.join_next_with_id() => {
                self.ended(ended.map(|(id, ())| id));
            }
            Ok(()) = self.placement.shards.changed() => self.place(),
            Ok(()) = self.placement.precautions.announced.changed() => self.try_suspects(),
            () = until(self.next_trial) => self.try_suspects(),
            () = self.shared.worker_clusters.ready(), if !self.has_all_worker_clusters => {
                self.has_all_worker_clusters = true;
                self.report_orphaned(None);
            }
            else => std::future::pending().await,
        }
    }

    /// Reports that only tenants of the shard are served, once that is true.
    pub(super) fn report(&self) {
        if self.leaving.is_empty() {
            self.placement.let_go.send_if_modified(|before| {
                let is_another = *before != self.placed;
                if is_another {
                    before.clone_from(&self.placed);
                }
                is_another
            });
        }
    }

    /// Cancels all tasks, and waits for them. It yields in between, because ten thousand tasks that
    /// wake at once would block the thread.
    pub(super) async fn finish(&mut self) {
        for serving in self.serving.values() {
            serving.cancel.cancel();
            consume_budget().await;
        }
        while self.tasks.join_next().await.is_some() {}
    }

    pub(super) fn discovered(&mut self, discovered: Discovered) {
        match discovered {
            Discovered::Present(registration) => {
                self.given_back.remove(&registration.id);
                let moves = self.shared.registry.present(*registration);
                self.follow(moves);
            }
            Discovered::Gone(gone) => self.gone(&gone),
            Discovered::Complete {
                inventory,
                limit,
                seen,
            } => {
                self.shared
                    .registry
                    .listed(inventory.clone(), limit.clone());
                for id in self.shared.registry.of(&inventory, limit.as_deref()) {
                    if !seen.contains(&id) {
                        self.gone(&Gone::new(&inventory, id));
                    }
                }
                self.report_orphaned(limit.as_deref());
            }
        }
    }

    /// Handles a removed registration. If its task runs here, the task releases the cluster and
    /// ends.
    fn gone(&mut self, gone: &Gone) {
        let moves = self.shared.registry.gone(gone);
        if !self.here.contains_key(&gone.id) {
            self.shared.registry.remove(&gone.id);
        }
        self.follow(moves);
    }

    /// Serves a registration that is considered from now on, and ends the task of one that is not
    /// any more. One whose last task has not ended is served when that ends.
    fn follow(&mut self, moves: Moves) {
        let left_out = moves.ends.and_then(|id| self.here.get(&id));
        if let Some(serving) = left_out.and_then(|task| self.serving.get(task)) {
            serving.cancel.cancel();
        }
        if let Some(registered) = moves.begins {
            // Tenants of other replicas count in rollouts, too.
            worker_clusters::notify(&self.shared.worker_clusters, &registered);
            if self.is_granted(&registered.id) && !self.here.contains_key(&registered.id) {
                self.serve(registered, Duration::ZERO);
            }
        }
    }

    fn is_granted(&self, id: &RegistrationId) -> bool {
        self.placed.covers(&id.tenant)
    }

    /// Stops the tasks of tenants that left the shard, and starts those of new ones.
    fn place(&mut self) {
        self.placed = self.placement.shards.borrow_and_update().clone();
        self.leaving.clear();
        for (id, serving) in &self.serving {
            if !self.placed.covers(&serving.registered.id.tenant) {
                serving.cancel.cancel();
                self.leaving.insert(*id);
            }
        }
        self.quarantine.retain(|tenant| self.placed.covers(tenant));
        for registered in self.shared.registry.all() {
            if !self.here.contains_key(&registered.id) && self.is_granted(&registered.id) {
                self.serve(registered, Duration::ZERO);
            }
        }
        self.report_orphaned(None);
    }

    /// Reports orphaned registrations of one namespace, or of all: registrations that were removed
    /// while no replica served them, or whose replica crashed. Their kubeconfig is lost, and the
    /// status of their WorkerCluster says so.
    fn report_orphaned(&mut self, limit: Option<&str>) {
        self.given_back
            .retain(|_, at| at.elapsed() < GIVEN_BACK_MAX_AGE);
        for id in self
            .shared
            .worker_clusters
            .registered_in(&self.shared.fleet, limit)
        {
            if !self.is_granted(&id) || self.given_back.contains_key(&id) {
                continue;
            }
            if let Some(registered) = self.shared.registry.orphaned(&id) {
                worker_clusters::notify(&self.shared.worker_clusters, &registered);
                self.serve(registered, Duration::ZERO);
            }
        }
    }

    /// Continues the trials of the tenants that may be the cause of crashes.
    fn try_suspects(&mut self) {
        let now = self.now();
        let precautions = &mut self.placement.precautions;
        let announced = *precautions.announced.borrow_and_update();
        let step = self.quarantine.step(announced, now);
        precautions.wanted.send_if_modified(|wanted| {
            let is_another = *wanted != step.trial;
            *wanted = step.trial;
            is_another
        });
        for tenant in &step.admitted {
            tracing::info!(%tenant, "tries a tenant for which replicas have crashed");
            for registered in self.shared.registry.within(Some(tenant.namespace())) {
                registered.suspicion.send_replace(None);
            }
        }
        let wait = step
            .next
            .map(|next| u64::try_from(next - now).unwrap_or_default());
        self.next_trial = wait.map(|wait| Instant::now() + Duration::from_secs(wait));
    }

    /// Returns the suspicion that crashes of replicas imply for a tenant.
    fn suspicion(&self, tenant: &TenantId) -> Option<Suspicion> {
        let crashes = self.placement.precautions.crashes.borrow();
        crashes.suspicion(tenant, self.now())
    }

    fn now(&self) -> i64 {
        self.shared.clock.now().as_second()
    }

    fn serve(&mut self, registered: Arc<RegisteredCluster>, after: Duration) {
        let tenant = &registered.id.tenant;
        let suspicion = self.suspicion(tenant);
        let held = self.quarantine.hold(tenant, suspicion, self.now());
        if held.is_some() {
            let trial = Instant::now() + TRIAL;
            self.next_trial = Some(self.next_trial.map_or(trial, |before| before.min(trial)));
        }
        registered.suspicion.send_replace(held);
        registered.take();
        let cancel = CancellationToken::new();
        let fence = self.placement.fence.of_tenant();
        let task = cluster_task::run(
            Arc::clone(&self.shared),
            Arc::clone(&registered),
            fence.clone(),
            cancel.clone(),
        );
        let waiting = cancel.clone();
        let task = async move {
            if !after.is_zero() {
                // A cancelled task still runs, and ends by itself.
                let _ = timeout(after, waiting.cancelled()).await;
            }
            Box::pin(task).await;
        };
        let id = self.tasks.spawn(task).id();
        self.here.insert(registered.id.clone(), id);
        let serving = Serving {
            registered,
            cancel,
            fence,
        };
        self.serving.insert(id, serving);
    }

    fn ended(&mut self, ended: Result<Id, JoinError>) {
        let (id, has_panicked) = match ended {
            Ok(id) => (id, false),
            Err(error) => (error.id(), error.is_panic()),
        };
        let Some(serving) = self.serving.remove(&id) else {
            return;
        };
        self.leaving.remove(&id);
        self.here.remove(&serving.registered.id);
        serving.fence.let_go();
        let registered = serving.registered;
        let mut after = Duration::ZERO;
        if has_panicked {
            after = self.panicked(&registered.id);
            // The panic's message may contain a tenant's data, and is not logged.
            tracing::error!(registration = %registered.id, "a cluster's task panicked and is restarted");
        }
        let registry = &self.shared.registry;
        if registry.remove(&registered.id) {
            self.given_back
                .insert(registered.id.clone(), Instant::now());
            self.panics.remove(&registered.id);
            self.shared
                .metrics
                .remove_cluster(&registered.id.to_string());
            return;
        }
        if self.cancel.is_cancelled() {
            return;
        }
        let registered = if serving.cancel.is_cancelled() {
            self.shared
                .metrics
                .remove_cluster(&registered.id.to_string());
            let renewed = registry.renew(&registered.id);
            if let Some(registered) = &renewed {
                worker_clusters::notify(&self.shared.worker_clusters, registered);
            }
            renewed
        } else {
            Some(registered)
        };
        if let Some(registered) = registered
            && self.is_granted(&registered.id)
        {
            self.serve(registered, after);
        }
    }

    /// Returns how long the restart of a task that panicked is delayed, so that one that always
    /// panics does not keep the process busy.
    fn panicked(&mut self, id: &RegistrationId) -> Duration {
        let now = Instant::now();
        let first = || (now, RetryDelay::default());
        let (last, delay) = self.panics.entry(id.clone()).or_insert_with(first);
        let lasted = now - std::mem::replace(last, now);
        delay.after(lasted)
    }
}

async fn until(then: Option<Instant>) {
    match then {
        Some(then) => sleep_until(then).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
