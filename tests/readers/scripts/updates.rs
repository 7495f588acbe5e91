//! The script with which a machine follows its document: it reports what differs, and puts into
//! place what is read again without a restart.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use osm::api::{names::MACHINE_REPORT, worker_cluster::MachineUpdates};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::{
    cases::{Case, Change, Profile, case_of, every_case, every_profile, profile_names},
    documents::files_of,
    machine::Machine,
    programs::{run, text},
    root::Root,
};

const SCRIPT: &str = "/opt/bin/osm-machine";
const FILES: &str = "/etc/osm/machine/files";
const LAST: &str = "/var/lib/osm-machine/last";
const NEXT: &str = "/var/lib/osm-machine/next";
const STATE: &str = "state";

/// An API server that notes a report, and has what is in its folder.
const CURL: &str = r#"#!/bin/bash
root="${0%/bin/*}"
echo "${0##*/} $*" >> "$root/calls"
case "$*" in
  *PATCH*) cat > "$root/sent" ;;
  *PartialObjectMetadata*) cat "$root/metadata" 2> /dev/null || exit 22 ;;
  *) cat "$root/secret" ;;
esac
"#;

/// A machine that has read its document, whose kubelet has a certificate.
fn a_node(case: &Case) -> Root {
    let root = Root::new();
    for file in files_of(&case.provisioning.document) {
        let at = root.at(&file.path);
        fs::create_dir_all(at.parent().expect("a folder")).expect("it can be made");
        fs::write(&at, &file.content).expect("it can be written");
        fs::set_permissions(&at, fs::Permissions::from_mode(file.mode)).expect("it is ours");
    }
    root.install("report", &root.moved(case.text(SCRIPT)));
    fs::create_dir_all(root.at("/var/lib")).expect("it can be made");
    root.write(FILES, &root.moved(case.text(FILES)));
    root.write(STATE, "ActiveState=active\nSubState=running\n");
    root.install(
        "openssl",
        "#!/bin/bash\necho subject=CN=system:node:one,O=system:nodes\n",
    );
    root.install("systemctl", "#!/bin/bash\ncat \"${0%/bin/*}/state\"\n");
    root.install("curl", CURL);
    root
}

/// What the node's condition becomes: status, reason and message; `None` if nothing is sent.
fn reported(root: &Root) -> Option<(String, String, String)> {
    drop(fs::remove_file(root.at("sent")));
    let output = run(&mut root.bash(&["bin/report"]));
    assert!(output.status.success(), "{}", text(&output));
    let sent = fs::read_to_string(root.at("sent")).ok()?;
    let sent: Value = serde_json::from_str(&sent).expect("it is JSON");
    let field = |name: &str| {
        let path = format!("/status/conditions/0/{name}");
        let found = sent.pointer(&path).and_then(Value::as_str);
        found.expect(name).to_owned()
    };
    assert_eq!(field("type"), "DocumentApplied");
    let annotations = sent.pointer("/metadata/annotations");
    let report = annotations.and_then(|it| it.get(MACHINE_REPORT));
    let expected = format!("{} {}", field("reason"), field("lastHeartbeatTime"));
    assert_eq!(report, Some(&json!(expected)));
    Some((field("status"), field("reason"), field("message")))
}

fn is(status: &str, reason: &str, message: &str) -> (String, String, String) {
    (status.to_owned(), reason.to_owned(), message.to_owned())
}

#[test]
fn what_differs_is_reported_once_an_hour_or_when_it_changes() {
    let well = Some(is(
        "True",
        "Applied",
        "the files are as in the document, and its services run",
    ));
    for profile in profile_names(every_case().iter()) {
        let root = a_node(case_of(profile, "following"));
        assert_eq!(reported(&root), well, "{profile}");
        assert_eq!(reported(&root), None, "nothing has changed");
        let calls = root.calls().join("\n");
        assert!(calls.contains("/api/v1/nodes/one/status"), "{calls}");

        let conf = root.at("/etc/crictl.yaml");
        let before = fs::read(&conf).expect("it is there");
        fs::write(&conf, "another").expect("it is ours");
        let differs = format!("not as in the document: {}", conf.display());
        assert_eq!(reported(&root), Some(is("False", "FilesDiffer", &differs)));
        root.write(STATE, "ActiveState=activating\nSubState=auto-restart\n");
        let (_, reason, message) = reported(&root).expect("a service fails, too");
        assert_eq!(reason, "FilesDiffer");
        let fails = message.strip_prefix(&format!("{differs}; failing: "));
        assert!(
            fails.is_some_and(|it| it.contains("setup.service")),
            "{message}"
        );
        fs::write(&conf, before).expect("it is ours");
        let (_, reason, _) = reported(&root).expect("a service fails");
        assert_eq!(reason, "ServicesFail");
        root.write(STATE, "ActiveState=active\nSubState=running\n");
        assert_eq!(reported(&root), well);

        let last = root.read(LAST);
        let (since, rest) = last.split_once('Z').expect("a time");
        let (_, rest) = rest.split_once('\n').expect("two lines");
        root.write(LAST, &format!("{since}Z 1700000000\n{rest}"));
        assert_eq!(reported(&root), well, "an hour has passed");
    }
}

