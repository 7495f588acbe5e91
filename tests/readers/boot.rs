//! Our own profiles on machines: cloud-init boots from what they render, and their bootstrap
//! scripts fetch from a real API server, on a release with the old command line of cloud-init and
//! on one with the new.
//!
//! `.ci/consumers` makes the root folders that machines start from. They run in namespaces of
//! their own, which takes root.

use crate::{
    boot::{
        applied::missing_on,
        machine::{BOOT, Machine, Network, Release},
    },
    cases::case,
    documents::files_of,
};

mod applied;
mod bootstrap;
mod cluster;
mod fetch;
mod machine;
mod units;

#[test]
fn a_file_a_command_and_an_error_that_are_missing_are_seen() {
    let document = &case("osp-ubuntu/openstack/1.34.1").bootstrap.document;
    let files = files_of(document);
    let last = files.last().expect("there are files");
    let changed = String::from_utf8(document.clone())
        .expect("a document is text")
        .replacen("permissions: '0755'", "permissions: '0750'", 1)
        .replacen("- systemctl daemon-reload\n", "- exit 1\n", 1)
        .replacen(&last.path, "/elsewhere", 1);
    let machine = Machine::new(Release::Trixie, changed.as_bytes());
    let machine = machine.start(Network::Own, BOOT).stop();
    let missing = missing_on(&machine, document);
    for what in [
        "content of ",
        "mode of /opt/bin/",
        "commands: []",
        "1 failures",
    ] {
        assert!(
            missing.iter().any(|line| line.contains(what)),
            "{what} is not seen: {missing:?}"
        );
    }
}
