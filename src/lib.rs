//! The multi-tenant Operating System Manager.
//!
//! ```text
//! kubeconfig Secret ─► fleet ─► one engaged cluster per tenant ─► reconcile(machine deployment)
//! (management)         registry   client, budget, watches            │
//!                                                                  ├─► config     (management)
//! profile ─────────────────────────────────────────────────────────┤
//! (management, tenant namespace)                                   └─► user data  (worker)
//! ```
//!
//! Values flow downwards: `api` ← `tenant` ← `render` ← `rules` ← `plan` are pure; `fleet` and
//! `controllers` do the input and output, `app` puts them together, and `commands` are for
//! operators. The table of allowed dependencies is in `tests/architecture.rs`.

pub mod admin;
pub mod admission;
pub mod api;
pub mod app;
pub mod cli;
pub mod client;
pub mod commands;
pub mod controllers;
pub mod fleet;
pub mod plan;
pub mod port;
pub mod render;
pub mod render_worker;
pub mod rules;
pub mod settings;
pub mod telemetry;
pub mod tenant;
