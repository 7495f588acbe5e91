//! The commands for operators that read or write live clusters. `cli` has their flags and prints
//! their results.

pub mod cluster_client;
pub mod doctor;
pub mod machine;
pub mod plan;
pub mod selection;
pub mod tenant_add;
pub mod tenant_release;
pub mod tenants;
pub mod version;
