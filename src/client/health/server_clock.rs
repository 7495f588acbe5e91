//! Tracks the difference between a worker cluster's clock and ours, from the header `Date` of its
//! answers.

use std::sync::atomic::{AtomicI64, Ordering};

use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};

use crate::client::clock::answered_at;

/// The minimum difference that is reported, in seconds. `Date` has whole seconds, and an answer may
/// be ten seconds old when it is read.
const DIFFERENCE_MIN: i64 = 60;
/// Differences that are closer to each other than this, in seconds, count as the same.
const SAME: i64 = 30;
/// The maximum difference that is used for calculations, in seconds. A larger one is only reported:
/// no server's clock is wrong by a year by chance.
const FOLLOWED_MAX: i64 = 366 * 24 * 60 * 60;

/// The difference between a worker cluster's clock and ours.
#[derive(Debug, Default)]
pub(super) struct ServerClock {
    /// The number of seconds by which the server's clock is ahead; 0 if both clocks agree.
    ahead: AtomicI64,
}

impl ServerClock {
    /// Reads the time at which an answer was sent. An answer without it changes nothing.
    pub(super) fn observe(&self, headers: &HeaderMap, now: Timestamp) {
        let Some(date) = answered_at(headers) else {
            return;
        };
        let ahead = date.duration_since(now).as_secs();
        let before = self.ahead.load(Ordering::Relaxed);
        if ahead.abs_diff(before) <= SAME.unsigned_abs() {
            return;
        }
        let is_small = ahead.abs() < DIFFERENCE_MIN;
        let ahead = if is_small { 0 } else { ahead };
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    /// Returns by how many minutes the server's clock is ahead; `None` if both clocks agree.
    pub(super) fn minutes_ahead(&self) -> Option<i64> {
        let ahead = self.ahead.load(Ordering::Relaxed);
        (ahead != 0).then_some((ahead + ahead.signum() * 30) / 60)
    }

    /// Returns the time on the server for a time on this machine.
    pub(super) fn at(&self, now: Timestamp) -> Timestamp {
        let ahead = self.ahead.load(Ordering::Relaxed);
        let followed = if ahead.abs() > FOLLOWED_MAX { 0 } else { ahead };
        now.checked_add(SignedDuration::from_secs(followed))
            .unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use http::header::DATE;

    use super::*;

    #[test]
    fn a_difference_is_followed_if_it_is_neither_small_nor_absurd() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let clock = ServerClock::default();
        for (date, minutes, server) in [
            ("Thu, 01 Jan 2026 12:00:59 GMT", None, now),
            (
                "Thu, 01 Jan 2026 14:00:10 GMT",
                Some(120),
                "2026-01-01T14:00:10Z".parse().unwrap(),
            ),
            // The same difference with another delay, which does not cause a write of the status.
            (
                "Thu, 01 Jan 2026 13:59:45 GMT",
                Some(120),
                "2026-01-01T14:00:10Z".parse().unwrap(),
            ),
            ("soon", Some(120), "2026-01-01T14:00:10Z".parse().unwrap()),
            (
                "Thu, 01 Jan 2026 11:00:00 GMT",
                Some(-60),
                "2026-01-01T11:00:00Z".parse().unwrap(),
            ),
            ("Fri, 31 Dec 2100 23:59:59 GMT", Some(39_445_200), now),
            ("Thu, 01 Jan 2026 11:59:10 GMT", None, now),
        ] {
            let headers = HeaderMap::from_iter([(DATE, date.parse().unwrap())]);
            clock.observe(&headers, now);
            assert_eq!(clock.minutes_ahead(), minutes, "{date}");
            assert_eq!(clock.at(now), server, "{date}");
        }
        clock.observe(&HeaderMap::new(), now);
        assert_eq!(clock.minutes_ahead(), None);
    }
}
