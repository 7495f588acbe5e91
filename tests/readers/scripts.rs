//! The scripts of our profiles, and the one for edge machines, run as far as a test can: in a
//! folder that stands for the machine's root.

mod edge;
pub mod flatcar;
mod services;
mod setup;
