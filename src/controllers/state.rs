//! What is remembered of one tenant between reconciles, apart from those who use it.

pub mod join_queue;
pub mod known_machines;
pub mod node_credentials;
pub mod registry_credentials;
pub mod rollout_slots;
pub mod tokens;
