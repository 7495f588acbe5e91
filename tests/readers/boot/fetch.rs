//! Machines fetch their provisioning document from a real API server, through every fault that
//! may stand in their way: each is behind the one before.

use std::{collections::BTreeMap, fmt::Write as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{
    boot::{
        applied::{missing_files, missing_on},
        bootstrap::{Attempt, Bootstrap},
        cluster::Cluster,
        machine::{BOOT, EARLY_BOOT, Machine, Release, Stopped},
    },
    cases::{Case, Profile, every_profile},
    documents::files_of,
    machine::Access,
    readers::Reader,
};

/// The delays of five failed attempts, in seconds.
const DELAYS: &str = "2\n4\n8\n16\n32\n";

/// Stands in for Flatcar's reader of `#cloud-config` documents, which Debian does not have.
const COREOS_CLOUDINIT: &str = r#"#!/bin/bash
document="${1#--from-file=}"
cloud-init single --name write_files --frequency always --file "$document" ||
  cloud-init --file "$document" single --name write_files --frequency always
"#;

/// What Ignition does at the restart that the bootstrap asks for.
const IGNITION_RUNS: &str = "\
[ ! -e /etc/machine-id ] || exit 1
rm /boot/flatcar/first_boot
touch /etc/bootstrap-complete
";

/// A machine of a profile, and its documents with each of the two faults that are its own.
struct Subject {
    machine: Bootstrap,
    wrong_authority: Case,
    wrong_token: Case,
    right: Case,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_says_every_fault_and_finishes_when_it_is_gone() {
    let cluster = Cluster::start().await;
    cluster.forbid().await;
    cluster.go_away().await;
    let mut subjects = subjects(&cluster.access());
    each_fails(&mut subjects, "Failed to connect to 127.0.0.1");
    cluster.come_back().await;
    each_is_repaired(&subjects, |_| "true".to_owned());
    each_fails(&mut subjects, "SSL certificate problem");
    each_is_repaired(&subjects, |subject| {
        difference(&subject.wrong_authority, &subject.wrong_token)
    });
    each_fails(&mut subjects, "The requested URL returned error: 401");
    each_is_repaired(&subjects, |subject| {
        difference(&subject.wrong_token, &subject.right)
    });
    each_fails(&mut subjects, "The requested URL returned error: 403");
    cluster.permit().await;
    each_is_repaired(&subjects, |_| "true".to_owned());
    each_fails(&mut subjects, "The requested URL returned error: 404");
    let documents: BTreeMap<_, _> = subjects
        .iter()
        .map(|subject| (&subject.right.secret, &subject.right.provisioning.document))
        .collect();
    for (name, document) in documents {
        cluster.publish(name, document).await;
    }
    each_is_repaired(&subjects, |_| "true".to_owned());
    for subject in subjects {
        let machine = subject.machine.finish();
        assert!(machine.succeeded, "{}", machine.log);
        has_fetched_once(&machine, &subject.right);
        if subject.right.reader == Reader::Ignition {
            awaits_ignition(&machine, &subject.right);
        } else {
            has_the_files(&machine, &subject.right);
        }
        if subject.right.reader == Reader::CloudInit {
            let missing = missing_on(&machine, &subject.right.bootstrap.document);
            let name = &subject.right.name;
            assert!(missing.is_empty(), "{name}: {missing:#?}\n{}", machine.log);
        }
    }
    cluster.end().await;
}

#[test]
fn a_script_that_leaves_a_file_or_works_twice_is_seen() {
    let document = "#cloud-config\nwrite_files:\n\
        - path: /etc/systemd/system/bootstrap.service\n  content: |\n    \
          ExecStart=/opt/bin/bootstrap\n\
        - path: /opt/bin/bootstrap\n  permissions: '0755'\n  content: |\n    \
          #!/bin/bash\n    echo too early > /etc/left-behind\n    sleep 2\n    \
          echo too late > /etc/left-behind\n";
    let machine = Machine::new(Release::Trixie, document.as_bytes());
    let mut machine = Bootstrap::start(machine, EARLY_BOOT, "");
    let attempt = machine.next_failure();
    assert_eq!(attempt.changed, "/etc/left-behind\n");
    machine.repair("true");
    machine.next_failure();
    machine.repair("true");
    let machine = machine.finish();
    assert_eq!(machine.shared("changed-second"), "/etc/left-behind\n");
}

/// Every profile on one release, in turns; Ubuntu's, which has what all share, on both.
fn subjects(access: &Access) -> Vec<Subject> {
    let mut subjects = Vec::new();
    for (profile, release) in every_profile().iter().zip(Release::ALL.iter().cycle()) {
        subjects.push(Subject::new(profile, *release, access));
        if profile.name == "osp-ubuntu" {
            subjects.push(Subject::new(profile, release.other(), access));
        }
    }
    subjects
}

impl Subject {
    fn new(profile: &Profile, release: Release, right: &Access) -> Self {
        let wrong_token = Access {
            token: format!("{}x", right.token),
            ..right.clone()
        };
        let stranger = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])
            .expect("a certificate can be made");
        let wrong_authority = Access {
            authority: stranger.cert.pem(),
            ..wrong_token.clone()
        };
        let render = |access: &Access| {
            let mut machine = profile.machine();
            machine.deployment.clone_from(&profile.name);
            machine.access = access.clone();
            profile.render("fetches", machine)
        };
        let wrong_authority = render(&wrong_authority);
        Self {
            machine: started(&wrong_authority, release),
            wrong_token: render(&wrong_token),
            right: render(right),
            wrong_authority,
        }
    }
}

