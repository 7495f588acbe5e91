//! The Kubernetes objects that this program reads and writes, the names that others depend on, the
//! reasons that users read, and estimates of an object's size in memory.
//!
//! These are data types only: they contain no decisions and send no requests.

// The derive macros of kube name its crates by `::kube`. Of these, data types need the core alone.
extern crate self as kube;
#[doc(hidden)]
pub use kube_core as core;
#[doc(hidden)]
pub use kube_derive::KubeSchema;

pub mod change;
pub mod condition;
pub mod config;
pub mod machine_deployment;
pub mod names;
pub mod platform;
pub mod profile;
pub mod reason;
pub mod weight;
pub mod worker_cluster;
