//! The circuit breaker of one cluster. It decides which calls are sent while the cluster fails, and
//! when the next one is sent.
//!
//! ```text
//! Closed ──no answer, three bad ones, Retry-After──► Open ──delay──► Probing ──good──► Closed
//!                                                     ▲───────bad──────┘
//! ```
//!
//! While the circuit is open no call is sent. After the delay one call is sent, the probe, and its
//! outcome decides. A dead cluster therefore costs one call per delay, however many callers there
//! are.
//!
//! An error in the answer to a write may be caused by that write alone, for example by a webhook
//! that fails or a full store. It puts the cluster in doubt, and a read decides. If the circuit
//! opens again soon after it closed, the delay continues to grow, so that a single good answer in
//! between does not cause more calls.

use std::time::Duration;

use tokio::time::Instant;

use crate::client::retry_delay::RetryDelay;

/// The longest delay for a cluster that was healthy recently: it may be restarting.
const RECENT_CAP: Duration = Duration::from_secs(15);
/// The longest delay for a cluster that has failed for longer than `RECENT`.
const LATER_CAP: Duration = Duration::from_mins(1);
/// A cluster that was healthy within this time was healthy recently.
const RECENT: Duration = Duration::from_hours(1);
/// The longest delay that a server can request.
pub const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);
/// After this many bad responses in a row, the cluster is at fault and not one request.
const BAD_ANSWERS: u32 = 3;

/// The kind of failure of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There was no answer.
    Silence,
    /// The answer shows that something is wrong with the server.
    BadAnswer,
    /// A write was answered with a server error, which this write alone may have caused.
    WriteError,
    /// The server asked us to wait for this time.
    AskedToWait(Duration),
}

/// The right to send one call. Its outcome counts only while the epoch is the same.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    epoch: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Closed,
    Open { until: Instant },
    Probing,
}

/// The circuit of one cluster.
#[derive(Debug)]
pub struct Circuit {
    phase: Phase,
    /// Incremented when the circuit opens. Calls that were sent before that say nothing new.
    epoch: u64,
    bad_answers: u32,
    delay: RetryDelay,
    last_success: Instant,
    last_failure: Option<Failure>,
    closed_since: Instant,
}

impl Circuit {
    /// Creates a closed circuit. A cluster that was never called counts as healthy until now.
    pub fn new(now: Instant) -> Self {
        Self {
            phase: Phase::Closed,
            epoch: 0,
            bad_answers: 0,
            delay: RetryDelay::default(),
            last_success: now,
            last_failure: None,
            closed_since: now,
        }
    }

    /// Returns a pass if the call may be sent.
    pub fn admit(&mut self, now: Instant) -> Option<Pass> {
        match self.phase {
            Phase::Closed => {}
            Phase::Open { until } if now >= until => self.phase = Phase::Probing,
            Phase::Open { .. } | Phase::Probing => return None,
        }
        Some(Pass { epoch: self.epoch })
    }

    /// Returns true if a call would be held back now.
    pub fn holds_back(&self, now: Instant) -> bool {
        match self.phase {
            Phase::Closed => false,
            Phase::Open { until } => now < until,
            Phase::Probing => true,
        }
    }

    /// Returns true if every call is let through.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Returns true if calls are held back because the last one was not answered.
    pub fn is_silent(&self) -> bool {
        !self.is_closed() && self.last_failure == Some(Failure::Silence)
    }

    /// Returns the time of the last good answer.
    pub fn last_success(&self) -> Instant {
        self.last_success
    }

    /// Returns true if a read must show whether the cluster is healthy: calls are held back, or
    /// several calls in a row got bad answers.
    pub fn is_in_doubt(&self) -> bool {
        !self.is_closed() || self.bad_answers >= BAD_ANSWERS
    }

    /// Returns the time at which a call is let through. Returns `None` while the probe is under
    /// way.
    pub fn opens_at(&self, now: Instant) -> Option<Instant> {
        match self.phase {
            Phase::Closed => Some(now),
            Phase::Open { until } => Some(until),
            Phase::Probing => None,
        }
    }

    /// Records a good answer.
    pub fn succeeded(&mut self, pass: Pass, now: Instant) {
        if pass.epoch != self.epoch {
            return;
        }
        if !self.is_closed() {
            self.phase = Phase::Closed;
            self.closed_since = now;
        }
        self.bad_answers = 0;
        self.last_success = now;
    }

