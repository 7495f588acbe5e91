//! The task of one registration. It engages the cluster and serves it, again and again.
//!
//! A failure is retried with a delay that grows up to a limit, with jitter. A changed kubeconfig is
//! tried at once. All of this costs other tenants nothing but a share of the permits.

mod changes;
mod give_back;

use std::{pin::Pin, sync::Arc, time::Duration};

use futures::{FutureExt, future::FusedFuture};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use self::changes::Served;
use super::{
    discovery::Registration,
    engage::{self, Asking, Attempt, EngageError, EngageLatency, Holding},
    engagement::{Engagement, Home, Reporting, Shared},
    registry::RegisteredCluster,
    tenant_limits, worker_clusters,
};
use crate::api::{
    condition::ConditionType,
    reason::Reason,
    worker_cluster::{self, Credentials, WorkerCluster},
};
use crate::client::{
    connect::{ClientParts, Clients, Share},
    fence::Fence,
    health::Health,
    rate_limit::Budget,
    recurring::Recurring,
    retry_delay::RetryDelay,
};
use crate::telemetry::{chain::chain, metrics::ClusterKind};
use crate::tenant::{
    class::TenantClass,
    id::{RegistrationId, TenantId},
    mode::Mode,
    policy::TenantPolicy,
};

/// How long running reconciles may take to end when their cluster is disengaged: one request
/// timeout and a render.
const DISENGAGE_TIMEOUT: Duration = Duration::from_secs(15);

/// Serves one registered cluster until its registration is removed, or until cancelled.
pub async fn run(
    shared: Arc<Shared>,
    registered: Arc<RegisteredCluster>,
    fence: Fence,
    cancel: CancellationToken,
) {
    // The tenant's policy may depend on the labels of its namespace. Until they are read, the task
    // only waits, and reports that.
    let policy = Arc::clone(shared.policies.of_unlabelled(&registered.id.tenant));
    let management_budget = Arc::new(Budget::new(policy.management_requests));
    let management = management_share(&shared, &registered.id.tenant, &management_budget, &fence);
    let was_removed = registered.registration.borrow().is_none();
    if was_removed && !is_gone(&management.client(), &registered.id, &cancel).await {
        return;
    }
    if was_removed {
        // Its status names this fleet.
        let (status, fleet) = (&registered.status, shared.fleet.clone());
        status.set(|report| &mut report.fleet, Some(fleet));
    }
    let reporting = CancellationToken::new();
    let report = (shared.report)(Reporting {
        registered: Arc::clone(&registered),
        management: management.clone(),
        clock: shared.clock.clone(),
        cancel: reporting.clone(),
    });
    let answer = answer(
        Arc::clone(&shared),
        Arc::clone(&registered),
        management.clone(),
    );
    let serve = async {
        let _ends_the_report = reporting.drop_guard();
        let task = Task {
            class: policy.class.clone(),
            worker_budget: Arc::new(Budget::new(policy.worker_requests)),
            management_budget,
            shared,
            registered,
            management,
            fence,
            last: None,
            connecting: Mutex::default(),
            asking: Asking::default(),
        };
        // On the heap, once per cluster task.
        Box::pin(task.run(&cancel)).await;
    };
    tokio::select! {
        ((), ()) = async { tokio::join!(report, serve) } => {}
        () = answer => {}
    }
}

/// Answers other fleets that ask for the tenant. Never completes.
async fn answer(shared: Arc<Shared>, registered: Arc<RegisteredCluster>, management: Clients) {
    let holding = Holding {
        shared: &shared,
        registered: &registered,
        management: &management,
    };
    holding.answer(&shared.clock).await;
}

/// Returns true if a registration that this replica never saw was removed. If its Secret exists, it
/// lost the label or belongs to another fleet, which reports it.
async fn is_gone(management: &Client, id: &RegistrationId, cancel: &CancellationToken) -> bool {
    let secrets: Api<Secret> = Api::namespaced(management.clone(), id.tenant.namespace());
    for delay in RetryDelay::default() {
        match secrets.get_metadata_opt(&id.name).await {
            Ok(found) => return found.is_none(),
            Err(error) => tracing::debug!(
                registration = %id, error = %chain(&error), "cannot look for it"
            ),
        }
        if timeout(delay, cancel.cancelled()).await.is_ok() {
            break;
        }
    }
    false
}

