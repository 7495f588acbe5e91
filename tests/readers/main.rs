//! The programs that read our documents, and the machines that run them: cloud-init, Ignition,
//! containerd, the kubelet's types, shells and systemd accept every one.
//!
//! `.ci/consumers` installs those that a machine does not bring. Who is not root needs sudo.

mod boot;
mod cases;
mod cloud_init;
mod consumers;
mod documents;
mod flatcar;
mod machine;
mod programs;
#[path = "../rendering/readers.rs"]
mod readers;
mod root;
mod scripts;
#[path = "../rendering/subject.rs"]
mod subject;
