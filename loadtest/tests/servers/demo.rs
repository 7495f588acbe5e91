//! Runs the demo as a user does, and looks at what it prints and at what it leaves behind.
//!
//! The demo runs the `osm` beside itself, which `cargo test --workspace` builds; after a change of
//! the manager, `cargo test -p loadtest` alone would show the old one.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The manager ends within seconds; this is for a busy machine.
const END_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[expect(
    clippy::disallowed_methods,
    reason = "running the demo is what these tests are for"
)]
fn demo(folder: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command.env("TMPDIR", folder.path());
    command
}

fn a_folder() -> TempDir {
    tempfile::tempdir().expect("there is room for files")
}

fn shown(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{text}\n{errors}",
        output.status
    );
    text
}

/// Whatever has the demo's files on its command line.
fn processes_of(folder: &TempDir) -> Vec<String> {
    let mark = folder.path().to_string_lossy().into_owned();
    fs::read_dir("/proc")
        .expect("this is Linux")
        .filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(&mark))
        .collect()
}

/// What is left, but for the locks of control planes: a lock that is removed while somebody waits
/// for it would be held twice.
fn left_in(folder: &Path) -> Vec<String> {
    let mut left = Vec::new();
    for entry in fs::read_dir(folder).expect("the folder is ours") {
        let entry = entry.expect("the folder is ours");
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("osm-control-plane-") {
            left.extend(left_in(&entry.path()));
        } else if Path::new(&name).extension().is_none_or(|it| it != "lock") {
            left.push(name);
        }
    }
    left
}

fn holds(text: &str, words: &[&str]) {
    let found = text
        .lines()
        .any(|line| line.split_whitespace().collect::<Vec<_>>() == words);
    assert!(found, "no line {words:?} in\n{text}");
}

/// Starts a demo that stays.
fn start(folder: &TempDir) -> Child {
    let piped = demo(folder).stdout(Stdio::piped()).spawn();
    piped.expect("the demo starts")
}

/// What a demo that stays has printed when it has shown everything.
fn shown_by(child: &mut Child) -> String {
    let output = child.stdout.take().expect("the output is piped");
    let mut text = String::new();
    for line in BufReader::new(output).lines() {
        let line = line.expect("the output is text");
        text.push_str(&line);
        text.push('\n');
        if line.contains("stays up") {
            return text;
        }
    }
    unreachable!("the demo ended early:\n{text}");
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < END_TIMEOUT, "{what} does not happen");
        sleep(POLL_INTERVAL);
    }
}

fn check(kind: &str, server: &str) {
    let folder = a_folder();
    let output = demo(&folder).args(["--exit", "--kube", kind]).output();
    let text = shown(&output.expect("the demo starts"));
    for tenant in ["berlin", "lisbon"] {
        let namespace = format!("tenant-{tenant}");
        let row = text
            .lines()
            .find(|line| {
                line.split_whitespace()
                    .take(2)
                    .eq([namespace.as_str(), tenant])
            })
            .unwrap_or_default();
        assert!(
            row.contains("True") && row.contains(server) && row.ends_with("1/1"),
            "{text}"
        );
        let config = format!("{tenant}-workers-kube-system-config");
        holds(&text, &[&namespace, "OperatingSystemConfig", &config]);
        for name in ["bootstrap-config", "provisioning-config"] {
            let secret = format!(" {tenant}-workers-kube-system-{name} ");
            assert!(text.contains(&secret), "{secret} is missing:\n{text}");
        }
    }
    assert!(text.contains("#cloud-config"), "{text}");
    assert!(text.contains("Bearer <redacted>"), "{text}");
    assert!(text.contains("  reconcile machine deployment  "), "{text}");
    assert!(text.contains("      POST secrets  "), "{text}");
    assert!(!text.contains('\u{1b}'), "a pipe gets no colours: {text}");
    assert_eq!(left_in(folder.path()), [""; 0]);
    assert_eq!(processes_of(&folder), [""; 0]);
}

#[test]
fn two_tenants_are_served_in_memory() {
    check("fake", "v1.");
}

#[test]
fn two_tenants_are_served_on_the_real_control_plane() {
    check("real", "v1.");
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the standard library sends no signal but SIGKILL"
)]
fn an_interrupt_ends_everything_with_status_0() {
    let folder = a_folder();
    let mut child = start(&folder);
    let text = shown_by(&mut child);
    assert!(text.contains("kubectl --kubeconfig "), "{text}");
    let sent = Command::new("/bin/sh")
        .args(["-c", "kill -INT \"$0\"", &child.id().to_string()])
        .status();
    assert!(sent.expect("there is a shell").success());
    assert!(child.wait().expect("the demo ends").success());
    assert_eq!(left_in(folder.path()), [""; 0]);
    assert_eq!(processes_of(&folder), [""; 0]);
}

#[test]
fn a_killed_demo_takes_the_manager_with_it() {
    let folder = a_folder();
    let mut child = start(&folder);
    shown_by(&mut child);
    assert!(!processes_of(&folder).is_empty());
    child.kill().expect("the demo runs");
    child.wait().expect("the demo ends");
    until("the end of the manager", || {
        processes_of(&folder).is_empty()
    });
}

#[test]
fn a_missing_manager_is_reported_with_what_to_do() {
    let folder = a_folder();
    let output = demo(&folder)
        .args(["--exit", "--osm", "/nowhere/osm"])
        .output()
        .expect("the demo starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors.contains("there is no program /nowhere/osm") && errors.contains("cargo build"),
        "{errors}"
    );
}
