//! A tenant: one namespace of the management cluster and one worker cluster.
//!
//! These types describe a tenant's policy, settings and connection. Nothing here opens a
//! connection.

pub mod access;
pub mod address;
pub mod certificates;
pub mod class;
pub mod cluster_info;
pub mod defaults;
pub mod egress;
pub mod host;
pub mod id;
pub mod inventory;
pub mod mode;
pub mod policies;
pub mod policy;
pub mod registry_credentials;
pub mod report;
pub mod secret_text;
pub mod settings;
pub mod summary;
pub mod waves;
