//! Delays between attempts: they grow, have a cap, and are jittered, so that a thousand clusters
//! that failed together do not come back together.

use std::time::Duration;

use kube::runtime::utils::Backoff;

use super::jitter;

/// The first delay: long enough for a restarting API server to refuse no second call at once.
const FIRST: Duration = Duration::from_millis(500);
/// The cap: a cluster that comes back is engaged within half a minute.
const CAP: Duration = Duration::from_secs(15);

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
    /// A delay that starts at `first` and ends at `cap`.
    pub fn new(first: Duration, cap: Duration) -> Self {
        Self {
            first,
            next: first,
            cap,
        }
    }

    /// From now on the delays grow to this.
    pub fn set_cap(&mut self, cap: Duration) {
        self.cap = cap;
        self.next = self.next.min(cap);
    }
}

impl Iterator for RetryDelay {
    type Item = Duration;

    /// The delay before the next attempt: between half and all of the current step.
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
}
