//! Validation rules that the plan, the admission webhooks and `osm lint` share, so that all three
//! report the same. If the upstream project has a message for an error, it is used here, because
//! users know it.

pub mod admission;
pub mod annotations;
pub mod bom;
pub mod diff;
pub mod document;
pub mod effect;
pub mod kubelet;
pub mod lint;
pub mod machine_deployment;
pub mod profile;
pub mod profile_effects;
pub mod rule;
pub mod sample;
pub mod settings;
pub mod shape;
pub mod user_data;