    /// Records a failure.
    pub fn failed(&mut self, pass: Pass, failure: Failure, now: Instant) {
        if pass.epoch != self.epoch {
            return;
        }
        self.bad_answers += 1;
        let is_accident = match failure {
            Failure::WriteError => true,
            Failure::BadAnswer => self.bad_answers < BAD_ANSWERS,
            Failure::Silence | Failure::AskedToWait(_) => false,
        };
        if self.is_closed() && is_accident {
            return;
        }
        let was_well = now.duration_since(self.last_success) < RECENT;
        self.delay
            .set_cap(if was_well { RECENT_CAP } else { LATER_CAP });
        let lasted = if self.is_closed() {
            now.duration_since(self.closed_since)
        } else {
            Duration::ZERO
        };
        let delay = self.delay.after(lasted);
        let asked = match failure {
            Failure::AskedToWait(asked) => asked.min(RETRY_AFTER_MAX),
            Failure::Silence | Failure::BadAnswer | Failure::WriteError => Duration::ZERO,
        };
        self.epoch += 1;
        self.last_failure = Some(failure);
        self.phase = Phase::Open {
            until: now + delay.max(asked),
        };
    }

    /// Records that a call was abandoned before its outcome was known. If it was the probe, the
    /// next call becomes the probe.
    pub fn abandoned(&mut self, pass: Pass, now: Instant) {
        if pass.epoch == self.epoch && self.phase == Phase::Probing {
            self.phase = Phase::Open { until: now };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets the cluster fail from now on, and returns the delays between the calls.
    fn delays_of(
        circuit: &mut Circuit,
        failure: Failure,
        from: Instant,
        for_: Duration,
    ) -> Vec<Duration> {
        let mut now = from;
        let mut delays = Vec::new();
        while now < from + for_ {
            let pass = circuit.admit(now).expect("it is due");
            circuit.failed(pass, failure, now);
            let next = circuit.opens_at(now).expect("nothing is under way");
            delays.push(next - now);
            now = next;
        }
        delays
    }

    #[test]
    fn delays_grow_to_fifteen_seconds_within_the_hour_and_to_sixty_after_it() {
        let start = Instant::now();
        let mut circuit = Circuit::new(start);
        let first = delays_of(&mut circuit, Failure::Silence, start, RECENT);
        assert!(first[0] <= Duration::from_millis(500), "{first:?}");
        let (most, least) = (
            first.iter().max().unwrap(),
            first[6..].iter().min().unwrap(),
        );
        assert!(*most <= RECENT_CAP && *least >= RECENT_CAP / 2, "{first:?}");
        let late = start + RECENT + RECENT_CAP;
        let later = delays_of(&mut circuit, Failure::Silence, late, RECENT);
        let (most, least) = (
            later.iter().max().unwrap(),
            later[4..].iter().min().unwrap(),
        );
        assert!(*most <= LATER_CAP && *most > RECENT_CAP, "{later:?}");
        assert!(*least >= LATER_CAP / 2, "{later:?}");
        let back = late + RECENT + LATER_CAP;
        let pass = circuit.admit(back).expect("it is due");
        circuit.succeeded(pass, back);
        let well = back + RECENT / 2;
        let again = delays_of(&mut circuit, Failure::Silence, well, RECENT / 2);
        assert!(again[0] <= Duration::from_millis(500), "{again:?}");
        assert!(again.iter().all(|delay| *delay <= RECENT_CAP), "{again:?}");
    }

    #[test]
    fn one_call_at_a_time_decides_while_it_is_open() {
        let now = Instant::now();
        let mut circuit = Circuit::new(now);
        let [one, two] = [circuit.admit(now), circuit.admit(now)].map(|pass| pass.expect("closed"));
        circuit.failed(one, Failure::Silence, now);
        let until = circuit.opens_at(now).unwrap();
        circuit.failed(two, Failure::Silence, now);
        assert_eq!(circuit.opens_at(now), Some(until), "one cause counts once");
        circuit.succeeded(two, now);
        assert!(
            circuit.admit(now).is_none(),
            "what was sent before says nothing new"
        );
        let probe = circuit.admit(until).expect("the delay is over");
        assert!(circuit.admit(until).is_none(), "one is enough");
        circuit.abandoned(probe, until);
        let probe = circuit
            .admit(until)
            .expect("the one before it was given up");
        circuit.succeeded(probe, until);
        assert!(circuit.is_closed());
    }

    /// A reconcile that is cut off drops its calls.
    #[test]
    fn a_call_that_is_given_up_says_nothing_unless_it_was_to_decide() {
        let now = Instant::now();
        let mut circuit = Circuit::new(now);
        let [one, two] = [circuit.admit(now), circuit.admit(now)].map(|pass| pass.expect("closed"));
        circuit.abandoned(one, now);
        assert!(circuit.is_closed());
        let stale = circuit.admit(now).expect("closed");
        circuit.failed(two, Failure::Silence, now);
        let until = circuit.opens_at(now).expect("nothing is under way");
        circuit.abandoned(stale, now);
        assert_eq!(circuit.opens_at(now), Some(until), "the delay holds");
        circuit.admit(until).expect("it is due");
        circuit.abandoned(stale, until);
        assert!(circuit.admit(until).is_none(), "another one decides");
    }

    #[test]
    fn three_bad_answers_in_a_row_open_it_and_fewer_do_not() {
        let now = Instant::now();
        let mut circuit = Circuit::new(now);
        for good in [0, 0, 1, 0, 0, 1, 0, 0, 0] {
            assert!(circuit.is_closed());
            let pass = circuit.admit(now).expect("closed");
            match good {
                0 => circuit.failed(pass, Failure::BadAnswer, now),
                _ => circuit.succeeded(pass, now),
            }
        }
        assert!(!circuit.is_closed());
    }

    #[test]
    fn a_good_answer_between_two_failures_does_not_shorten_the_delay() {
        let mut now = Instant::now();
        let mut circuit = Circuit::new(now);
        let mut delays = Vec::new();
        for _ in 0..10 {
            let pass = circuit.admit(now).expect("closed");
            circuit.failed(pass, Failure::Silence, now);
            let until = circuit.opens_at(now).expect("nothing is under way");
            delays.push(until - now);
            let pass = circuit.admit(until).expect("it is due");
            circuit.succeeded(pass, until);
            now = until + Duration::from_secs(1);
        }
        assert!(delays[0] <= Duration::from_millis(500), "{delays:?}");
        assert!(
            delays[6..].iter().all(|delay| *delay >= RECENT_CAP / 2),
            "{delays:?}"
        );
    }

    #[test]
    fn errors_of_writes_alone_do_not_open_it_and_a_read_decides() {
        let now = Instant::now();
        let mut circuit = Circuit::new(now);
        let write = |circuit: &mut Circuit| {
            let pass = circuit.admit(now).expect("closed");
            circuit.failed(pass, Failure::WriteError, now);
        };
        for _ in 0..100 {
            write(&mut circuit);
        }
        assert!(circuit.is_closed() && circuit.is_in_doubt());
        let read = circuit.admit(now).expect("closed");
        circuit.succeeded(read, now);
        assert!(circuit.is_closed() && !circuit.is_in_doubt());
        for _ in 0..BAD_ANSWERS {
            write(&mut circuit);
        }
        let read = circuit.admit(now).expect("closed");
        circuit.failed(read, Failure::BadAnswer, now);
        assert!(!circuit.is_closed(), "reads fail, too");
        // While the circuit is open, a write error does not count as an answer.
        let until = circuit.opens_at(now).expect("nothing is under way");
        let probe = circuit.admit(until).expect("it is due");
        circuit.failed(probe, Failure::WriteError, until);
        assert!(circuit.holds_back(until));
    }

    #[test]
    fn a_server_is_left_alone_as_long_as_it_asks_up_to_a_minute() {
        let day = Duration::from_hours(24);
        for (asked, most) in [(5, 5), (59, 59), (day.as_secs(), 60)] {
            let now = Instant::now();
            let mut circuit = Circuit::new(now);
            let pass = circuit.admit(now).expect("closed");
            circuit.failed(pass, Failure::AskedToWait(Duration::from_secs(asked)), now);
            let until = circuit.opens_at(now).unwrap();
            assert_eq!(until - now, Duration::from_secs(most));
            assert!(circuit.holds_back(now) && !circuit.holds_back(until));
        }
    }
}
