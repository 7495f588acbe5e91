//! Has Go build the control plane. Go keeps its own cache, so that a second build takes seconds;
//! the first one takes minutes and says how far it is.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{io, thread};

/// Somebody who waits for minutes wants to see that something moves.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// The errors of the compiler come last.
const TAIL_LINES: usize = 20;

/// A program and the package that it is built from.
pub(super) struct Program {
    pub(super) name: &'static str,
    package: &'static str,
}

/// etcd first: it is small, so that a machine without a network or with a broken toolchain fails
/// early.
pub(super) const PROGRAMS: [Program; 4] = [
    Program {
        name: "etcd",
        package: "go.etcd.io/etcd/server/v3",
    },
    Program {
        name: "kube-apiserver",
        package: "k8s.io/kubernetes/cmd/kube-apiserver",
    },
    Program {
        name: "kube-controller-manager",
        package: "k8s.io/kubernetes/cmd/kube-controller-manager",
    },
    Program {
        name: "kubectl",
        package: "k8s.io/kubernetes/cmd/kubectl",
    },
];

/// As Kubernetes builds its releases. The tag lets the linker drop gRPC's tracing, and with it
/// much that it keeps alive.
pub(super) const FLAGS: [&str; 4] = [
    "-trimpath",
    "-buildvcs=false",
    "-mod=readonly",
    "-tags=notest,grpcnotrace",
];

/// Both packages hold a copy: what the server reports, and what clients call themselves.
const VERSION_PACKAGES: [&str; 2] = [
    "k8s.io/component-base/version",
    "k8s.io/client-go/pkg/version",
];

/// Why Go did not build the control plane.
#[derive(Debug, thiserror::Error)]
pub enum GoError {
    /// The module names no Kubernetes.
    #[error("go.mod pins no version of k8s.io/kubernetes")]
    NoVersion,
    /// A file, or the program itself.
    #[error("running go")]
    Run(#[source] io::Error),
    /// Go failed.
    #[error("go build of {program} failed ({status}):\n{output}")]
    Failed {
        /// What was being built.
        program: &'static str,
        /// How Go ended.
        status: ExitStatus,
        /// The last lines that Go wrote.
        output: String,
    },
}

#[expect(
    clippy::disallowed_methods,
    reason = "asks the developer's own toolchain"
)]
pub(super) fn is_installed(go: &Path) -> bool {
    let version = Command::new(go)
        .arg("version")
        .stdout(Stdio::null())
        .status();
    version.is_ok_and(|status| status.success())
}

/// Builds every program into the folder.
pub(super) fn build(go: &Path, module: &Path, folder: &Path) -> Result<(), GoError> {
    let version = pinned_version(module)?;
    let ldflags = ldflags(&version);
    let count = PROGRAMS.len();
    report(&format!(
        "building Kubernetes {version} for the tests, once; this takes minutes"
    ));
    for (index, program) in PROGRAMS.iter().enumerate() {
        let title = format!("{} ({} of {count})", program.name, index + 1);
        let command = command(go, module, &ldflags);
        build_one(command, program, folder, &title)?;
    }
    Ok(())
}

/// Writes past the test harness, which holds back what a running test prints.
pub(super) fn report(text: &str) {
    // A closed stderr is no reason to stop.
    let _ = writeln!(io::stderr(), "control-plane: {text}");
}

#[expect(
    clippy::disallowed_methods,
    reason = "runs the developer's own toolchain"
)]
fn command(go: &Path, module: &Path, ldflags: &str) -> Command {
    let mut command = Command::new(go);
    command
        .arg("build")
        .arg("-v")
        .args(FLAGS)
        .arg(format!("-ldflags={ldflags}"))
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        // A workspace or flags of the developer's own would build something else.
        .env("GOWORK", "off")
        .env("GOFLAGS", "")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

fn build_one(
    mut command: Command,
    program: &'static Program,
    folder: &Path,
    title: &str,
) -> Result<(), GoError> {
    let begin = Instant::now();
    report(&format!("{title} …"));
    command
        .arg("-o")
        .arg(folder.join(program.name))
        .arg(program.package);
    let mut child = command.spawn().map_err(GoError::Run)?;
    let output = match child.stderr.take() {
        Some(stderr) => follow(stderr, title, begin),
        None => VecDeque::new(),
    };
    let status = child.wait().map_err(GoError::Run)?;
    if !status.success() {
        let output = Vec::from(output).join("\n");
        return Err(GoError::Failed {
            program: program.name,
            status,
            output,
        });
    }
    report(&format!("{title} built in {} s", begin.elapsed().as_secs()));
    Ok(())
}

/// Reports now and then how many packages are done; returns the last lines.
fn follow(output: impl Read + Send, title: &str, begin: Instant) -> VecDeque<String> {
    let (sender, lines) = mpsc::channel();
    let mut tail = VecDeque::new();
    thread::scope(|scope| {
        // A thread of its own, because the linker is silent for longer than the interval.
        scope.spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let (mut count, mut reported) = (0_usize, Instant::now());
        loop {
            match lines.recv_timeout(REPORT_INTERVAL) {
                Ok(line) => {
                    count += 1;
                    tail.push_back(line);
                    if tail.len() > TAIL_LINES {
                        tail.pop_front();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if reported.elapsed() >= REPORT_INTERVAL {
                let seconds = begin.elapsed().as_secs();
                report(&format!("{title}: {count} packages after {seconds} s"));
                reported = Instant::now();
            }
        }
    });
    tail
}

fn pinned_version(module: &Path) -> Result<String, GoError> {
    let text = std::fs::read_to_string(module.join("go.mod")).map_err(GoError::Run)?;
    text.lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "))
        .and_then(|version| version.split_whitespace().next())
        .map(str::to_owned)
        .ok_or(GoError::NoVersion)
}

/// Without these the server calls itself `v0.0.0-master`, and clients that check its version stop.
fn ldflags(version: &str) -> String {
    let mut numbers = version.trim_start_matches('v').split('.');
    let major = numbers.next().unwrap_or_default();
    let minor = numbers.next().unwrap_or_default();
    let values = [
        ("gitVersion", version),
        ("gitMajor", major),
        ("gitMinor", minor),
        ("gitTreeState", "clean"),
    ];
    let mut flags = vec!["-s -w".to_owned()];
    for package in VERSION_PACKAGES {
        flags.extend(values.map(|(name, value)| format!("-X {package}.{name}={value}")));
    }
    flags.join(" ")
}
