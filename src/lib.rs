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
//! Values flow downwards: `api` ← `tenant` ← `render` ← `rules` ← `plan` are pure, each a crate of
//! its own that depends on no client and no runtime; `fleet` and `controllers` do the input and
//! output, `app` puts them together, and `commands` are for operators. The table of allowed
//! dependencies is in `tests/shape/architecture.rs`.

pub use osm_api as api;
pub use osm_plan as plan;
pub use osm_render as render;
pub use osm_rules as rules;
pub use osm_tenant as tenant;

pub mod admin;
pub mod admission;
pub mod app;
pub mod cli;
pub mod client;
pub mod commands;
pub mod controllers;
pub mod fleet;
pub mod port;
pub mod render_worker;
pub mod settings;
pub mod telemetry;
