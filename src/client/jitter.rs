//! Random delays, so that work that began at the same time is not repeated at the same time.
//!
//! Each thread has its own generator, which is seeded by the system. A simulation seeds it with a
//! number, and gets the same delays again. It is not used for secrets.

use std::{cell::RefCell, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng};

thread_local! {
    static ROW: RefCell<StdRng> = RefCell::new(StdRng::from_rng(&mut rand::rng()));
}

/// Seeds this thread's random numbers.
pub fn begin(seed: u64) {
    ROW.set(StdRng::seed_from_u64(seed));
}

/// Returns a random part of the duration, between these two fractions of it.
pub fn part(duration: Duration, least: f64, most: f64) -> Duration {
    duration.mul_f64(ROW.with_borrow_mut(|row| row.random_range(least..=most)))
}

/// Returns between 90 and 110 % of an interval, to spread out work that is repeated at the same
/// interval.
pub fn around(interval: Duration) -> Duration {
    part(interval, 0.9, 1.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_begins_with_the_same_number_is_the_same() {
        let draw = || (0..9).map(|_| part(Duration::from_hours(1), 0.5, 1.0));
        begin(7);
        let first: Vec<Duration> = draw().collect();
        begin(7);
        assert_eq!(draw().collect::<Vec<_>>(), first);
        begin(8);
        assert_ne!(draw().collect::<Vec<_>>(), first);
        assert!(first.iter().all(|part| *part >= Duration::from_mins(30)));
    }
}
