//! The tasks of the members that this replica serves: started, let go and joined here alone.

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
    discovery::Discovered,
    engagement::Shared,
    partition::{fence::Fence, grant::Grant, membership::Placement, suspicion::Suspicion},
    quarantine::{Quarantine, TRIAL},
    retry_delay::RetryDelay,
    roster::Member,
    worker_clusters,
};
use crate::tenant::id::{RegistrationId, TenantId};

/// A watch that lags for longer than this is begun anew by then.
const TOLD_AFTER: Duration = Duration::from_mins(10);

/// The tasks of the members.
pub(super) struct Crew {
    shared: Arc<Shared>,
    placement: Placement,
    cancel: CancellationToken,
    tasks: JoinSet<()>,
    serving: HashMap<Id, Serving>,
    /// Whose task has not ended. There is one task for each at a time.
    here: HashSet<RegistrationId>,
    /// What is served and granted was decided by this grant.
    placed: Grant,
    /// The tenants that may be why replicas crash.
    quarantine: Quarantine,
    /// When it goes on.
    next_trial: Option<Instant>,
    /// The tasks that `placed` does not cover, and that have not ended.
    leaving: HashSet<Id>,
    /// When members last panicked, and how long they wait the next time.
    panics: HashMap<RegistrationId, (Instant, RetryDelay)>,
    /// What was given back here, and when: the watch may not have told of its last status yet.
    given_back: HashMap<RegistrationId, Instant>,
    has_all_worker_clusters: bool,
}

/// One task.
struct Serving {
    member: Arc<Member>,
    cancel: CancellationToken,
    fence: Fence,
}

impl Crew {
    pub(super) fn new(
        shared: Arc<Shared>,
        placement: Placement,
        cancel: CancellationToken,
    ) -> Self {
        let placed = placement.grants.borrow().clone();
        Self {
            shared,
            placement,
            cancel,
            tasks: JoinSet::new(),
            serving: HashMap::new(),
            here: HashSet::new(),
            placed,
            quarantine: Quarantine::default(),
            next_trial: None,
            leaving: HashSet::new(),
            panics: HashMap::new(),
            given_back: HashMap::new(),
            has_all_worker_clusters: false,
        }
    }

    /// Waits until a task has ended or other tenants are this replica's, and sees to it.
    pub(super) async fn moved(&mut self) {
        tokio::select! {
            biased;
            Some(ended) = self.tasks.join_next_with_id() => {
                self.ended(ended.map(|(id, ())| id));
            }
            Ok(()) = self.placement.grants.changed() => self.place(),
            Ok(()) = self.placement.precautions.announced.changed() => self.try_suspects(),
            () = until(self.next_trial) => self.try_suspects(),
            () = self.shared.worker_clusters.ready(), if !self.has_all_worker_clusters => {
                self.has_all_worker_clusters = true;
                self.tell_of_bereaved(None);
            }
            else => std::future::pending().await,
        }
    }

