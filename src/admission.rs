//! The admission webhooks: what the API server asks before a write, answered over TLS.
//!
//! ```text
//! API server ──► server (TLS) ──► reviewer ──► rules::admission
//!                   ▲ identity       └─ intake: who has how much of the memory
//!                   ├── folder   the Secret of cert-manager, mounted
//!                   └── keeper   certificates of our own, in a Secret; caBundle in configurations
//! ```
//!
//! An answer depends on the review alone, so any number of replicas answers alike. What cannot be
//! answered is an HTTP error, and the `failurePolicy` of the configuration decides.

pub mod authority;
pub mod folder;
pub mod identity;
mod intake;
pub mod keeper;
mod review;
pub mod reviewer;
pub mod server;

#[cfg(test)]
mod tests;
