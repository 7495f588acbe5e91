//! What makes an object acceptable: judgements that the plan, the admission webhook and `osm lint`
//! share, so that all three say the same. Where users know a sentence already, it is that sentence.

pub mod admission;
pub mod bom;
pub mod diff;
pub mod document;
pub mod lint;
pub mod machine_deployment;
pub mod profile;
pub mod sample;
pub mod shape;
pub mod user_data;
