//! The commands for operators that read or write live clusters. `cli` has their flags and prints
//! their results.

pub mod adopt_kkp;
pub mod cluster_client;
pub mod count;
pub mod doctor;
pub mod inventory;
pub mod machine;
pub mod managers;
pub mod plan;
mod readiness;
pub mod selection;
pub mod tenant_add;
pub mod tenant_permit;
pub mod tenant_release;
pub mod tenants;
pub mod version;
mod worker_access;

/// The number of worker clusters that are read at the same time. One that does not answer takes a
/// while.
const AT_ONCE: usize = 16;
