//! A wait that an objective limits.

use std::time::Duration;

use tokio::time::Instant;

/// The last boundary of the histograms of such waits. Who waits for longer has missed every
/// objective that they can show.
pub(super) const LATE: Duration = Duration::from_secs(30);

/// A wait that an objective limits. It is counted once: when it ends, or at the first failure after
/// it is late, so that what never succeeds is counted, too.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    since: Instant,
    is_counted: bool,
}

impl Pending {
    /// Creates a wait that began then.
    pub const fn since(since: Instant) -> Self {
        let is_counted = false;
        Self { since, is_counted }
    }

    /// Returns how long the wait was that ends now. Returns `None` if it has been counted.
    pub fn achieved(self) -> Option<Duration> {
        (!self.is_counted).then(|| self.since.elapsed())
    }

    /// Returns how long the wait has lasted, if it is late and has not been counted.
    pub fn failed(&mut self) -> Option<Duration> {
        let late = self.achieved().filter(|waited| *waited > LATE);
        self.is_counted |= late.is_some();
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_counted_once_at_its_end_or_when_it_is_late() {
        let mut pending = Pending::since(Instant::now());
        tokio::time::advance(LATE).await;
        assert_eq!(pending.failed(), None);
        assert_eq!(pending.achieved(), Some(LATE));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(pending.failed(), Some(LATE + Duration::from_secs(1)));
        assert_eq!(pending.failed(), None);
        assert_eq!(pending.achieved(), None);
    }
}
