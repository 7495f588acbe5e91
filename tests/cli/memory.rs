//! What the kernel lets others have of a running command's memory.

use std::{
    fs,
    io::Write as _,
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    process::{Child, Stdio},
};

use crate::folder::command;

/// More than a pipe holds: once it is written, somebody reads.
const MORE_THAN_A_PIPE: usize = 128 * 1024;
/// A group that is not root's.
const NOBODY: u32 = 65_534;

/// A command that reads standard input, and has begun to.
fn a_running_command() -> Child {
    let mut command = command(env!("CARGO_BIN_EXE_osm"));
    command.args(["lint", "-"]).stdin(Stdio::piped());
    // What the kernel lets nobody else read belongs to root: another owner tells the difference.
    let me = fs::metadata("/proc/self").expect("/proc is mounted");
    if me.uid() == 0 {
        command.gid(NOBODY);
    }
    let mut child = command
        .spawn()
        .expect("the binary was built with this test");
    let stdin = child.stdin.as_mut().expect("it is piped");
    stdin
        .write_all(&vec![b' '; MORE_THAN_A_PIPE])
        .expect("the command reads");
    child
}

#[test]
fn a_command_leaves_no_core_and_hides_its_memory() {
    let mut child = a_running_command();
    let folder = format!("/proc/{}", child.id());
    let limits = fs::read_to_string(format!("{folder}/limits"));
    let memory = fs::metadata(format!("{folder}/mem"));
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    let limits = limits.expect("limits are for everybody");
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let core: Vec<_> = core.expect("Linux has it").split_whitespace().collect();
    assert_eq!(core, ["Max", "core", "file", "size", "0", "0", "bytes"]);
    let memory = memory.expect("it is there while the command runs");
    assert_eq!(
        (memory.uid(), memory.gid()),
        (0, 0),
        "only root may read the memory"
    );
}
