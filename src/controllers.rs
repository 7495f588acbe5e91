//! Serves engaged clusters: each tenant has its own watches and reconciles.
//!
//! ```text
//! machine deployments ─┐                        ┌─► dereference ─► validate ─► render
//! Secrets (metadata)  ─┼─► triggers ─► reconcile┤
//! profiles, configs   ─┘                        └─► changes ─► apply ─► tenant status
//! ```
//!
//! A trigger says which object must be reconciled, never what to do.

pub mod adoption;
pub mod context;
pub mod default_contents;
pub mod event_writer;
pub mod initial_sync;
pub mod join;
pub mod join_check;
pub mod machine_deployment;
pub mod machine_deployment_index;
pub mod machine_reports;
pub mod machine_rollout;
pub mod object_cache;
pub mod orphans;
pub mod profile;
pub mod profile_quota;
pub mod profile_store;
pub mod queue;
pub mod registry_credentials;
pub mod rollout;
pub mod serve;
pub mod state;
pub mod subscriptions;
pub mod tokens;
pub mod watch;
pub mod worker_cluster;
