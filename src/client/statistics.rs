//! Statistics of one tenant: a few words of memory, written by the task that does the work and read
//! on demand. Their size does not depend on the size of the tenant.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use crate::tenant::summary::{self, Queue};

/// The weight of a new call in the moving average: one part in this many.
const LATENCY_WEIGHT: u32 = 8;

/// The statistics of one tenant. Zero means that there is no value yet.
#[derive(Debug, Default)]
pub struct Statistics {
    call_micros: AtomicU32,
    user_data_bytes_max: AtomicU32,
    waiting: AtomicU32,
    under_way: AtomicU32,
}

impl Statistics {
    /// Records the duration of an answered call to the worker cluster.
    pub fn call_took(&self, took: Duration) {
        let took = u32::try_from(took.as_micros()).unwrap_or(u32::MAX).max(1);
        let average = |before: u32| match before {
            0 => took,
            before => before - before / LATENCY_WEIGHT + took / LATENCY_WEIGHT,
        };
        let before = self.call_micros.load(Ordering::Relaxed);
        // Of two updates at the same time, one may be lost. For an average, that does not matter.
        self.call_micros.store(average(before), Ordering::Relaxed);
    }

    /// Forgets the largest document at the start of an initial sync, because it may be gone.
    pub fn forget_user_data(&self) {
        self.user_data_bytes_max.store(0, Ordering::Relaxed);
    }

    /// Records the size of a document that was found or rendered.
    pub fn user_data(&self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.user_data_bytes_max.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Records how many reconciles wait and are under way.
    pub fn queue(&self, waiting: usize, under_way: usize) {
        let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
        self.waiting.store(count(waiting), Ordering::Relaxed);
        self.under_way.store(count(under_way), Ordering::Relaxed);
    }

    /// Returns the current values.
    pub fn read(&self) -> summary::Statistics {
        let read = |word: &AtomicU32| word.load(Ordering::Relaxed);
        let some = |word| Some(read(word)).filter(|count| *count > 0);
        summary::Statistics {
            queue: Queue {
                waiting: read(&self.waiting),
                under_way: read(&self.under_way),
            },
            user_data_bytes_max: some(&self.user_data_bytes_max),
            call_latency: some(&self.call_micros)
                .map(|micros| Duration::from_micros(micros.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_costs_four_words_of_memory() {
        assert_eq!(size_of::<Statistics>(), 16);
        assert_eq!(Statistics::default().read(), summary::Statistics::default());
    }

    #[test]
    fn the_latency_follows_the_calls_and_forgets_an_accident() {
        let statistics = Statistics::default();
        let latency = || statistics.read().call_latency.unwrap_or_default();
        statistics.call_took(Duration::from_millis(8));
        assert_eq!(latency(), Duration::from_millis(8));
        statistics.call_took(Duration::from_millis(88));
        assert_eq!(latency(), Duration::from_millis(18));
        for _ in 0..100 {
            statistics.call_took(Duration::from_millis(8));
        }
        assert!(latency() < Duration::from_millis(9), "{:?}", latency());
        // A duration that does not fit is saturated.
        statistics.call_took(Duration::from_hours(10));
        statistics.call_took(Duration::from_hours(10));
        assert!(latency() > Duration::from_mins(8), "{:?}", latency());
    }

    #[test]
    fn the_largest_document_counts_until_the_next_initial_sync() {
        let statistics = Statistics::default();
        for bytes in [10, 30, 20] {
            statistics.user_data(bytes);
        }
        assert_eq!(statistics.read().user_data_bytes_max, Some(30));
        statistics.forget_user_data();
        assert_eq!(statistics.read().user_data_bytes_max, None);
    }
}