fn management_share(
    shared: &Shared,
    tenant: &TenantId,
    budget: &Arc<Budget>,
    fence: &Fence,
) -> Clients {
    Clients::new(ClientParts {
        transport: shared.management.clone(),
        budget: Arc::clone(budget),
        share: Some(Share {
            budget: Arc::clone(&shared.management_budget),
            tenant: tenant.clone(),
        }),
        timeout: shared.request_timeout,
        health: None,
        fence: Some(fence.clone()),
        memory: None,
        kind: ClusterKind::Management,
        metrics: shared.metrics.clone(),
    })
}

struct Task {
    shared: Arc<Shared>,
    registered: Arc<RegisteredCluster>,
    management: Clients,
    /// Checks every write for the tenant.
    fence: Fence,
    /// The budget of the worker cluster. It lives as long as the task: with a new budget after each
    /// change, a registration that keeps changing could send any number of requests.
    worker_budget: Arc<Budget>,
    /// The budget of the tenant's share of the management API.
    management_budget: Arc<Budget>,
    /// The tenant's class, as of the last policy that is known.
    class: TenantClass,
    /// The last attempt that succeeded. It is used to release the cluster.
    last: Option<Attempt>,
    /// The last failure to connect that was logged.
    connecting: Mutex<Recurring>,
    /// When the tenant may be asked for, if another fleet serves it.
    asking: Asking,
}

impl Task {
    async fn run(mut self, cancel: &CancellationToken) {
        let mut registrations = self.registered.registration.subscribe();
        loop {
            let registration = registrations.borrow_and_update().clone();
            let Some(registration) = registration else {
                Box::pin(self.give_back(&mut registrations, cancel)).await;
                return;
            };
            let status = &self.registered.status;
            status.update(|report| report.findings.remove(&ConditionType::Released).is_some());
            let stop = cancel.child_token();
            let id = self.registered.id.clone();
            let served = Served::new(&self.shared, &self.registered, &self.management);
            let serving = Box::pin(self.serve(&served, stop.clone())).fuse();
            tokio::pin!(serving);
            let other = served.until_another(registration, &mut registrations);
            // Cancellation comes first: else a burst of changes could delay the end.
            tokio::select! {
                biased;
                () = cancel.cancelled() => {}
                () = other => {}
                () = &mut serving => {}
            }
            stop.cancel();
            finish(serving, &id).await;
            if cancel.is_cancelled() {
                return;
            }
        }
    }

