//! systemd reads the units of both documents on the machine itself: with the scripts that they
//! start, and after the units of the release.

use crate::{
    boot::machine::{Machine, Network, Release, Stopped},
    cases::{Case, case, distinct, every_case},
    documents::files_of,
};

/// What a node downloads before its units start, and where its package puts a unit.
const DOWNLOADED: [(&str, &str, u32); 3] = [
    ("/opt/bin/kubelet", "#!/bin/sh\n", 0o755),
    ("/usr/bin/containerd", "#!/bin/sh\n", 0o755),
    (
        "/usr/lib/systemd/system/containerd.service",
        "[Service]\nExecStart=/usr/bin/containerd\n",
        0o644,
    ),
];

/// Without the second flag an unknown key is printed, and forgiven. containerd is named, since its
/// drop-ins are read with it.
const VERIFY: &str = "systemd-analyze verify --man=no --recursive-errors=no \
     /etc/systemd/system/*.service containerd.service\n";

#[test]
fn systemd_accepts_every_unit_on_the_machine() {
    let units = |case: &'static Case| (case.name.clone(), case.texts_below("/etc/systemd/system/"));
    let sets = distinct(every_case().iter().map(units));
    assert!(sets.len() > 8, "the cases differ");
    for ((name, _), release) in sets.iter().zip(Release::ALL.into_iter().cycle()) {
        let machine = verified(release, case(name), |text| text);
        assert!(machine.succeeded, "{name}, {release:?}: {}", machine.log);
        assert_eq!(machine.log, "", "{name}, {release:?}");
    }
}

#[test]
fn a_script_that_no_document_writes_and_a_wrong_value_are_seen() {
    let case = case("osp-ubuntu/aws/1.34.1");
    for (from, to, complaint) in [
        (
            "/opt/bin/supervise.sh /",
            "/opt/bin/supervisor.sh /",
            "supervisor.sh is not executable",
        ),
        (
            "LogRateLimitBurst=1000",
            "LogRateLimitBurst=many",
            "LogRateLimitBurst",
        ),
    ] {
        let machine = verified(Release::Trixie, case, |text| text.replace(from, to));
        assert!(!machine.succeeded, "{complaint} is not seen");
        assert!(machine.log.contains(complaint), "{}", machine.log);
    }
}

/// A machine with the files of both documents, changed, and with what it would download.
fn verified(release: Release, case: &Case, change: impl Fn(String) -> String) -> Stopped {
    let machine = Machine::new(release, b"#cloud-config\n");
    for half in [&case.bootstrap, &case.provisioning] {
        for file in files_of(&half.document) {
            machine.put(&file.path, change(file.content).as_bytes(), file.mode);
        }
    }
    for (path, content, mode) in DOWNLOADED {
        machine.put(path, content.as_bytes(), mode);
    }
    machine.start(Network::Own, VERIFY).stop()
}
