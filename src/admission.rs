//! The admission webhooks: what the API server asks before a write, answered over TLS.
//!
//! ```text
//! API server ──► server (TLS) ──► reviewer ──► rules::admission
//!                   ▲ identity       └─ memory pool, divided between the sources
//!                   ├── file watcher          cert-manager's Secret, mounted
//!                   └── certificate rotator   its own certificates, in a Secret; sets caBundle
//! ```
//!
//! An answer depends on the review alone, so any number of replicas answers alike. What cannot be
//! answered is an HTTP error, and the `failurePolicy` of the configuration decides.

pub mod authority;
pub mod certificate_rotator;
pub mod file_watcher;
pub mod identity;
mod memory_pool;
mod review;
pub mod reviewer;
pub mod server;

#[cfg(test)]
mod tests;
