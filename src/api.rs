//! The Kubernetes objects that this program reads and writes, and the names that others depend on.
//!
//! Types only: nothing here decides anything, and nothing here talks to a cluster.

pub mod config;
pub mod machine_deployment;
pub mod names;
pub mod profile;
pub mod worker_cluster;
