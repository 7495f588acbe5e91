//! Proves the real control plane itself: that clusters are independent, that they refuse what a
//! real one refuses, and that nothing of them stays behind.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use loadtest::control_plane::{ControlPlane, Params};

/// For what the control plane does by itself, within seconds; generous for a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

async fn a_control_plane(name: &str) -> ControlPlane {
    let begin = Instant::now();
    let params = Params {
        name: name.to_owned(),
        ..Params::default()
    };
    let plane = ControlPlane::start(params)
        .await
        .expect("the control plane starts");
    let version = plane
        .server_version()
        .await
        .expect("the API server tells its version");
    // Past the test harness, so that every run shows what it ran against.
    let ready = begin.elapsed();
    let _ = writeln!(
        std::io::stderr(),
        "{name}: Kubernetes {version}, ready after {ready:?}"
    );
    plane
}

/// Asks until there is an answer; fails the test after [`PATIENCE`].
async fn eventually<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(
            Instant::now() < deadline,
            "{what} did not happen within {PATIENCE:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_component_that_ends_is_an_error_with_the_end_of_its_log() {
    let params = Params {
        api_server_flags: vec!["--no-such-flag".to_owned()],
        ..Params::default()
    };
    let error = ControlPlane::start(params)
        .await
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("kube-apiserver ended"), "{error}");
    assert!(error.contains("unknown flag: --no-such-flag"), "{error}");
}

#[tokio::test]
async fn a_drop_leaves_neither_processes_nor_data() {
    let plane = a_control_plane("dropped").await;
    let folder = plane.folder().to_owned();
    assert_eq!(
        processes_of(&folder),
        3 * 3,
        "three components, each with its shell and watcher"
    );
    drop(plane);
    assert_eq!(processes_of(&folder), 0);
    assert!(!folder.exists());
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "starts the program under test")]
async fn a_killed_parent_leaves_no_process() {
    // Has the binaries built, if they are to be, before the time of the child is measured.
    loadtest::control_plane::Assets::find().await.unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let log = std::fs::File::create(scratch.path().join("output")).unwrap();
    let mut parent = Command::new(env!("CARGO_BIN_EXE_control-plane"))
        .arg("--kubeconfig-dir")
        .arg(scratch.path())
        .stdout(log)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let folder = eventually("the start of the cluster", async || {
        let output = std::fs::read_to_string(scratch.path().join("output")).unwrap();
        let line = output
            .lines()
            .find_map(|line| line.strip_prefix("data and logs in "))?;
        // The line after it is there too, so that this one is whole.
        output
            .contains("export KUBECONFIG")
            .then(|| Path::new(line).to_owned())
    })
    .await;
    assert!(processes_of(&folder) > 0);

    parent.kill().unwrap();
    parent.wait().unwrap();
    eventually("the end of every process", async || {
        (processes_of(&folder) == 0).then_some(())
    })
    .await;
}

/// How many processes run in the folder of a cluster, as each of its processes does.
fn processes_of(folder: &Path) -> usize {
    std::fs::read_dir("/proc")
        .expect("Linux has /proc")
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path().join("cwd")).ok())
        .filter(|cwd| cwd == folder)
        .count()
}
