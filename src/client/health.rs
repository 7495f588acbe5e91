//! Tracks the health of a worker cluster from the calls that are made anyway, and decides which
//! calls are sent while it is not healthy.
//!
//! A cluster is healthy, degraded (it answers with errors), refuses the credential, or is
//! unreachable. The last three have a start time and a cause. The circuit behind that state is in
//! `health/circuit.rs`.

pub mod circuit;
mod connectivity;
mod retry_after;
mod server_clock;

use std::{
    error::Error,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Method, Response, StatusCode};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};

pub use self::connectivity::Connectivity;
use self::{
    circuit::{Circuit, Failure, Pass},
    connectivity::Observations,
    retry_after::retry_after,
    server_clock::ServerClock,
};
use crate::api::{condition::ConditionType, worker_cluster::MESSAGE_CHARACTERS_MAX};
use crate::client::{
    clock::Clock,
    recurring::Recurring,
    response_filter,
    tenant_status::TenantStatus,
    transport::{self, OneCallAtATime},
};
use crate::telemetry::chain::chain;
use crate::tenant::{id::RegistrationId, report::excerpt};

/// How long a problem of a watch is reported after it was last seen. A failing watch is retried
/// more often than that.
const WATCH_PROBLEM: Duration = Duration::from_mins(1);

/// A call that was not sent.
#[derive(Debug, thiserror::Error)]
#[error("not sent: the circuit to the API server is open; next probe within a minute")]
pub struct HeldBack;

