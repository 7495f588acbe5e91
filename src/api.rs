//! The Kubernetes objects that this program reads and writes, the names that others depend on, and
//! what an object takes in memory.
//!
//! Nothing here decides anything, and nothing here talks to a cluster.

pub mod config;
pub mod machine_deployment;
pub mod names;
pub mod profile;
pub mod weight;
pub mod worker_cluster;
