//! The queue of one tenant's reconciles: what puts a machine deployment into it, and when.

pub mod backoff;
pub mod held_back;
pub mod queue_latency;
pub mod resync;
pub mod triggers;