#[test]
fn a_file_that_is_missing_or_has_another_mode_differs_and_five_are_named() {
    let root = a_node(case_of("osp-ubuntu", "following"));
    let files = root.read(FILES);
    let paths: Vec<&str> = files
        .lines()
        .filter_map(|it| it.splitn(4, ' ').nth(3))
        .collect();
    let (mode, gone) = (paths.first().expect("files"), paths.get(1).expect("files"));
    fs::set_permissions(mode, fs::Permissions::from_mode(0o4700)).expect("it is ours");
    fs::remove_file(gone).expect("it is ours");
    let expected = format!("not as in the document: {mode}, {gone}");
    assert_eq!(reported(&root), Some(is("False", "FilesDiffer", &expected)));
    for path in paths
        .iter()
        .skip(2)
        .filter(|path| !path.contains("/opt/bin"))
    {
        fs::remove_file(path).expect("it is ours");
    }
    let (_, _, message) = reported(&root).expect("it changes");
    assert!(
        message.contains(" and ") && message.ends_with(" more"),
        "{message}"
    );
}

#[test]
fn before_the_kubelet_has_a_certificate_nothing_is_sent() {
    let root = a_node(case_of("osp-ubuntu", "following"));
    root.install("openssl", "#!/bin/bash\nexit 1\n");
    assert_eq!(reported(&root), None);
}

/// A document as the API server has it for a machine in a folder.
fn publish(root: &Root, case: &Case, content: &str) {
    let list = case.provisioning.texts.get(FILES);
    let list = list.map(String::as_str).unwrap_or_default();
    let moved = root.moved(list);
    let document = String::from_utf8(case.provisioning.document.clone()).expect("it is text");
    let percent = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let begin = "\"source\":\"data:,";
    let of_ignition = document
        .find(&format!("\"path\":\"{FILES}\""))
        .and_then(|at| {
            let from = at + document.get(at..)?.find(begin)? + begin.len();
            let until = from + document.get(from..)?.find('"')?;
            Some((from, until))
        });
    let document = match of_ignition {
        Some((from, until)) => {
            let mut document = document;
            document.replace_range(from..until, &percent(&moved));
            document
        }
        None if list.is_empty() => document,
        None => document.replace(&STANDARD.encode(list), &STANDARD.encode(moved)),
    };
    let document = document.replace(FILES, &root.at(FILES).display().to_string());
    let data = STANDARD.encode(document);
    root.write(
        "secret",
        &format!("{{\n  \"data\": {{\n    \"cloud-config\": \"{data}\"\n  }}\n}}"),
    );
    let annotation = "operatingsystemmanager.k8c.io/content";
    root.write(
        "metadata",
        &format!("{{\"metadata\":{{\"annotations\":{{\"{annotation}\":\"{content}\"}}}}}}"),
    );
    drop(fs::remove_file(root.at(NEXT)));
}

/// A machine of a profile that follows its document, with a change.
fn following(profile: &Profile, change: Change) -> Case {
    let mut machine = profile.machine();
    machine.settings.machine_updates = MachineUpdates::Reload;
    change(&mut machine);
    profile.render("updates", machine)
}

fn mirror(machine: &mut Machine, registry: &str) {
    let mirrors = vec!["https://mirror.example".to_owned()];
    let mirrors = [(registry.to_owned(), mirrors)];
    machine.settings.registry_mirrors.extend(mirrors);
}

