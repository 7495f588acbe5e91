//! What makes an object acceptable: judgements that the plan, the admission webhook and `osm lint`
//! share, so that all three say the same. Where users know a sentence already, it is that sentence.

pub mod machine_deployment;
pub mod profile;
pub mod user_data;
