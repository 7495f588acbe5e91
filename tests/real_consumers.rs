//! What we write for Ignition, containerd and the kubelet, given to them: every document and every
//! configuration of the default profiles, and of a small profile for Flatcar that stands here.
//!
//! `.ci/consumers` installs the programs. Ignition's files stage and containerd want to be root;
//! they run in namespaces of their own, on folders of their own.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

#[path = "real_consumers/containerd.rs"]
mod containerd;
#[path = "real_consumers/ignition.rs"]
mod ignition;
#[path = "real_consumers/ignition_2.rs"]
mod ignition_2;
#[path = "real_consumers/ignition_root.rs"]
mod ignition_root;
#[path = "real_consumers/kubelet.rs"]
mod kubelet;
#[path = "real_consumers/machines.rs"]
mod machines;
#[path = "rendering/readers.rs"]
mod readers;
#[path = "rendering/subject.rs"]
mod subject;

/// Where the programs are.
fn consumers() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/consumers");
    assert!(
        folder.join("installed").is_file(),
        "{} is missing or incomplete: run .ci/consumers",
        folder.display()
    );
    folder
}

/// A program that `.ci/consumers` installs.
fn consumer(path: &str) -> PathBuf {
    let program = consumers().join(path);
    assert!(
        program.is_file(),
        "{} is missing: run .ci/consumers",
        program.display()
    );
    program
}

#[expect(
    clippy::disallowed_methods,
    reason = "the programs that read what we render are run"
)]
fn command(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}

/// A program that is root in namespaces of its own, so that no mount, no process and no socket of
/// it is this machine's.
fn in_namespaces(program: impl AsRef<OsStr>) -> Command {
    let process = fs::metadata("/proc/self").expect("this process is in /proc");
    let mut unshare = if process.uid() == 0 {
        command("unshare")
    } else {
        let mut sudo = command("sudo");
        sudo.args(["-n", "unshare"]);
        sudo
    };
    unshare
        .args([
            "--mount",
            "--net",
            "--ipc",
            "--pid",
            "--fork",
            "--mount-proc",
        ])
        .args(["--kill-child", "--"])
        .arg(program);
    unshare
}

/// Runs a program to its end.
fn run(command: &mut Command) -> Output {
    let output = command.output();
    assert!(
        output.is_ok(),
        "{}: {:?}: unshare is in Debian's util-linux, the rest comes from .ci/consumers; who is \
         not root needs sudo",
        command.get_program().display(),
        output.err()
    );
    output.expect("the line above")
}

/// Both streams of a program.
fn text(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&both).into_owned()
}
