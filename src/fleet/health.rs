//! How a worker cluster is doing, from the calls that are made anyway, and which calls are sent
//! while it is not well.
//!
//! A cluster is healthy, degraded (it answers, and badly) or unreachable. The last two have a
//! beginning and a cause. The circuit behind that state is in `health/circuit.rs`.

pub mod circuit;
mod retry_after;

use std::{
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{Method, Response, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use self::{
    circuit::{Circuit, Failure, Pass},
    retry_after::retry_after,
};
use super::{board::Board, clock::Clock, connect::Clients};
use crate::api::names::KUBE_SYSTEM;
use crate::telemetry::logs::chain;
use crate::tenant::report::{ConditionType, Finding};

/// How a cluster is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// No call has been observed yet that says anything.
    Unknown,
    /// The circuit is closed: at most an accident of one request lies behind.
    Healthy,
    /// The circuit is open, and the last answer said that something is wrong with the cluster.
    Degraded {
        /// When that began.
        since: Timestamp,
        /// The last cause, without secrets.
        why: String,
    },
    /// The circuit is open, and the last call got no answer.
    Unreachable {
        /// When that began.
        since: Timestamp,
        /// The last cause, without secrets.
        why: String,
    },
}

/// A call that was not sent.
#[derive(Debug, thiserror::Error)]
#[error("not sent: the API server fails or asks for patience, and is asked again in a while")]
pub struct HeldBack;

impl HeldBack {
    /// Whether a call failed because it was not sent.
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

/// Observes the calls to one worker cluster, holds them back while it fails, and writes changes to
/// the tenant's board. It lives as long as the kubeconfig: another one starts anew.
#[derive(Debug)]
pub struct Health {
    board: Arc<Board>,
    clock: Clock,
    state: Mutex<State>,
    circuit: watch::Sender<Circuit>,
}

/// A call that was let through; one that is dropped unobserved was given up.
#[derive(Debug)]
pub struct Observed<'a> {
    health: &'a Health,
    pass: Option<Pass>,
    is_read: bool,
}

impl Health {
    /// Writes to this board.
    pub fn new(board: Arc<Board>, clock: Clock) -> Self {
        Self {
            board,
            clock,
            state: Mutex::new(State::Unknown),
            circuit: watch::Sender::new(Circuit::new(Instant::now())),
        }
    }

    /// How the cluster is doing.
    pub fn state(&self) -> State {
        self.lock().clone()
    }

    /// Whether the last call found something wrong with the cluster.
    pub fn is_wrong(&self) -> bool {
        matches!(
            *self.lock(),
            State::Degraded { .. } | State::Unreachable { .. }
        )
    }

    /// Somebody else has told how the cluster is doing: the next call that says something is news.
    pub fn forget(&self) {
        *self.lock() = State::Unknown;
    }

    /// Whether calls are held back now.
    pub fn holds_back(&self) -> bool {
        self.circuit.borrow().holds_back(Instant::now())
    }

    /// A call was answered after so long.
    pub fn took(&self, duration: Duration) {
        self.board.vitals.call_took(duration);
    }

    /// Lets a call through, or says that it is held back.
    ///
    /// # Errors
    ///
    /// While the cluster fails, for all calls but the one that decides.
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

    /// Waits until a call is let through: all of them, or the one that decides.
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

    /// Waits until a read must say how the cluster is.
    pub async fn in_doubt(&self) {
        let mut circuit = self.circuit.subscribe();
        // The sender is our own, so the wait cannot fail.
        let _ = circuit.wait_for(Circuit::is_in_doubt).await;
    }

    /// Asks the cluster whenever it is in doubt, after the delay of the open circuit: everybody
    /// else waits until it is well.
    pub async fn keep_asking(&self, worker: &Clients) {
        loop {
            self.in_doubt().await;
            self.due().await;
            if self.circuit.borrow().is_in_doubt() {
                let namespaces: Api<Namespace> = Api::all(worker.client());
                // The outcome is observed where it passes.
                drop(Box::pin(namespaces.get_metadata(KUBE_SYSTEM)).await);
            }
        }
    }

    fn observe(&self, pass: Pass, failure: Option<Failure>, state: State) {
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
        // An accident of one request says nothing about the cluster: nobody would ask it again.
        if is_closed == failure.is_none() {
            self.enter(state);
        }
    }

    fn enter(&self, mut next: State) {
        let mut state = self.lock();
        match (&*state, &mut next) {
            // A call that changes nothing costs one comparison.
            (State::Healthy, State::Healthy) => return,
            (State::Degraded { since: begun, .. }, State::Degraded { since, .. })
            | (State::Unreachable { since: begun, .. }, State::Unreachable { since, .. }) => {
                *since = *begun;
            }
            _ => {}
        }
        if *state == next {
            return;
        }
        let finding = match &next {
            State::Unknown => return,
            State::Healthy => Finding::well("Healthy"),
            State::Degraded { why, .. } => Finding::wrong("Degraded", why.as_str()),
            State::Unreachable { why, .. } => Finding::wrong("Unreachable", why.as_str()),
        };
        *state = next;
        self.board.found(ConditionType::Connected, finding);
    }

    /// A panic elsewhere leaves a whole state behind: each write is one assignment.
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observed<'_> {
    /// The cluster answered.
    pub fn answered<B>(mut self, answer: &Response<B>) {
        let Some(pass) = self.pass.take() else { return };
        let status = answer.status();
        if !is_failure(status) {
            self.health.observe(pass, None, State::Healthy);
            return;
        }
        let since = self.health.clock.now();
        let asked = retry_after(status, answer.headers(), since);
        let failure = match asked {
            Some(asked) => Failure::AskedToWait(asked),
            None if status == StatusCode::INTERNAL_SERVER_ERROR && !self.is_read => {
                Failure::WriteError
            }
            None => Failure::BadAnswer,
        };
        let why = format!("the API server answers {status}");
        let state = State::Degraded { since, why };
        self.health.observe(pass, Some(failure), state);
    }

    /// The cluster did not answer.
    pub fn unreachable(mut self, error: &(dyn Error + 'static)) {
        let Some(pass) = self.pass.take() else { return };
        let since = self.health.clock.now();
        let why = chain(error).to_string();
        let state = State::Unreachable { since, why };
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

/// Whether the answer says something about the cluster rather than about the request.
fn is_failure(status: StatusCode) -> bool {
    status.is_server_error()
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
mod tests {
    use super::*;

    fn a_health() -> (Health, Arc<Board>) {
        let board = Arc::new(Board::default());
        let clock = Clock::tokio(Timestamp::UNIX_EPOCH);
        (Health::new(Arc::clone(&board), clock), board)
    }

    fn said(board: &Board) -> (bool, &'static str, String) {
        let report = board.report();
        let finding = report.findings[&ConditionType::Connected].clone();
        (finding.holds, finding.reason, finding.message)
    }

    fn an_answer(status: StatusCode) -> Response<()> {
        let mut answer = Response::new(());
        *answer.status_mut() = status;
        answer
    }

    /// The next calls are answered so.
    async fn answered(health: &Health, status: StatusCode, times: usize) {
        for _ in 0..times {
            health.due().await;
            health
                .admit(&Method::GET)
                .unwrap()
                .answered(&an_answer(status));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_call_that_moves_the_circuit_wakes_who_waits_for_it() {
        let (health, _) = a_health();
        let mut circuit = health.circuit.subscribe();
        let mut has_moved = || {
            let has_moved = circuit.has_changed().unwrap();
            circuit.mark_unchanged();
            has_moved
        };
        answered(&health, StatusCode::OK, 1).await;
        assert!(!has_moved(), "it is well as before");
        answered(&health, StatusCode::SERVICE_UNAVAILABLE, 3).await;
        assert!(has_moved(), "it is in doubt");
        health.due().await;
        let call = health.admit(&Method::GET).unwrap();
        assert!(has_moved(), "the call that decides is under way");
        call.answered(&an_answer(StatusCode::OK));
        assert!(has_moved(), "it is well again");
    }

    #[tokio::test(start_paused = true)]
    async fn the_board_says_what_the_circuit_says() {
        let (health, board) = a_health();
        for (status, holds, reason) in [
            (StatusCode::OK, true, "Healthy"),
            (StatusCode::SERVICE_UNAVAILABLE, false, "Degraded"),
            (StatusCode::NOT_FOUND, true, "Healthy"),
            (StatusCode::TOO_MANY_REQUESTS, false, "Degraded"),
            (StatusCode::CONFLICT, true, "Healthy"),
            (StatusCode::UNAUTHORIZED, false, "Degraded"),
            (StatusCode::FORBIDDEN, true, "Healthy"),
        ] {
            answered(&health, status, 1).await;
            assert!(said(&board).0, "once is an accident: {status}");
            answered(&health, status, 2).await;
            assert_eq!(said(&board).0, holds, "{status}");
            assert_eq!(said(&board).1, reason, "{status}");
        }
        answered(&health, StatusCode::INTERNAL_SERVER_ERROR, 3).await;
        assert!(said(&board).2.contains("500"));
        answered(&health, StatusCode::BAD_GATEWAY, 1).await;
        assert!(said(&board).2.contains("502"), "another failure is news");
        health.due().await;
        let refused = std::io::Error::other("refused");
        health.admit(&Method::GET).unwrap().unreachable(&refused);
        assert_eq!(said(&board), (false, "Unreachable", "refused".to_owned()));
        health.due().await;
        health
            .admit(&Method::GET)
            .unwrap()
            .answered(&an_answer(StatusCode::OK));
        assert!(said(&board).0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_keeps_its_beginning_and_tells_its_last_cause() {
        let (health, _) = a_health();
        assert_eq!(health.state(), State::Unknown);
        for cause in ["refused", "reset", "refused"] {
            health.due().await;
            let error = std::io::Error::other(cause);
            health.admit(&Method::GET).unwrap().unreachable(&error);
            let since = Timestamp::UNIX_EPOCH;
            let why = cause.to_owned();
            assert_eq!(health.state(), State::Unreachable { since, why });
        }
        tokio::time::sleep(Duration::from_mins(1)).await;
        answered(&health, StatusCode::BAD_GATEWAY, 1).await;
        let State::Degraded { since, .. } = health.state() else {
            panic!("{:?}", health.state());
        };
        assert!(since > Timestamp::UNIX_EPOCH, "another state has begun");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_until_it_is_well_wakes_when_it_is() {
        let (health, _) = a_health();
        let refused = std::io::Error::other("refused");
        health.admit(&Method::GET).unwrap().unreachable(&refused);
        assert!(health.holds_back());
        assert!(health.admit(&Method::GET).is_err());
        let heal = async {
            health.due().await;
            let probe = health.admit(&Method::GET).expect("it is due");
            assert!(health.admit(&Method::GET).is_err(), "one call decides");
            drop(probe);
            let probe = health.admit(&Method::GET).expect("the other was given up");
            probe.answered(&an_answer(StatusCode::OK));
        };
        tokio::join!(health.well(), heal);
        assert_eq!(health.state(), State::Healthy);
    }

    #[tokio::test(start_paused = true)]
    async fn errors_of_writes_leave_the_cluster_healthy_and_those_of_reads_do_not() {
        let failed = an_answer(StatusCode::INTERNAL_SERVER_ERROR);
        for (method, is_wrong) in [
            (Method::POST, false),
            (Method::PATCH, false),
            (Method::GET, true),
        ] {
            let (health, _) = a_health();
            for _ in 0..3 {
                health.admit(&method).unwrap().answered(&failed);
            }
            assert_eq!(health.is_wrong(), is_wrong, "{method}");
            assert_eq!(health.holds_back(), is_wrong, "{method}");
        }
        let (health, _) = a_health();
        for _ in 0..3 {
            let unavailable = an_answer(StatusCode::SERVICE_UNAVAILABLE);
            health.admit(&Method::POST).unwrap().answered(&unavailable);
        }
        assert!(health.is_wrong(), "another error of a write counts");
    }

    #[tokio::test(start_paused = true)]
    async fn a_state_that_was_forgotten_is_news_again() {
        let (health, board) = a_health();
        answered(&health, StatusCode::OK, 1).await;
        assert!(!health.is_wrong());
        board.found(ConditionType::Connected, Finding::wrong("Other", "why"));
        answered(&health, StatusCode::OK, 1).await;
        assert_eq!(said(&board).1, "Other", "it was not news");
        health.forget();
        assert_eq!(health.state(), State::Unknown);
        answered(&health, StatusCode::OK, 1).await;
        assert_eq!(said(&board).1, "Healthy");
    }

    #[test]
    fn a_call_that_was_held_back_is_found_among_the_causes() {
        let held_back = kube::Error::Service(Box::new(HeldBack));
        assert!(HeldBack::is_cause_of(&HeldBack));
        assert!(HeldBack::is_cause_of(&held_back));
        assert!(!HeldBack::is_cause_of(&std::io::Error::other("refused")));
    }
}
