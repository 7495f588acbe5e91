//! The wall clock, passed in so that tests can turn it.

use std::{fmt, sync::Arc};

use jiff::Timestamp;

/// Tells the time of day.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self(Arc::new(Timestamp::now))
    }

    /// A clock that starts at `base` and goes with tokio's time, so that a paused time pauses it.
    pub fn tokio(base: Timestamp) -> Self {
        let start = tokio::time::Instant::now();
        Self(Arc::new(move || {
            base.saturating_add(start.elapsed())
                .unwrap_or(Timestamp::MAX)
        }))
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Clock")
    }
}