impl HeldBack {
    /// Returns true if a call failed because it was not sent.
    pub fn is_cause_of(error: &(dyn Error + 'static)) -> bool {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if error.is::<Self>() {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

/// Observes the calls to one worker cluster, holds them back while it fails, and sets the condition
/// in the tenant's status. It lives as long as the kubeconfig: another kubeconfig gets a new one.
#[derive(Debug)]
pub struct Health {
    tenant_status: Arc<TenantStatus>,
    clock: Clock,
    registration: RegistrationId,
    /// How long a cluster may be silent if its connections carry one call at a time.
    quiet_max: Duration,
    /// True if it is such a cluster.
    must_be_asked: watch::Sender<bool>,
    server_clock: ServerClock,
    observed: Mutex<Observations>,
    /// True if the last answer was that the credential is not accepted.
    is_refused: AtomicBool,
    /// The last failure that was logged about a cluster that cannot be reached.
    unreachable: Mutex<Recurring>,
    circuit: watch::Sender<Circuit>,
    /// Notified when a watch reports a problem.
    watch_problem: Notify,
}

/// A call that was let through. Dropping it without an outcome means that the call was abandoned.
#[derive(Debug)]
pub struct Observed<'a> {
    health: &'a Health,
    pass: Option<Pass>,
    is_read: bool,
}

impl Health {
    /// Creates the health of a worker cluster, which is unknown at first and is recorded in this
    /// tenant status. A cluster that speaks HTTP/1.1 gets a request when it was silent for
    /// `quiet_max`.
    pub fn new(
        tenant_status: Arc<TenantStatus>,
        clock: Clock,
        (registration, quiet_max): (RegistrationId, Duration),
    ) -> Self {
        Self {
            tenant_status,
            clock,
            registration,
            quiet_max,
            must_be_asked: watch::Sender::new(false),
            server_clock: ServerClock::default(),
            unreachable: Mutex::default(),
            is_refused: AtomicBool::new(false),
            observed: Mutex::default(),
            circuit: watch::Sender::new(Circuit::new(Instant::now())),
            watch_problem: Notify::new(),
        }
    }

    /// Returns the registration of the worker cluster.
    pub fn registration(&self) -> &RegistrationId {
        &self.registration
    }

    /// Returns the current state.
    pub fn state(&self) -> Connectivity {
        self.observed.lock().calls.clone()
    }

    /// Returns the time on the worker cluster, which decides what has expired there.
    pub fn server_time(&self) -> Timestamp {
        self.server_clock.at(self.clock.now())
    }

    /// Returns true if the last call failed because of the cluster.
    pub fn is_wrong(&self) -> bool {
        matches!(
            self.observed.lock().calls,
            Connectivity::Degraded { .. }
                | Connectivity::CredentialRefused { .. }
                | Connectivity::Unreachable { .. }
        )
    }

    /// Resets the state to unknown, because another component set `Connected`. The next outcome of
    /// a call is then recorded as a change.
    pub fn forget(&self) {
        *self.observed.lock() = Observations::default();
    }

    /// Returns true if calls are held back now.
    pub fn holds_back(&self) -> bool {
        self.circuit.borrow().holds_back(Instant::now())
    }

    /// Records how long an answered call took.
    pub fn took(&self, duration: Duration) {
        self.tenant_status.statistics.call_took(duration);
    }

    /// Reports that a watch sends events faster than they are read.
    pub fn events_delayed(&self) {
        self.watch_has_problem(None);
    }

    /// Reports that what a watch sends is refused.
    pub fn watch_failed(&self, why: String) {
        self.watch_has_problem(Some(why));
    }

    /// Lets a call through, or holds it back.
    ///
    /// # Errors
    ///
    /// Returns an error while the cluster fails, for all calls but the probe.
    pub fn admit(&self, method: &Method) -> Result<Observed<'_>, HeldBack> {
        let mut pass = None;
        self.circuit.send_if_modified(|circuit| {
            let was_closed = circuit.is_closed();
            pass = circuit.admit(Instant::now());
            pass.is_some() && !was_closed
        });
        let pass = pass.ok_or(HeldBack)?;
        Ok(Observed {
            health: self,
            pass: Some(pass),
            is_read: method.is_safe(),
        })
    }

    /// Waits until every call is let through.
    pub async fn well(&self) {
        // The sender is our own, so the wait cannot fail.
        let _ = self.circuit.subscribe().wait_for(Circuit::is_closed).await;
    }

    /// Waits until a call is let through, be it the probe.
    pub async fn due(&self) {
        let mut circuit = self.circuit.subscribe();
        loop {
            let at = circuit.borrow_and_update().opens_at(Instant::now());
            tokio::select! {
                () = sleep_or_pend(at) => return,
                _ = circuit.changed() => {}
            }
        }
    }

    /// Waits until a read must show whether the cluster is healthy.
    pub async fn in_doubt(&self) {
        let mut circuit = self.circuit.subscribe();
        // The sender is our own, so the wait cannot fail.
        let _ = circuit.wait_for(Circuit::is_in_doubt).await;
    }

    /// Waits until the cluster no longer answers.
    pub async fn silent(&self) {
        // The sender is our own, so the wait cannot fail.
        let _ = self.circuit.subscribe().wait_for(Circuit::is_silent).await;
    }

    /// Waits until a cluster that speaks HTTP/1.1 was silent for a while. The kernel of a frozen
    /// server still acknowledges data, so only a call shows that it is frozen.
    async fn quiet(&self) {
        // The sender is our own, so the wait cannot fail.
        let _ = self.must_be_asked.subscribe().wait_for(|must| *must).await;
        loop {
            let until = self.circuit.borrow().last_success() + self.quiet_max;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }

    /// Waits until a problem of a watch has not been seen for a while.
    async fn watch_problem_ends(&self) {
        loop {
            let until = self.observed.lock().watch_problem_until();
            match until {
                Some(until) if until <= Instant::now() => return,
                Some(until) => sleep_until(until).await,
                None => self.watch_problem.notified().await,
            }
        }
    }

    /// Waits until a call must show whether the cluster is healthy: it is in doubt and the delay of
    /// the open circuit is over; or a problem of a watch seems to be over; or nothing else would
    /// show that the cluster is frozen.
    pub async fn call_due(&self) {
        loop {
            let is_quiet = tokio::select! {
                () = self.in_doubt() => false,
                () = self.watch_problem_ends() => false,
                () = self.quiet() => true,
            };
            self.due().await;
            let is_watch_well_again = self.observed.lock().watch_problem_until().is_some();
            if is_quiet || is_watch_well_again || self.circuit.borrow().is_in_doubt() {
                return;
            }
        }
    }

    /// Returns what to do if a call failed because the API server does not accept the credential.
    pub fn refusal(&self, error: &kube::Error) -> Option<String> {
        let is_answer = matches!(error, kube::Error::Api(status) if status.code == 401);
        (is_answer || self.refuses(error)).then(|| self.refused_because())
    }

    /// Returns true if a call got no answer because the API server does not accept the credential:
    /// it answers one call so, and closes the connection with those that follow.
    fn refuses(&self, error: &(dyn Error + 'static)) -> bool {
        self.is_refused.load(Ordering::Relaxed) && transport::is_closed(error)
    }

    fn refused(&self, since: Timestamp) -> Connectivity {
        let why = self.refused_because();
        Connectivity::CredentialRefused { since, why }
    }

    fn refused_because(&self) -> String {
        format!(
            "the API server answers {}: it does not accept the credential in the kubeconfig; if \
             this stays, put a new kubeconfig into Secret {}",
            StatusCode::UNAUTHORIZED,
            self.registration
        )
    }

    /// Keeps the cause for the operators' page. The tenant's status has no part of it, so that
    /// nothing is to be written.
    fn keep_cause(&self, cause: Option<&str>) {
        let cause = cause.map(|it| excerpt(it, MESSAGE_CHARACTERS_MAX));
        self.tenant_status.update(|report| {
            report.no_connection = cause;
            false
        });
    }

    fn observe(&self, pass: Pass, failure: Option<Failure>, state: Connectivity) {
        let now = Instant::now();
        let mut is_closed = false;
        self.circuit.send_if_modified(|circuit| {
            let was_in_doubt = circuit.is_in_doubt();
            match failure {
                None => circuit.succeeded(pass, now),
                Some(failure) => circuit.failed(pass, failure, now),
            }
            is_closed = circuit.is_closed();
            was_in_doubt || circuit.is_in_doubt()
        });
        // The failure of a single request says nothing about the cluster. Reporting it would leave
        // the cluster unhealthy, because no call would be due.
        if is_closed == failure.is_none() {
            self.enter(state);
        }
    }

    /// Records what calls have shown. A call that changes nothing costs one comparison.
    fn enter(&self, next: Connectivity) {
        let is_well = next.is_well();
        let mut observed = self.observed.lock();
        if !observed.called(next) {
            return;
        }
        if is_well && self.unreachable.lock().is_over() {
            self.keep_cause(None);
            tracing::info!(registration = %self.registration, "the worker cluster answers again");
        }
        self.publish(&observed);
    }

    fn watch_has_problem(&self, refused: Option<String>) {
        let mut observed = self.observed.lock();
        observed.watch_has_problem(Instant::now() + WATCH_PROBLEM, refused);
        self.publish(&observed);
        drop(observed);
        self.watch_problem.notify_one();
    }

    fn publish(&self, observed: &Observations) {
        if let Some(finding) = observed.finding() {
            self.tenant_status
                .set_condition(ConditionType::Connected, finding);
        }
    }
}

impl Observed<'_> {
    /// Records that the cluster answered.
    pub fn answered<B>(mut self, answer: &Response<B>) {
        let Some(pass) = self.pass.take() else { return };
        if answer.extensions().get::<OneCallAtATime>().is_some() {
            let must_be_asked = &self.health.must_be_asked;
            must_be_asked.send_if_modified(|must| !mem::replace(must, true));
        }
        let since = self.health.clock.now();
        self.health.server_clock.observe(answer.headers(), since);
        let status = answer.status();
        let is_refused = status == StatusCode::UNAUTHORIZED;
        self.health.is_refused.store(is_refused, Ordering::Relaxed);
        if !is_failure(status) {
            let state = match self.health.server_clock.minutes_ahead() {
                None => Connectivity::Healthy,
                Some(minutes) => Connectivity::ClocksDiffer { minutes },
            };
            self.health.observe(pass, None, state);
            return;
        }
        let asked = retry_after(status, answer.headers(), since);
        let failure = match asked {
            Some(asked) => Failure::AskedToWait(asked),
            None if status == StatusCode::INTERNAL_SERVER_ERROR && !self.is_read => {
                Failure::WriteError
            }
            None => Failure::BadAnswer,
        };
        let state = if is_refused {
            self.health.refused(since)
        } else {
            let why = format!("the API server answers {status}");
            Connectivity::Degraded { since, why }
        };
        self.health.observe(pass, Some(failure), state);
    }

    /// Records that the cluster did not answer.
    pub fn unreachable(mut self, error: &(dyn Error + 'static)) {
        let Some(pass) = self.pass.take() else { return };
        let since = self.health.clock.now();
        if self.health.refuses(error) {
            let state = self.health.refused(since);
            self.health.observe(pass, Some(Failure::BadAnswer), state);
            return;
        }
        self.health.is_refused.store(false, Ordering::Relaxed);
        let why = chain(error).to_string();
        let cause = transport::hidden_cause(error).unwrap_or(&why);
        if self.health.unreachable.lock().is_news(cause) {
            self.health.keep_cause(Some(cause));
            let registration = &self.health.registration;
            tracing::warn!(%registration, cause, "cannot reach a worker cluster");
        }
        let state = Connectivity::Unreachable { since, why };
        self.health.observe(pass, Some(Failure::Silence), state);
    }
}

impl Drop for Observed<'_> {
    fn drop(&mut self) {
        if let Some(pass) = self.pass {
            let circuit = &self.health.circuit;
            circuit.send_modify(|circuit| circuit.abandoned(pass, Instant::now()));
        }
    }
}

/// Returns true if the answer says something about the cluster rather than about the request.
fn is_failure(status: StatusCode) -> bool {
    response_filter::expect_answer(status).is_err()
        || status.is_server_error()
        || status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::UNAUTHORIZED
}

async fn sleep_or_pend(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
