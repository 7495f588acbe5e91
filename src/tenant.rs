//! A tenant: one namespace of the management cluster and one worker cluster.
//!
//! What a tenant may do, and how its cluster is reached, as values. Nothing here connects.

pub mod access;
pub mod address;
pub mod cluster_info;
pub mod host;
pub mod id;
pub mod mode;
pub mod policies;
pub mod policy;
pub mod report;
pub mod secret_text;
pub mod settings;
pub mod summary;
pub mod waves;
