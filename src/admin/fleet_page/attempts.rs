//! Limits how often a source address may send a token for the fleet page, so that nobody can try
//! many.
//!
//! The memory is bounded: it has the sources that sent a token lately, and beyond the limit forgets
//! the one whose minute began first. A client with many addresses gets more attempts than one; a
//! token of 16 bytes or more cannot be guessed with those either.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::port::Source;

/// How many attempts a source has in a minute: a person who mistypes needs a few.
const ATTEMPTS_MAX: u32 = 10;
/// The time after its first attempt when a source has all attempts again.
const WINDOW: Duration = Duration::from_mins(1);
/// How many sources are remembered: the port has no more connections at once.
const SOURCES_MAX: usize = 64;

/// The attempts of the last minute, by source.
#[derive(Debug, Default)]
pub struct Attempts(Mutex<HashMap<Source, Window>>);

/// The attempts of one source.
#[derive(Clone, Copy, Debug)]
struct Window {
    begun: Instant,
    count: u32,
}

impl Attempts {
    /// Counts an attempt, before the token is compared.
    ///
    /// # Errors
    ///
    /// The time until the next attempt is allowed, if the source has used all of them.
    pub fn begin(&self, source: Source, now: Instant) -> Result<(), Duration> {
        let mut windows = self.0.lock();
        windows.retain(|_, window| remaining(window, now) > Duration::ZERO);
        if !windows.contains_key(&source) && windows.len() >= SOURCES_MAX {
            let oldest = windows.iter().min_by_key(|(_, window)| window.begun);
            if let Some(oldest) = oldest.map(|(source, _)| *source) {
                windows.remove(&oldest);
            }
        }
        let first = Window {
            begun: now,
            count: 0,
        };
        let window = windows.entry(source).or_insert(first);
        if window.count >= ATTEMPTS_MAX {
            return Err(remaining(window, now));
        }
        window.count += 1;
        Ok(())
    }

    /// Forgets the attempts of a source, which has sent the right token.
    pub fn succeeded(&self, source: Source) {
        self.0.lock().remove(&source);
    }
}

fn remaining(window: &Window, now: Instant) -> Duration {
    (window.begun + WINDOW).saturating_duration_since(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u8) -> Source {
        Source::of([10, 0, 0, number].into())
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_source_has_ten_attempts_a_minute_and_others_have_their_own() {
        let (attempts, begun) = (Attempts::default(), Instant::now());
        for _ in 0..10 {
            assert_eq!(attempts.begin(source(1), begun), Ok(()));
        }
        let later = begun + 20 * SECOND;
        assert_eq!(attempts.begin(source(1), later), Err(40 * SECOND));
        assert_eq!(attempts.begin(source(2), later), Ok(()));
        // Attempts that are refused do not make the wait longer.
        let last = begun + 59 * SECOND;
        assert_eq!(attempts.begin(source(1), last), Err(SECOND));
        assert_eq!(attempts.begin(source(1), begun + WINDOW), Ok(()));
    }

    #[test]
    fn a_source_that_succeeds_has_all_attempts_again() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        for _ in 0..25 {
            for _ in 0..9 {
                assert_eq!(attempts.begin(source(1), now), Ok(()));
            }
            attempts.succeeded(source(1));
        }
    }

    #[test]
    fn of_too_many_sources_the_one_that_began_first_is_forgotten() {
        let (attempts, begun) = (Attempts::default(), Instant::now());
        for _ in 0..10 {
            assert_eq!(attempts.begin(source(0), begun), Ok(()));
            assert_eq!(attempts.begin(source(1), begun + SECOND), Ok(()));
        }
        let later = begun + 2 * SECOND;
        for number in 2..=64 {
            assert_eq!(attempts.begin(source(number), later), Ok(()));
        }
        assert_eq!(attempts.0.lock().len(), SOURCES_MAX);
        assert!(
            attempts.begin(source(1), later).is_err(),
            "it is remembered"
        );
        assert_eq!(attempts.begin(source(0), later), Ok(()));
        assert_eq!(attempts.0.lock().len(), SOURCES_MAX);
    }
}
