//! Runs worker and management clusters on loopback, real or in memory, and drives the real binary
//! against them. It knows the binary from outside only: its settings, its requests, its answers.

#![expect(
    clippy::missing_errors_doc,
    reason = "the errors of a test tool are for its reader"
)]

pub mod collector;
pub mod control_plane;
pub mod demo;
pub mod egress_proxy;
pub mod load;
pub mod machine;
pub mod nodes;
pub mod tested_servers;
