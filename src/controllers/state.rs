//! The state of one tenant that is kept between reconciles, apart from its users.

mod charged_map;
pub mod foreign_writes;
pub mod join_queue;
pub mod known_machines;
pub mod node_credentials;
pub mod registry_credentials;
pub mod rollout_slots;
pub mod tokens;
pub mod wanted_profiles;
