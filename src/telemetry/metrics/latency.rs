//! Histograms of durations whose buckets name a trace: the last one that fell into each. So their
//! memory does not grow with the fleet, and what is not traced leaves no name.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;

use crate::telemetry;

/// From a millisecond to half a minute. The targets (50 ms, 250 ms) are boundaries, so that an
/// alert on them is exact.
const FINE: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// For what is only asked whether it is long.
const COARSE: [f64; 5] = [0.05, 0.25, 1.0, 5.0, 30.0];

/// The label of an exemplar.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Trace {
    trace_id: String,
}

/// A histogram of seconds.
pub(super) type Latency = HistogramWithExemplars<Trace>;

/// For what has a target.
pub(super) fn fine() -> Latency {
    Latency::new(FINE.into_iter())
}

/// For what is only asked whether it is long.
pub(super) fn coarse() -> Latency {
    Latency::new(COARSE.into_iter())
}

/// Something took so long. The trace around this call is named, if it is recorded.
pub(super) fn observe(latency: &Latency, took: Duration) {
    let trace = telemetry::trace_id().map(|trace_id| Trace { trace_id });
    // Without a time of its own an exemplar has that of the scrape.
    latency.observe(took.as_secs_f64(), trace, None);
}
