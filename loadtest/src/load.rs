//! The load test: the real binary between a management cluster and many worker clusters, all in
//! memory behind TLS in this process. It measures from outside: requests at the servers, times at
//! the servers, and what the system reports about the process.
//!
//! ```text
//!  fleet ──── the clusters, and what operators and tenants do to them
//!  stage ──── fleet and manager together: start, wait, look
//!  scenario ─ what is done in which order, and which figures come of it
//!  per_cluster  the other side of a comparison: a process for each cluster
//!  outcome ── one run as JSON and as a table
//! ```

pub mod descriptors;
pub mod fleet;
pub mod latency;
pub mod measure;
pub mod outcome;
pub mod per_cluster;
pub mod real_cluster;
pub mod requests;
pub mod scenario;
pub mod served;
pub mod stage;
