//! The behaviour of the manager against API servers in memory.

#[path = "behaviour/suite.rs"]
mod suite;

suite::scenarios!(suite::Kind::Fake);
