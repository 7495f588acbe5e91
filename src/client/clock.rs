//! The wall clock and the time since boot. They are passed in, so that tests can set them.

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderMap, header::DATE};
use jiff::{Timestamp, fmt::rfc2822};
use rustix::time::{ClockId, clock_gettime};

/// A source of the time.
#[derive(Clone)]
pub struct Clock {
    wall: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    boot: Arc<dyn Fn() -> Duration + Send + Sync>,
}

impl Clock {
    /// Returns the clocks of the system.
    pub fn system() -> Self {
        Self {
            wall: Arc::new(Timestamp::now),
            boot: Arc::new(boot_time),
        }
    }

    /// Creates a clock that starts at `base` and follows tokio's time, so that tests can pause it.
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

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        (self.wall)()
    }

    /// Returns the time since boot. It never goes back, cannot be set, and continues while the
    /// kernel suspends the machine or the process is stopped. It may stand still while a hypervisor
    /// pauses a virtual machine.
    pub fn since_boot(&self) -> Duration {
        (self.boot)()
    }
}

/// Returns the time at which a server answered, by its own clock. Returns `None` without a valid
/// `Date` header.
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
