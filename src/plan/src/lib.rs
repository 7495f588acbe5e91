//! Plans what to do for a machine deployment, from values alone.
//!
//! ```text
//! Found ──validate──► Deployment ──render──► Rendered ──desired──► Desired ──changes──► Changes
//!  (IO)                                                              ▲
//!                                                          Observed ─┘
//! ```
//!
//! After `validate`, only the render can fail; the rest is comparison.

pub mod behind;
pub mod bootstrap;
pub mod changes;
pub mod default_profile;
pub mod desired;
pub mod digest;
pub mod found;
mod input_digests;
pub mod invalid;
pub mod machine_access;
pub mod machine_rollout;
pub mod news;
pub mod observed;
pub mod provenance;
pub mod records;
pub mod rollout;
pub mod status;
pub mod validate;

#[cfg(test)]
mod tests;
