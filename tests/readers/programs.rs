//! The programs that read what we render, run on the scripts and units of all cases.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::cases::{Case, every_case};

/// bash and shellcheck on every script.
pub fn check_scripts() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let mut paths = Vec::new();
    for (index, (name, script)) in distinct_scripts().into_iter().enumerate() {
        let path = folder.path().join(format!("{index}-{name}"));
        fs::write(&path, script).expect("a script can be written");
        let output = run(command("bash").arg("-n").arg(&path));
        assert!(
            output.status.success(),
            "{}: {}",
            path.display(),
            text(&output)
        );
        paths.push(path);
    }
    assert!(paths.len() > 8, "the cases have scripts");
    let shellcheck = consumers().join("venv/bin/shellcheck");
    let output = run(command(shellcheck)
        .args(["-S", "warning", "-s", "bash"])
        .args(&paths));
    assert!(output.status.success(), "{}", text(&output));
}

/// systemd on every unit.
pub fn check_units() {
    for (name, units) in distinct_unit_sets() {
        let output = verify(&units);
        assert!(output.status.success(), "{name}: {}", text(&output));
    }
}

/// An executable file.
pub fn write_program(path: &Path, script: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, script).expect("a program can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a mode can be set");
}

/// The scripts of all cases, each once.
pub fn distinct_scripts() -> Vec<(String, Vec<u8>)> {
    let of_case = |case: &Case| {
        let texts = case.bootstrap.texts.iter().chain(&case.provisioning.texts);
        texts
            .filter(|(path, text)| text.starts_with("#!") || path.starts_with("/etc/profile.d/"))
            .map(|(path, text)| (file_name(path), text.clone().into_bytes()))
            .collect::<Vec<_>>()
    };
    distinct(every_case().iter().flat_map(of_case))
}

/// The units of all cases, each distinct set once: a unit is read together with those it needs.
pub fn distinct_unit_sets() -> BTreeMap<String, BTreeMap<String, String>> {
    let mut seen = BTreeSet::new();
    let mut sets = BTreeMap::new();
    for case in every_case() {
        let texts = case.bootstrap.texts.iter().chain(&case.provisioning.texts);
        let units: BTreeMap<_, _> = texts
            .filter_map(|(path, text)| {
                let name = path.strip_prefix("/etc/systemd/system/")?;
                Some((name.to_owned(), text.clone()))
            })
            .collect();
        if seen.insert(units.clone()) {
            sets.insert(case.name.clone(), units);
        }
    }
    sets
}

/// Runs systemd-analyze on units, in a folder of their own. Programs that only a node has are
/// replaced by ones that exist here.
pub fn verify(units: &BTreeMap<String, String>) -> Output {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let containerd = BTreeMap::from([(
        "containerd.service".to_owned(),
        "[Service]\nExecStart=/usr/bin/containerd\n".to_owned(),
    )]);
    let mut paths = Vec::new();
    for (name, text) in units.iter().chain(&containerd) {
        let path = folder.path().join(name);
        let parent = path.parent().expect("a unit is in a folder");
        fs::create_dir_all(parent).expect("a folder can be made");
        let lines: Vec<_> = text.lines().map(with_a_program_that_exists).collect();
        fs::write(&path, lines.join("\n") + "\n").expect("a unit can be written");
        if name.ends_with(".service") {
            paths.push(path);
        }
    }
    let mut verify = command("systemd-analyze");
    // Without the second flag an unknown key is printed, and forgiven.
    verify
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .args(paths);
    run(&mut verify)
}

fn with_a_program_that_exists(line: &str) -> String {
    match line.split_once('=') {
        // An empty one takes the unit's own away.
        Some((key, program)) if key.starts_with("Exec") && !program.is_empty() => {
            let (_, arguments) = program.split_once(' ').unwrap_or((program, ""));
            format!("{key}=/bin/true {arguments}")
        }
        _ => line.to_owned(),
    }
}

pub fn distinct(contents: impl Iterator<Item = (String, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    let mut seen = BTreeSet::new();
    contents
        .filter(|(_, content)| seen.insert(content.clone()))
        .collect()
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

/// Where the programs of `.ci/consumers` are.
pub fn consumers() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/consumers");
    assert!(
        folder.join("installed").is_file(),
        "{} is missing or incomplete: run .ci/consumers",
        folder.display()
    );
    folder
}

/// A program that `.ci/consumers` installs.
pub fn consumer(path: &str) -> PathBuf {
    let program = consumers().join(path);
    assert!(
        program.is_file(),
        "{} is missing: run .ci/consumers",
        program.display()
    );
    program
}

#[expect(
    clippy::disallowed_methods,
    reason = "the programs that read what we render are run"
)]
pub fn command(program: impl AsRef<OsStr>) -> Command {
    Command::new(program)
}

/// A program that is root, through sudo where this process is not.
pub fn as_root(program: &str) -> Command {
    let process = fs::metadata("/proc/self").expect("this process is in /proc");
    if process.uid() == 0 {
        return command(program);
    }
    let mut sudo = command("sudo");
    sudo.args(["-n", program]);
    sudo
}

/// A program that is root in namespaces of its own, so that no mount, no process and no socket of
/// it is this machine's.
pub fn in_namespaces(program: impl AsRef<OsStr>) -> Command {
    let mut unshare = as_root("unshare");
    unshare
        .args([
            "--mount",
            "--net",
            "--ipc",
            "--pid",
            "--fork",
            "--mount-proc",
        ])
        .args(["--kill-child", "--"])
        .arg(program);
    unshare
}

/// Runs a program to its end.
pub fn run(command: &mut Command) -> Output {
    let output = command.output();
    assert!(
        output.is_ok(),
        "{}: {:?}: bash, systemd-analyze and unshare are Debian's, the rest comes from \
         .ci/consumers; who is not root needs sudo",
        command.get_program().display(),
        output.err()
    );
    output.expect("the line above")
}

/// Both streams of a program.
pub fn text(output: &Output) -> String {
    let both = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&both).into_owned()
}
