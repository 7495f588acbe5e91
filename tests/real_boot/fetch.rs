//! Machines fetch their provisioning document from a real API server, through every fault that
//! may stand in their way: each is behind the one before.

use osm::api::profile::{CloudProvider, ProvisioningUtility};

use crate::{
    bootstrap::{Attempt, Bootstrap},
    cloud_config::CloudConfig,
    cluster::{Cluster, secret_name},
    documents::{Access, Documents, Profile},
    machine::{Machine, Release, Stopped},
};

/// The delays of five failed attempts, in seconds.
const DELAYS: &str = "2\n4\n8\n16\n32\n";

/// How a machine's documents come out with each of the two faults that are its own.
struct Subject {
    wrong_authority: Documents,
    wrong_token: Documents,
    right: Documents,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_tells_every_fault_and_finishes_when_it_is_gone() {
    let cluster = Cluster::start().await;
    for profile in Profile::all(ProvisioningUtility::CloudInit) {
        let subject = Subject::new(&profile, &cluster.access());
        cluster.forbid().await;
        cluster.go_away().await;
        let mut machines = Release::ALL.map(|release| {
            Bootstrap::start(Machine::new(release, &subject.wrong_authority.bootstrap))
        });
        each_fails(&mut machines, "Failed to connect to 127.0.0.1");
        cluster.come_back().await;
        repair(&machines, "true");
        each_fails(&mut machines, "SSL certificate problem");
        let script = difference(&subject.wrong_authority, &subject.wrong_token);
        repair(&machines, &script);
        each_fails(&mut machines, "The requested URL returned error: 401");
        repair(&machines, &difference(&subject.wrong_token, &subject.right));
        each_fails(&mut machines, "The requested URL returned error: 403");
        cluster.permit().await;
        repair(&machines, "true");
        each_fails(&mut machines, "The requested URL returned error: 404");
        cluster.publish(&subject.right.provisioning).await;
        repair(&machines, "true");
        for machine in machines {
            has_become_a_node(&machine.finish(), &subject.right);
        }
        cluster.withdraw().await;
    }
    cluster.end().await;
}

#[test]
fn a_script_that_leaves_a_file_or_does_not_fail_is_seen() {
    let document = "#cloud-config\nwrite_files:\n\
        - path: /etc/systemd/system/bootstrap.service\n  content: |\n    \
          ExecStart=/opt/bin/bootstrap\n\
        - path: /opt/bin/bootstrap\n  permissions: '0755'\n  content: |\n    \
          #!/bin/bash\n    echo too early > /etc/left-behind\n    sleep 2\n    \
          echo too late > /etc/left-behind\n";
    let machine = Machine::new(Release::Trixie, document.as_bytes());
    let mut machine = Bootstrap::start(machine);
    let attempt = machine.next_failure();
    assert_eq!(attempt.changed, "/etc/left-behind\n");
    machine.repair("true");
    machine.next_failure();
    machine.repair("true");
    let machine = machine.finish();
    assert_eq!(machine.shared("changed-second"), "/etc/left-behind\n");
}

impl Subject {
    fn new(profile: &Profile, right: &Access) -> Self {
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
        let render = |access| profile.render(CloudProvider::OpenStack, access);
        Self {
            wrong_authority: render(&wrong_authority),
            wrong_token: render(&wrong_token),
            right: render(right),
        }
    }
}

/// Every machine fails once more, says why, and leaves nothing behind.
fn each_fails(machines: &mut [Bootstrap], reason: &str) {
    for machine in machines {
        let Attempt { output, changed } = machine.next_failure();
        assert!(output.contains(reason), "{output} does not say: {reason}");
        let secret = secret_name();
        assert!(output.contains(&secret), "{output} does not name {secret}");
        assert_eq!(changed, "", "written after: {reason}");
    }
}

fn repair(machines: &[Bootstrap], script: &str) {
    for machine in machines {
        machine.repair(script);
    }
}

/// A script that makes a machine with one bootstrap document like one with another.
fn difference(from: &Documents, to: &Documents) -> String {
    use std::fmt::Write as _;
    let before = CloudConfig::parse(&from.bootstrap);
    let after = CloudConfig::parse(&to.bootstrap);
    let mut script = String::new();
    for (old, new) in before.write_files.iter().zip(&after.write_files) {
        if old.bytes() != new.bytes() {
            let content = String::from_utf8(new.bytes()).expect("a file is text");
            let _ = write!(script, "cat > '{}' << 'END'\n{content}\nEND\n", new.path);
        }
    }
    assert!(!script.is_empty(), "the documents differ");
    script
}

/// The document has arrived and is applied, and nothing happened twice.
fn has_become_a_node(machine: &Stopped, documents: &Documents) {
    let name = format!("{} ({:?})", documents.name, machine.release);
    assert!(
        machine.succeeded,
        "{name}: {}{}",
        machine.shared("output"),
        machine.log
    );
    assert_eq!(machine.shared("delays"), DELAYS, "{name}");
    let stored = format!("/etc/cloud/cloud.cfg.d/{}.cfg", secret_name());
    assert_eq!(
        machine.file(&stored).as_deref(),
        Some(documents.provisioning.as_slice()),
        "{name}"
    );
    let missing = CloudConfig::parse(&documents.provisioning).missing_files(machine);
    assert!(missing.is_empty(), "{name}: {missing:#?}");
    for marker in ["/etc/bootstrap-complete", "/etc/cloud/cloud-init.disabled"] {
        assert!(machine.file(marker).is_some(), "{name}: {marker}");
    }
    let calls = machine.calls_by("/opt/bin/bootstrap");
    assert_eq!(
        calls,
        [
            "systemctl is-active cloud-final.service",
            "systemctl daemon-reload",
            "systemctl enable setup.service",
            "systemctl restart setup.service",
            "systemctl disable bootstrap.service",
        ],
        "{name}"
    );
    let all = machine.shared("calls");
    assert_eq!(machine.shared("calls-first"), all, "{name}: called twice");
    assert!(!all.contains("\treboot"), "{name}: {all}");
    assert_eq!(machine.shared("output-second"), "", "{name}");
    assert_eq!(machine.shared("changed-second"), "", "{name}");
}