/// A machine that cloud-init or Ignition has given the files of the bootstrap document.
fn started(case: &Case, release: Release) -> Bootstrap {
    let document = &case.bootstrap.document;
    let boot = match case.reader {
        Reader::CloudInit => Some(BOOT),
        Reader::CoreosCloudinit => Some(EARLY_BOOT),
        Reader::Ignition => None,
    };
    if let Some(boot) = boot {
        let machine = Machine::new(release, document);
        machine.put_program("/usr/local/bin/coreos-cloudinit", COREOS_CLOUDINIT);
        return Bootstrap::start(machine, boot, "");
    }
    let machine = Machine::new(release, b"#cloud-config\n");
    for file in files_of(document) {
        machine.put(&file.path, file.content.as_bytes(), file.mode);
    }
    machine.put(
        "/etc/machine-id",
        b"0123456789abcdef0123456789abcdef\n",
        0o444,
    );
    machine.put("/usr/share/oem/grub.cfg", b"", 0o644);
    machine.put("/boot/flatcar/vmlinuz-a", b"", 0o644);
    Bootstrap::start(machine, "", IGNITION_RUNS)
}

/// Every machine fails once more, says why, and leaves nothing behind.
fn each_fails(subjects: &mut [Subject], reason: &str) {
    for subject in subjects {
        let name = &subject.right.name;
        let secret = &subject.right.secret;
        let Attempt { output, changed } = subject.machine.next_failure();
        assert!(
            output.contains(reason),
            "{name}: {output} does not say: {reason}"
        );
        assert!(
            output.contains(secret),
            "{name}: {output} does not name {secret}"
        );
        assert_eq!(changed, "", "{name}: written after: {reason}");
    }
}

fn each_is_repaired(subjects: &[Subject], script: impl Fn(&Subject) -> String) {
    for subject in subjects {
        subject.machine.repair(&script(subject));
    }
}

/// A script that makes a machine with one bootstrap document like one with another.
fn difference(from: &Case, to: &Case) -> String {
    let [before, after] = [from, to].map(|case| files_of(&case.bootstrap.document));
    let mut script = String::new();
    for (old, new) in before.iter().zip(&after) {
        if old.content != new.content {
            let content = STANDARD.encode(&new.content);
            let _ = writeln!(script, "base64 -d <<< {content} > '{}'", new.path);
        }
    }
    assert!(!script.is_empty(), "the documents differ");
    script
}

/// The document has arrived byte for byte, and a second start of the unit did nothing.
fn has_fetched_once(machine: &Stopped, case: &Case) {
    let name = format!("{} ({:?})", case.name, machine.release);
    assert_eq!(machine.shared("delays"), DELAYS, "{name}");
    assert!(
        machine.has_content(&case.provisioning.document),
        "{name}: {}",
        machine.shared("output")
    );
    let calls = machine.shared("calls");
    assert_eq!(machine.shared("calls-first"), calls, "{name}: called twice");
    assert_eq!(machine.shared("output-second"), "", "{name}");
    assert_eq!(machine.shared("changed-second"), "", "{name}");
}

/// The document is applied, and the setup is started once.
fn has_the_files(machine: &Stopped, case: &Case) {
    let name = format!("{} ({:?})", case.name, machine.release);
    let missing = missing_files(machine, &case.provisioning.document);
    assert!(missing.is_empty(), "{name}: {missing:#?}");
    let marker = "/etc/bootstrap-complete";
    assert!(machine.file(marker).is_some(), "{name}: {marker}");
    let mut calls = machine.calls_by("/opt/bin/bootstrap");
    calls.retain(|call| !call.starts_with("systemctl is-active "));
    assert_eq!(
        calls,
        [
            "systemctl daemon-reload",
            "systemctl enable setup.service",
            "systemctl restart setup.service",
            "systemctl disable bootstrap.service",
        ],
        "{name}"
    );
}

/// The document is where Ignition reads it, and the machine restarts, once.
fn awaits_ignition(machine: &Stopped, case: &Case) {
    let name = &case.name;
    let config = "/usr/share/oem/config.ign";
    assert_eq!(machine.mode(config), Some("600 0 0"), "{name}");
    assert_eq!(
        machine.file(config).as_deref(),
        Some(case.provisioning.document.as_slice()),
        "{name}"
    );
    assert_eq!(
        machine.calls_by("/opt/bin/bootstrap"),
        ["systemctl reboot"],
        "{name}"
    );
}