    /// Tells that nothing is served but what is granted, where that is so.
    pub(super) fn tell(&self) {
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

    /// Tells all tasks to end, and waits for them. Others get their turn in between: ten thousand
    /// tasks woken at once would hold up the thread.
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
                if let Some(member) = self.shared.roster.present(*registration) {
                    // Who is served elsewhere counts in the turns of the fleet.
                    worker_clusters::tell(&self.shared.worker_clusters, &member);
                    if self.is_granted(&member.id) {
                        self.serve(member, Duration::ZERO);
                    }
                }
            }
            Discovered::Gone(id) => self.gone(&id),
            Discovered::Complete { limit, seen } => {
                self.shared.roster.listed(limit.clone());
                for member in self.shared.roster.members_of(limit.as_deref()) {
                    if !seen.contains(&member.id) {
                        self.gone(&member.id);
                    }
                }
                self.tell_of_bereaved(limit.as_deref());
            }
        }
    }

    /// Who serves it gives it back, and ends.
    fn gone(&self, id: &RegistrationId) {
        self.shared.roster.gone(id);
        if !self.here.contains(id) {
            self.shared.roster.remove(id);
        }
    }

    fn is_granted(&self, id: &RegistrationId) -> bool {
        self.placed.covers(&id.tenant)
    }

    /// Lets go of what is not this replica's any more, and takes what has become its own.
    fn place(&mut self) {
        self.placed = self.placement.grants.borrow_and_update().clone();
        self.leaving.clear();
        for (id, serving) in &self.serving {
            if !self.placed.covers(&serving.member.id.tenant) {
                serving.cancel.cancel();
                self.leaving.insert(*id);
            }
        }
        self.quarantine.retain(|tenant| self.placed.covers(tenant));
        for member in self.shared.roster.members() {
            if !self.here.contains(&member.id) && self.is_granted(&member.id) {
                self.serve(member, Duration::ZERO);
            }
        }
        self.tell_of_bereaved(None);
    }

    /// Registrations that were removed while nobody served them, or while the replica that did
    /// died: nobody has their kubeconfig any more, and their tenants are told so. Those of one
    /// namespace, or all of them.
    fn tell_of_bereaved(&mut self, limit: Option<&str>) {
        self.given_back.retain(|_, at| at.elapsed() < TOLD_AFTER);
        for id in self
            .shared
            .worker_clusters
            .told_of(&self.shared.fleet, limit)
        {
            if !self.is_granted(&id) || self.given_back.contains_key(&id) {
                continue;
            }
            if let Some(member) = self.shared.roster.bereaved(&id) {
                worker_clusters::tell(&self.shared.worker_clusters, &member);
                self.serve(member, Duration::ZERO);
            }
        }
    }

    /// Goes on with the trials of those who may be why replicas crash.
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
            for member in self.shared.roster.members_of(Some(tenant.namespace())) {
                member.suspicion.send_replace(None);
            }
        }
        let wait = step
            .next
            .map(|next| u64::try_from(next - now).unwrap_or_default());
        self.next_trial = wait.map(|wait| Instant::now() + Duration::from_secs(wait));
    }

    /// What crashes of replicas tell of a tenant.
    fn suspicion(&self, tenant: &TenantId) -> Option<Suspicion> {
        let crashes = self.placement.precautions.crashes.borrow();
        crashes.suspicion(tenant, self.now())
    }

    fn now(&self) -> i64 {
        self.shared.clock.now().as_second()
    }

    fn serve(&mut self, member: Arc<Member>, after: Duration) {
        let tenant = &member.id.tenant;
        let suspicion = self.suspicion(tenant);
        let held = self.quarantine.hold(tenant, suspicion, self.now());
        if held.is_some() {
            let trial = Instant::now() + TRIAL;
            self.next_trial = Some(self.next_trial.map_or(trial, |before| before.min(trial)));
        }
        member.suspicion.send_replace(held);
        member.take();
        let cancel = CancellationToken::new();
        let fence = self.placement.fence.of_tenant();
        let task = cluster_task::run(
            Arc::clone(&self.shared),
            Arc::clone(&member),
            fence.clone(),
            cancel.clone(),
        );
        let waiting = cancel.clone();
        let task = async move {
            if !after.is_zero() {
                // One that is cancelled still runs: it ends by itself.
                let _ = timeout(after, waiting.cancelled()).await;
            }
            Box::pin(task).await;
        };
        let id = self.tasks.spawn(task).id();
        self.here.insert(member.id.clone());
        let serving = Serving {
            member,
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
        self.here.remove(&serving.member.id);
        serving.fence.let_go();
        let member = serving.member;
        let mut after = Duration::ZERO;
        if has_panicked {
            after = self.panicked(&member.id);
            // What it panicked with may hold a tenant's data, and is not logged.
            tracing::error!(registration = %member.id, "a cluster's task panicked and is restarted");
        }
        let roster = &self.shared.roster;
        if roster.remove(&member.id) {
            self.given_back.insert(member.id.clone(), Instant::now());
            self.panics.remove(&member.id);
            self.shared.metrics.remove_cluster(&member.id.to_string());
            return;
        }
        if self.cancel.is_cancelled() {
            return;
        }
        let member = if serving.cancel.is_cancelled() {
            self.shared.metrics.remove_cluster(&member.id.to_string());
            let renewed = roster.renew(&member.id);
            if let Some(member) = &renewed {
                worker_clusters::tell(&self.shared.worker_clusters, member);
            }
            renewed
        } else {
            Some(member)
        };
        if let Some(member) = member
            && self.is_granted(&member.id)
        {
            self.serve(member, after);
        }
    }

    /// How long a member that panicked waits: one that always does must not be busy with it.
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
