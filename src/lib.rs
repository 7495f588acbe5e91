//! The multi-tenant Operating System Manager.
//!
//! ```text
//! kubeconfig Secret ──► fleet ──► one engaged cluster per tenant ──► reconcile(machine deployment)
//! (management)          roster     client, budget, watches             │
//!                                                                      ├─► config          (management)
//! profile ─────────────────────────────────────────────────────────────┤
//! (management, tenant namespace)                                       └─► user data       (worker)
//! ```
//!
//! Values flow downwards: `api` ← `tenant` ← `render` ← `rules` ← `plan` are pure; `fleet` and
//! `controllers` do the input and output, and `app` puts them together. The table of who may use
//! whom stands in `tests/architecture.rs`.

pub mod api;
pub mod render;
pub mod tenant;
