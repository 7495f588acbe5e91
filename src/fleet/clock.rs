//! The clocks, passed in so that tests can turn them: the time of day, and the time since boot.

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderMap, header::DATE};
use jiff::{Timestamp, fmt::rfc2822};
use rustix::time::{ClockId, clock_gettime};

/// Tells the time.
#[derive(Clone)]
pub struct Clock {
    wall: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    boot: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl Clock {
    /// The system's clocks.
    pub fn system() -> Self {
        Self {
            wall: Arc::new(Timestamp::now),
            boot: Arc::new(boot_time),
        }
    }

    /// A clock that starts at `base` and goes with tokio's time, so that a paused time pauses it.
    pub fn tokio(base: Timestamp) -> Self {
        let start = tokio::time::Instant::now();
        Self {
            wall: Arc::new(move || {
                base.saturating_add(start.elapsed())
                    .unwrap_or(Timestamp::MAX)
            }),
            boot: Arc::new(move || start.elapsed()),
        }
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        (self.wall)()
    }

    /// The time since boot. It never goes back, nobody sets it, and it goes on while the kernel
    /// suspends the machine or the process is stopped. While a hypervisor pauses a virtual machine
    /// it may stand still.
    pub fn since_boot(&self) -> Duration {
        (self.boot)()
    }
}

/// When a server answered, by its own clock. `None` if the answer does not say it.
pub fn answered_at(headers: &HeaderMap) -> Option<Timestamp> {
    let date = headers.get(DATE)?.to_str().ok()?;
    rfc2822::DateTimeParser::new().parse_timestamp(date).ok()
}

fn boot_time() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanoseconds)
}

impl fmt::Debug for Clock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Clock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_an_answer_is_that_of_the_server() {
        let answer =
            |text: &str| answered_at(&HeaderMap::from_iter([(DATE, text.parse().unwrap())]));
        let noon = "2026-01-01T12:00:00Z".parse().unwrap();
        assert_eq!(answer("Thu, 01 Jan 2026 12:00:00 GMT"), Some(noon));
        assert_eq!(answer("soon"), None);
        assert_eq!(answered_at(&HeaderMap::new()), None);
    }
}
