//! Virtual machines that boot from what the manager has written, and everything around them that a
//! site has: a mirror, a registry, and a stand-in for machine-controller. All of it is in a network
//! that has loopback alone, so that nothing can come from elsewhere.
//!
//! ```text
//!  network ──────────── this process again, in a network of its own
//!  Images ───────────── disks and the mirror's files, made once by .ci/node-images
//!  Mirror ───────────── serves those files, and notes what was asked for
//!  Provider ─────────── boots a Machine from the bootstrap Secret, approves serving certificates
//!  Machine ──────────── one QEMU process: its console, a shell in it
//!  Progress ─────────── how far a machine has come: its console, then the API server
//!  pods ─────────────── runs a pod on it
//! ```

mod console;
mod controller;
mod images;
mod mirror;
pub mod network;
pub mod pods;
mod program;
mod provider;
mod qemu;
mod shell;

pub use self::console::{JOIN_TIMEOUT, Progress, READY, Reached, is_ready, tail};
pub use self::controller::{HOST_ADDRESS, SETTINGS};
pub use self::images::{Image, Images};
pub use self::mirror::{CREDENTIAL_PROVIDER, CREDENTIAL_PROVIDER_PATH, Fault, Mirror};
pub use self::provider::{Boot, Provider};
pub use self::qemu::Machine;
pub use self::shell::Shell;
