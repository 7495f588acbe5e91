//! The load test in small fleets: what it counts, and that replicas survive attacks.

mod fleet;
mod scenarios;
mod siege;
