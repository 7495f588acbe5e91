//! The programs that read what we render, and how they are run.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// An executable file.
pub fn write_program(path: &Path, script: &str) {
    fs::write(path, script).expect("a program can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a mode can be set");
}

/// Where the programs of `.ci/consumers` are.
pub fn consumers() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/consumers");
    assert!(
        folder.join("installed").is_file(),
        "{} is missing or incomplete: run .ci/consumers",
        folder.display()
    );
    folder
}

/// A program that `.ci/consumers` installs.
pub fn consumer(path: &str) -> PathBuf {
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
pub fn command(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}

/// A program that is root, through sudo where this process is not.
pub fn as_root(program: &str) -> Command {
    let process = fs::metadata("/proc/self").expect("this process is in /proc");
    if process.uid() == 0 {
        return command(program);
    }
    let mut sudo = command("sudo");
    sudo.args(["-n", program]);
    sudo
}

/// A program that is root in namespaces of its own, so that no mount, no process and no socket of
/// it is this machine's.
pub fn in_namespaces(program: impl AsRef<OsStr>) -> Command {
    let mut unshare = as_root("unshare");
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
pub fn run(command: &mut Command) -> Output {
    let output = command.output();
    assert!(
        output.is_ok(),
        "{}: {:?}: bash and unshare are Debian's, the rest comes from .ci/consumers; who is not \
         root needs sudo",
        command.get_program().display(),
        output.err()
    );
    output.expect("the line above")
}

/// Both streams of a program.
pub fn text(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&both).into_owned()
}
