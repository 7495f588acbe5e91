//! What we write for Ignition, containerd and the kubelet, given to them: every document and every
//! configuration of the default profiles, and of a small profile for Flatcar that stands here.
//!
//! `.ci/consumers` installs the programs. Ignition's files stage and containerd want to be root;
//! they run in namespaces of their own, on folders of their own.

mod containerd;
mod ignition;
pub mod ignition_2;
mod ignition_root;
mod kubelet;
