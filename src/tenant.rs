//! A tenant: one namespace of the management cluster and one worker cluster.
//!
//! What a tenant may do, and how its cluster is reached, as values. Nothing here connects.

pub mod access;
pub mod address;
pub mod facts;
pub mod host;
pub mod id;
pub mod mode;
pub mod overview;
pub mod policies;
pub mod policy;
pub mod report;
pub mod secret_text;
pub mod settings;
pub mod waves;
