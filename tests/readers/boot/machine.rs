//! A machine: a root folder of `.ci/roots`, with what an image adds, in namespaces of its own. The
//! programs that would reach out of it are replaced by ones that write down how they were called.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::programs::{as_root, text};

/// What sets the machine up, runs it, and gathers what it wrote.
const MACHINE: &str = include_str!("machine.sh");

/// Stands in for a program. A machine has no service manager, so nothing is ever active.
const RECORDER: &str = r#"#!/bin/bash
caller="$(tr '\0' ' ' < "/proc/$PPID/cmdline")"
printf '%s\t%s\n' "${caller% }" "$(echo "${0##*/} $*")" >> /mnt/calls
[ "${0##*/} $1" != "systemctl is-active" ] || { echo inactive; exit 3; }
"#;

/// The programs that are replaced.
const RECORDED: &[&str] = &[
    "systemctl",
    "reboot",
    "shutdown",
    "poweroff",
    "apt",
    "apt-get",
    "dnf",
    "yum",
    "subscription-manager",
    "setenforce",
    "update-ca-trust",
    "modprobe",
    "sysctl",
    "swapoff",
];

/// What an image says: where its user data is, that its network is up, and to make few host keys.
const IMAGE: &str = "\
datasource_list: [ NoCloud, None ]
network: {config: disabled}
locale: false
resize_rootfs: false
ssh_genkeytypes: [ed25519]
";

/// The stages of a boot that write files, as the image's units start them.
pub const EARLY_BOOT: &str = "cloud-init init --local\ncloud-init init\n";

/// All stages of a boot; the last ones run commands. What cloud-init says of it is kept before a
/// bootstrap calls it again.
pub const BOOT: &str = "cloud-init init --local\ncloud-init init\n\
    cloud-init modules --mode=config\ncloud-init modules --mode=final\n\
    cp /var/lib/cloud/data/result.json /mnt/\n";

/// For what a machine does within seconds; generous for a busy computer.
const PATIENCE: Duration = Duration::from_mins(3);

/// A Debian release, by the command line of its cloud-init.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Before 24.1.
    Bookworm,
    /// From 24.1 on.
    Trixie,
}

impl Release {
    pub const ALL: [Self; 2] = [Self::Bookworm, Self::Trixie];

    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Bookworm => Self::Trixie,
            Self::Trixie => Self::Bookworm,
        }
    }

    fn root(self) -> PathBuf {
        let roots = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/roots");
        assert!(
            roots.join("installed").is_file(),
            "{} is missing or incomplete: run .ci/consumers",
            roots.display()
        );
        roots.join(match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
        })
    }
}

/// What a machine reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Nothing but itself.
    Own,
    /// This computer's, where a test's API server is. It cannot change it.
    Shared,
}

/// A machine that is not started.
pub struct Machine {
    release: Release,
    folder: TempDir,
}

impl Machine {
    /// A machine of the release with the user data, as a provider hands them over.
    pub fn new(release: Release, user_data: &[u8]) -> Self {
        let machine = Self {
            release,
            folder: tempfile::tempdir().expect("a temporary folder can be made"),
        };
        fs::create_dir(machine.folder.path().join("mnt")).expect("a folder can be made");
        let seed = "/var/lib/cloud/seed/nocloud";
        machine.put(&format!("{seed}/meta-data"), b"instance-id: i-1\n", 0o644);
        machine.put(&format!("{seed}/user-data"), user_data, 0o600);
        let image = "/etc/cloud/cloud.cfg.d/90-image.cfg";
        machine.put(image, IMAGE.as_bytes(), 0o644);
        for name in RECORDED {
            machine.put_program(&format!("/usr/local/bin/{name}"), RECORDER);
        }
        machine
    }

    /// Adds a file to the image.
    pub fn put(&self, path: &str, content: &[u8], mode: u32) {
        write(&self.folder.path().join("image"), path, content, mode);
    }

    /// Adds a program to the image.
    pub fn put_program(&self, path: &str, text: &str) {
        self.put(path, text.as_bytes(), 0o755);
    }

