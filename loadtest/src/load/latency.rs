//! Percentiles of durations.

use std::time::Duration;

use anyhow::Context as _;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Percentiles in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latencies {
    /// How many durations.
    pub count: u64,
    /// Half of them were not longer.
    pub p50: f64,
    /// Nine of ten were not longer.
    pub p90: f64,
    /// All but one in a hundred were not longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Latencies {
    /// The percentiles of some durations; all zero for none.
    pub fn of(durations: impl IntoIterator<Item = Duration>) -> anyhow::Result<Self> {
        // Microseconds with three digits, as long as they may be.
        let mut histogram = Histogram::<u64>::new(3).context("making a histogram")?;
        for duration in durations {
            histogram.record(u64::try_from(duration.as_micros())?)?;
        }
        let milliseconds =
            |microseconds: u64| Duration::from_micros(microseconds).as_secs_f64() * 1000.0;
        let at = |quantile: f64| milliseconds(histogram.value_at_quantile(quantile));
        Ok(Self {
            count: histogram.len(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: milliseconds(histogram.max()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_durations() {
        let found = Latencies::of((1..=100).map(Duration::from_millis)).unwrap();
        assert_eq!(found.count, 100);
        for (value, expected) in [(found.p50, 50.0), (found.p99, 99.0), (found.max, 100.0)] {
            assert!((value - expected).abs() < expected / 500.0, "{found:?}");
        }
        assert_eq!(Latencies::of([]).unwrap(), Latencies::default());
    }
}