    /// Engages the cluster and serves it, as often as necessary, until `stop` is cancelled.
    async fn serve(&mut self, served: &Served, stop: CancellationToken) {
        let (mut delay, mut again) = (RetryDelay::default(), RetryDelay::default());
        let mut latency = EngageLatency::new(&self.shared.metrics);
        // The health of a new kubeconfig is unknown, whatever it was with the previous one.
        let health = self.shared.health_of(&self.registered);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = self.shared.worker_clusters.ready() => {}
        }
        worker_clusters::notify(&self.shared.worker_clusters, &self.registered);
        self.holding().resume();
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = engage::until_admitted(&self.registered, |why| {
                self.note(why, &health);
            }) => {}
        }
        while !stop.is_cancelled() {
            let held = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                held = Box::pin(self.holding().hold(&self.asking)) => held,
            };
            let mut worker_clusters = self.registered.worker_cluster.subscribe();
            let mut ownerships = self.registered.ownership.subscribe();
            worker_clusters.borrow_and_update();
            ownerships.borrow_and_update();
            latency.begin();
            // The latest: a renewed credential ends no loop.
            let Some(registration) = self.registered.registration.borrow().clone() else {
                return;
            };
            let attempt = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                attempt = Box::pin(self.engage(held, registration, &health)) => attempt,
            };
            let wait = match attempt {
                Ok((policy, attempt)) => {
                    latency.engaged(&self.class);
                    self.connecting.lock().is_over();
                    delay = RetryDelay::default();
                    self.last = Some(attempt.clone());
                    let begun = Instant::now();
                    served.begin(&policy, &attempt);
                    Box::pin(self.serve_engaged((policy, attempt), &stop)).await;
                    served.end();
                    // The cause that ended this engagement may end the next one as quickly.
                    let _ = timeout(again.after(begun.elapsed()), stop.cancelled()).await;
                    continue;
                }
                Err(engage_error) => {
                    latency.failed(&engage_error, &self.class);
                    let is_retried = self.note(&engage_error, &health);
                    is_retried.then(|| delay.next()).flatten()
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                // Sent when the uid, the spec or the fleet changes. Our reports send nothing.
                _ = worker_clusters.changed() => {}
                _ = ownerships.changed() => {}
                () = sleep_or_pend(wait) => {}
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = health.due() => {}
            }
        }
    }

    /// Fetches the tenant's policy, then tries once to engage its cluster, if this fleet serves it.
    async fn engage(
        &mut self,
        held: Result<(), EngageError>,
        registration: Arc<Registration>,
        health: &Arc<Health>,
    ) -> Result<(Arc<TenantPolicy>, Attempt), EngageError> {
        held?;
        let policy = tenant_limits::policy_of(
            &self.shared,
            &self.management.client(),
            &self.registered.id.tenant,
        )
        .await
        .map_err(|error| {
            let message = format!(
                "cannot read the labels of the tenant's namespace, which decide what bounds \
                     it: {}",
                chain(&error)
            );
            EngageError::failed(ConditionType::Registered, Reason::PolicyUnknown, message)
        })?;
        self.class = policy.class.clone();
        self.worker_budget.resize(policy.worker_requests);
        self.management_budget.resize(policy.management_requests);
        let registration = &self.with_kubeconfig(registration).await?;
        let attempt = engage::attempt(engage::Params {
            shared: &self.shared,
            policy: &policy,
            registered: &self.registered,
            management: &self.management,
            registration,
            worker_budget: &self.worker_budget,
            fence: &self.fence,
            health,
        })
        .await?;
        let status = &self.registered.status;
        let engaged_with = registration.fingerprint();
        status.set(|report| &mut report.kubeconfig, engaged_with);
        Ok((policy, attempt))
    }

    fn holding(&self) -> Holding<'_> {
        Holding {
            shared: &self.shared,
            registered: &self.registered,
            management: &self.management,
        }
    }

    /// Reads the kubeconfig of a registration that came without, if the namespace is its own.
    async fn with_kubeconfig(
        &self,
        registration: Arc<Registration>,
    ) -> Result<Arc<Registration>, EngageError> {
        if !self.registered.is_to_be_read(&registration) {
            return Ok(registration);
        }
        engage::read_kubeconfig(&self.management, &self.registered, &registration).await
    }

    /// Records an engage error in the tenant's status, unless failed calls have reported the cause
    /// already. Returns true if a later attempt may succeed without a change.
    fn note(&self, engage_error: &EngageError, health: &Health) -> bool {
        let is_of_health = engage_error.condition == ConditionType::Connected;
        if is_of_health && health.is_wrong() {
            return engage_error.retry;
        }
        let is_news = engage_error.report_to(&self.registered.status);
        // The writer of the status logs the rest. Between two failures, a call may have succeeded.
        let why = &engage_error.message;
        if is_news && is_of_health && self.connecting.lock().is_news(why) {
            tracing::warn!(registration = %self.registered.id, %why, "cannot connect");
        }
        if is_of_health || engage_error.condition == ConditionType::Registered {
            // `Connected` has another reason now, or none. The next successful call sets it.
            health.forget();
        }
        engage_error.retry
    }

    /// Serves an engaged cluster until it is stopped, paused, or owned by another registration.
    async fn serve_engaged(
        &self,
        (policy, attempt): (Arc<TenantPolicy>, Attempt),
        stop: &CancellationToken,
    ) {
        let leave = stop.child_token();
        let (sender, cluster_info) = watch::channel(Arc::clone(&attempt.cluster_info));
        let notify = Arc::new(Notify::new());
        let foreign_write = Arc::new(Notify::new());
        let engagement = Engagement {
            registration: self.registered.id.clone(),
            shared: Arc::clone(&self.shared),
            policy: Arc::clone(&policy),
            worker: attempt.worker.clone(),
            health: Arc::clone(&attempt.health),
            worker_budget: Arc::clone(&self.worker_budget),
            management: self.management.clone(),
            home: Home::in_management(&self.management, &self.registered.id.tenant),
            mode: Mode::Fleet,
            defaults: self.shared.defaults.clone(),
            kubeconfig_ca: Arc::clone(&attempt.kubeconfig_ca),
            cluster_info,
            cluster_info_notify: Arc::clone(&notify),
            foreign_write: Arc::clone(&foreign_write),
            worker_cluster: self.registered.last.subscribe(),
            tenant_status: Arc::clone(&self.registered.status),
            predecessor: attempt.predecessor,
            cancel: leave.clone(),
        };
        let engagement = match attempt.home {
            worker_cluster::Home::Management => engagement,
            worker_cluster::Home::Worker => engagement.with_home_in_worker(),
        };
        tracing::info!(registration = %self.registered.id, server = %attempt.server, "engaged");
        let keeping = engage::Keeping {
            shared: &self.shared,
            registered: &self.registered,
            management: &self.management,
            policy: &policy,
            attempt: &attempt,
        };
        let read = (&attempt, &*self.registered.status);
        let serving = (self.shared.serve)(engagement).fuse();
        tokio::pin!(serving);
        tokio::select! {
            () = &mut serving => {}
            () = engage::keep_cluster_info(&self.shared, read, &sender, &notify) => {}
            () = engage::until_another_serves(&self.shared, &attempt, &foreign_write) => {}
            () = engage::keep_probing(&attempt) => {}
            () = engage::keep_credential(keeping) => {}
            () = self.must_leave(attempt.credentials) => {}
            () = tenant_limits::changed(
                &self.shared,
                &self.management,
                &self.registered.id.tenant,
                &policy,
            ) => {}
            () = stop.cancelled() => {}
        }
        leave.cancel();
        finish(serving, &self.registered.id).await;
        let own = self.registered.worker_cluster.borrow().clone();
        if own.is_some_and(|own| own.spec.paused) {
            engage::let_others_serve(&attempt).await;
        }
        tracing::info!(registration = %self.registered.id, "disengaged");
    }

    /// Waits until the cluster must be disengaged: its WorkerCluster is paused or deleted, its
    /// credential comes from elsewhere, or another registration or fleet has the namespace.
    async fn must_leave(&self, credentials: Credentials) {
        let mut worker_clusters = self.registered.worker_cluster.subscribe();
        let mut ownerships = self.registered.ownership.subscribe();
        loop {
            let own = worker_clusters.borrow_and_update().clone();
            let ownership = ownerships.borrow_and_update().clone();
            let is_federated = |it: Credentials| it == Credentials::Federated;
            let may_serve = |own: &Arc<WorkerCluster>| {
                engage::may_serve(own, &ownership)
                    && is_federated(own.spec.credentials) == is_federated(credentials)
            };
            let Some(own) = own.filter(may_serve) else {
                return;
            };
            if self.holding().has_lost(&own, &self.asking) {
                return;
            }
            let status = &self.registered.status;
            status.set_condition(ConditionType::Registered, engage::accepted(&own));
            tokio::select! {
                _ = worker_clusters.changed() => {}
                _ = ownerships.changed() => {}
            }
        }
    }
}

/// Waits a limited time for a cancelled task to end.
async fn finish<F: FusedFuture<Output = ()>>(serving: Pin<&mut F>, id: &RegistrationId) {
    if !serving.is_terminated() && timeout(DISENGAGE_TIMEOUT, serving).await.is_err() {
        tracing::warn!(registration = %id, "a reconcile was cut short");
    }
}

async fn sleep_or_pend(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
