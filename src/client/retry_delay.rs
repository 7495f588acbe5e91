//! Delays between attempts. They grow up to a limit, with jitter, so that a thousand clusters that
//! failed at the same time are not retried at the same time.

use std::time::Duration;

use kube::runtime::utils::Backoff;

use crate::client::jitter;

/// The first delay. It is long enough that a restarting API server does not refuse a second call at
/// once.
const FIRST: Duration = Duration::from_millis(500);
/// The longest delay. A cluster that recovers is engaged within half a minute.
const CAP: Duration = Duration::from_secs(15);

/// An operation that lasted for this long had recovered from its previous failure.
const STEADY: Duration = Duration::from_mins(10);

/// The delay before the next attempt.
#[derive(Clone, Debug)]
pub struct RetryDelay {
    first: Duration,
    next: Duration,
    cap: Duration,
}

impl Default for RetryDelay {
    fn default() -> Self {
        Self::new(FIRST, CAP)
    }
}

impl RetryDelay {
    /// Creates delays that start at `first` and grow to `cap`.
    pub fn new(first: Duration, cap: Duration) -> Self {
        Self {
            first,
            next: first,
            cap,
        }
    }

    /// Returns the delay before an operation that lasted for `lasted` starts again. The delays grow
    /// while it keeps ending early, however well each attempt began. They start again once it has
    /// lasted for ten minutes.
    pub fn after(&mut self, lasted: Duration) -> Duration {
        if lasted >= STEADY {
            self.next = self.first;
        }
        self.next().unwrap_or(self.cap)
    }

    /// Sets the longest delay from now on.
    pub fn set_cap(&mut self, cap: Duration) {
        self.cap = cap;
        self.next = self.next.min(cap);
    }
}

impl Iterator for RetryDelay {
    type Item = Duration;

    /// Returns the delay before the next attempt, between half and all of the current step. Never
    /// returns `None`.
    fn next(&mut self) -> Option<Duration> {
        let step = self.next;
        self.next = (step * 2).min(self.cap);
        Some(jitter::part(step, 0.5, 1.0))
    }
}

impl Backoff for RetryDelay {
    fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_their_cap_are_jittered_and_start_again() {
        let mut delay = RetryDelay::default();
        let mut step = FIRST;
        for _ in 0..20 {
            let next = delay.next().unwrap();
            assert!(next >= step / 2 && next <= step, "{next:?} of {step:?}");
            step = (step * 2).min(CAP);
        }
        let mut late: Vec<Duration> = delay.clone().take(20).collect();
        late.dedup();
        assert!(late.len() > 10, "{late:?}");
        Backoff::reset(&mut delay);
        assert!(delay.next().unwrap() <= FIRST);
    }

    #[test]
    fn what_keeps_ending_early_is_begun_ever_more_slowly_until_it_has_lasted() {
        let mut delay = RetryDelay::default();
        let early = STEADY / 2;
        assert!(delay.after(early) <= FIRST);
        let late = (0..10).map(|_| delay.after(early)).last();
        assert!(late.is_some_and(|late| late >= CAP / 2), "{late:?}");
        assert!(delay.after(STEADY) <= FIRST);
        assert!(delay.after(Duration::ZERO) > FIRST / 2, "it grows again");
    }
}