    /// Starts the machine with one program, in bash. `/mnt` is a folder that both sides see.
    pub fn start(self, network: Network, script: &str) -> Running {
        let work = self.folder.path();
        let script = format!("#!/bin/bash\n{script}");
        write(&work.join("mnt"), "run", script.as_bytes(), 0o755);
        let mut command = as_root("unshare");
        command.args(["--mount", "--pid", "--uts", "--ipc", "--fork"]);
        command.args(["--kill-child", "--propagation=private"]);
        if network == Network::Own {
            command.arg("--net");
        }
        command
            .args(["bash", "-c", MACHINE, "machine"])
            .arg(self.release.root())
            .arg(work)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Running {
            child: Some(command.spawn().expect("unshare and bash can be run")),
            release: self.release,
            folder: self.folder,
        }
    }
}

/// A machine that runs. Dropping it ends everything on it.
pub struct Running {
    child: Option<Child>,
    release: Release,
    folder: TempDir,
}

impl Running {
    /// Puts a file at once and as a whole into the folder that both sides see.
    pub fn share(&self, name: &str, content: &[u8]) {
        let shared = self.folder.path().join("mnt");
        write(&shared, "unfinished", content, 0o644);
        fs::rename(shared.join("unfinished"), shared.join(name)).expect("a file can be renamed");
    }

    /// Waits for a file in the folder that both sides see.
    pub fn wait_for(&mut self, name: &str) -> String {
        let path = self.folder.path().join("mnt").join(name);
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(text) = fs::read_to_string(&path) {
                return text;
            }
            let child = self.child.as_mut().expect("the machine was started");
            let ended = child.try_wait().expect("a child can be asked");
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "{:?} did not get to {name}: {}",
                self.release,
                read(&self.folder.path().join("log"))
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for the end.
    pub fn stop(mut self) -> Stopped {
        let child = self.child.take().expect("the machine was started");
        let output = child.wait_with_output().expect("a child can be waited for");
        let work = self.folder.path();
        assert!(
            output.status.success(),
            "a machine cannot be set up; it takes root, and a container that may mount: {}{}",
            text(&output),
            read(&work.join("log"))
        );
        Stopped {
            log: read(&work.join("log")),
            succeeded: read(&work.join("status")).trim() == "0",
            modes: read(&work.join("modes")),
            release: self.release,
            folder: std::mem::replace(
                &mut self.folder,
                tempfile::tempdir().expect("a temporary folder can be made"),
            ),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = self.child.as_mut() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What came of a machine.
pub struct Stopped {
    pub release: Release,
    pub log: String,
    pub succeeded: bool,
    modes: String,
    folder: TempDir,
}

impl Stopped {
    /// The content of a file that the machine wrote.
    pub fn file(&self, path: &str) -> Option<Vec<u8>> {
        let written = self.folder.path().join("written");
        fs::read(written.join(path.trim_start_matches('/'))).ok()
    }

    /// Whether the machine wrote a file of this content.
    pub fn has_content(&self, content: &[u8]) -> bool {
        let paths = self
            .modes
            .lines()
            .filter_map(|line| line.find('/').map(|at| line.split_at(at).1));
        paths
            .filter_map(|path| self.file(path))
            .any(|written| written == content)
    }

    /// Mode, user and group of a file that the machine wrote, as in `644 0 0`.
    pub fn mode(&self, path: &str) -> Option<&str> {
        self.modes
            .lines()
            .find_map(|line| line.strip_suffix(path)?.strip_suffix(' '))
    }

    /// A file of the folder that both sides saw.
    pub fn shared(&self, name: &str) -> String {
        read(&self.folder.path().join("mnt").join(name))
    }

    /// How the replaced programs were called by a program whose command line has this word.
    pub fn calls_by(&self, caller: &str) -> Vec<String> {
        self.shared("calls")
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .filter(|(by, _)| by.contains(caller))
            .map(|(_, call)| call.to_owned())
            .collect()
    }
}

/// Whether a program is one of those that are replaced.
pub fn is_recorded(program: &str) -> bool {
    RECORDED.contains(&program)
}

fn write(folder: &Path, path: &str, content: &[u8], mode: u32) {
    let path = folder.join(path.trim_start_matches('/'));
    let parent = path.parent().expect("a file is in a folder");
    fs::create_dir_all(parent).expect("a folder can be made");
    fs::write(&path, content).expect("a file can be written");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode can be set");
}

/// A text, or nothing where there is none.
fn read(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