#[test]
fn what_is_read_again_without_a_restart_is_put_into_place_and_the_rest_is_named() {
    const HOSTS: &str = "/etc/containerd/certs.d/registry.example/hosts.toml";
    let well = Some(is(
        "True",
        "Applied",
        "the files are as in the document, and its services run",
    ));
    for profile in every_profile() {
        let of = |change| following(profile, change);
        let plain = of(|_| {});
        let mirrored = of(|it| mirror(it, "registry.example"));
        let restarting = of(|it| {
            it.settings.kubelet.fields =
                [("eventBurst".to_owned(), 7.into())].into_iter().collect();
        });
        let root = a_node(&plain);
        publish(&root, &plain, "1");
        assert_eq!(reported(&root), well, "{}", profile.name);

        publish(&root, &mirrored, "2");
        assert_eq!(reported(&root), None, "{}: it is applied", profile.name);
        let files = files_of(&mirrored.provisioning.document);
        let hosts = files
            .iter()
            .find(|it| it.path == HOSTS)
            .expect("it has one");
        assert_eq!(root.read(HOSTS), hosts.content, "{}", profile.name);
        let mode = fs::metadata(root.at(HOSTS))
            .expect("it is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, hosts.mode);

        publish(&root, &restarting, "3");
        let (status, reason, message) = reported(&root).expect("it is behind");
        assert_eq!((&*status, &*reason), ("False", "Behind"), "{message}");
        assert!(
            message.contains("/etc/kubernetes/kubelet.conf.d/10-tenant.conf"),
            "{message}"
        );
        assert!(!root.at(HOSTS).exists(), "{}: it was removed", profile.name);
        publish(&root, &plain, "1");
        assert_eq!(reported(&root), well, "the setting is as before");

        // Somebody has changed it on the machine, and the document has not changed.
        publish(&root, &mirrored, "2");
        assert_eq!(reported(&root), None);
        root.write(HOSTS, "");
        publish(&root, &mirrored, "2");
        let (_, reason, _) = reported(&root).expect("it differs");
        assert_eq!(reason, "FilesDiffer");
        assert_eq!(root.read(HOSTS), "");
        // Another file changes.
        let both = of(|it| {
            mirror(it, "registry.example");
            mirror(it, "other.example");
        });
        publish(&root, &both, "4");
        assert_eq!(reported(&root), None, "it still differs");
        assert!(root.at(&HOSTS.replace("registry", "other")).exists());
        assert_eq!(root.read(HOSTS), "", "it stays as somebody has made it");
    }
}

#[test]
fn an_answer_that_is_not_whole_changes_nothing_and_is_reported_when_it_lasts() {
    let plain = case_of("osp-ubuntu", "following");
    let root = a_node(plain);
    let before = root.read(FILES);
    publish(&root, plain, "2");
    let secret = root.read("secret");
    let broken = secret.len() * 9 / 10;
    root.write("secret", secret.get(..broken).expect("it is ASCII"));
    let (status, _, _) = reported(&root).expect("it reports");
    assert_eq!(status, "True");
    assert_eq!(root.read(FILES), before);
    let since = "2026-01-01T00:00:00Z";
    root.write(
        "/var/lib/osm-machine/failing",
        &format!("{since} 1767225600\n"),
    );
    let (_, _, message) = reported(&root).expect("it lasts");
    let expected = format!("; following the document has failed since {since}");
    assert!(message.ends_with(&expected), "{message}");
    publish(&root, plain, "2");
    let (_, _, message) = reported(&root).expect("it is over");
    assert!(!message.contains("failed since"), "{message}");
}

#[test]
fn a_change_that_ends_halfway_is_finished_or_taken_back() {
    const HOSTS: [&str; 2] = [
        "/etc/containerd/certs.d/a.example/hosts.toml",
        "/etc/containerd/certs.d/b.example/hosts.toml",
    ];
    let [profile, ..] = every_profile() else {
        unreachable!("there are some")
    };
    let plain = following(profile, |_| {});
    let mirrored = following(profile, |it| {
        mirror(it, "a.example");
        mirror(it, "b.example");
    });
    for is_finished in [true, false] {
        let root = a_node(&plain);
        publish(&root, &plain, "1");
        assert!(reported(&root).is_some_and(|it| it.0 == "True"));
        // The second folder cannot be made.
        root.write("/etc/containerd/certs.d/b.example", "");
        publish(&root, &mirrored, "2");
        assert_eq!(reported(&root), None, "it is tried again later");
        assert_eq!(HOSTS.map(|it| root.at(it).is_file()), [true, false]);
        fs::remove_file(root.at("/etc/containerd/certs.d/b.example")).expect("it is ours");
        let next = if is_finished {
            (&mirrored, "2")
        } else {
            (&plain, "1")
        };
        publish(&root, next.0, next.1);
        assert_eq!(reported(&root), None, "it is as in its document");
        let there = HOSTS.map(|it| root.at(it).is_file());
        assert_eq!(there, [is_finished, is_finished]);
        let folder = root.at("/etc/containerd/certs.d/a.example");
        assert_eq!(folder.exists(), is_finished, "it would hide the default");
    }
}

#[test]
fn machines_stop_when_their_document_says_so() {
    let [profile, ..] = every_profile() else {
        unreachable!("there are some")
    };
    let root = a_node(&following(profile, |_| {}));
    for (content, updates, expected) in [
        ("2", MachineUpdates::Report, "Behind"),
        ("3", MachineUpdates::Disabled, "Applied"),
    ] {
        let mut machine = profile.machine();
        machine.settings.machine_updates = updates;
        mirror(&mut machine, "registry.example");
        publish(&root, &profile.render("stopped", machine), content);
        let (_, reason, message) = reported(&root).expect("it changes");
        assert_eq!(reason, expected, "{message}");
        let names_file = message.contains("registry.example/hosts.toml");
        assert_eq!(names_file, updates == MachineUpdates::Report, "{message}");
        let folder = root.at("/etc/containerd/certs.d/registry.example");
        assert!(!folder.exists(), "{updates:?}");
    }
    // A full disk has left nothing of the time of the next look.
    publish(
        &root,
        &following(profile, |it| mirror(it, "registry.example")),
        "4",
    );
    root.write(NEXT, "");
    assert_eq!(reported(&root), None);
    assert!(root.at("/etc/containerd/certs.d/registry.example").exists());
}
