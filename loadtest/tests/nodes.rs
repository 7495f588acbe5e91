//! A virtual machine boots from what the manager's binary wrote for it, and becomes a Ready node.
//! `make nodes` tries the other cases.

use std::path::Path;
use std::process::Command;

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "running the program is what this test is for"
)]
fn a_machine_joins_and_is_ready_again_after_a_reboot() {
    let nodes = Path::new(env!("CARGO_BIN_EXE_nodes"));
    let output = Command::new(nodes)
        .arg("join")
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    print!("{said}");
}
