//! A folder that stands for a machine's root, for scripts that would change the machine: programs
//! that note what they are asked for stand in for those that would.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use tempfile::TempDir;

use crate::{
    cases::Case,
    programs::{command, run, write_program},
};

/// Notes its name and arguments.
pub const NOTE: &str = "#!/bin/bash\necho \"${0##*/} $*\" >> \"${0%/bin/*}/calls\"\n";

/// Notes the delay and what an attempt that failed has left behind; ends what would never end.
const SLEEP: &str = "#!/bin/bash
root=\"${0%/bin/*}\"
echo \"$1\" >> \"$root/delays\"
find \"$root/usr/share/oem\" \"$root/boot\" \"$root/run\" -type f >> \"$root/left\"
[ -f \"$root/etc/machine-id\" ] || echo machine-id >> \"$root/left\"
[ \"$(wc -l < \"$root/delays\")\" -lt 20 ] || kill \"$PPID\"
";

/// The programs that a test must not run, or that a machine has and this one may lack.
const NOTED: [&str; 17] = [
    "amazon-linux-extras",
    "apt-get",
    "apt-mark",
    "coreos-cloudinit",
    "dnf",
    "hostnamectl",
    "networkctl",
    "rpm",
    "setenforce",
    "sync",
    "sysctl",
    "systemctl",
    "tar",
    "update-ca-certificates",
    "update-ca-trust",
    "vmtoolsd",
    "yum",
];

/// What an image has, and what only tests have.
const MADE: [&str; 13] = [
    "answers",
    "bin",
    "boot/flatcar",
    "etc/apt/sources.list.d",
    "etc/dnf",
    "etc/ssl/certs",
    "etc/systemd/network",
    "etc/systemd/system",
    "etc/yum.repos.d",
    "opt/bin",
    "proc",
    "run",
    "usr/share/oem",
];

/// The folders of a machine that scripts name.
const FOLDERS: [&str; 9] = [
    "/boot/",
    "/etc/",
    "/oem",
    "/opt/",
    "/proc/",
    "/run/",
    "/usr/local/",
    "/usr/share/oem",
    "/var/",
];

/// A machine, in a folder.
pub struct Root {
    folder: TempDir,
}

impl Root {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let root = Self { folder };
        for folder in MADE {
            fs::create_dir_all(root.at(folder)).expect("a folder can be made");
        }
        for name in NOTED {
            root.install(name, NOTE);
        }
        root.install("sleep", SLEEP);
        for file in ["calls", "delays", "left", "etc/machine-id", "proc/locks"] {
            root.write(file, "");
        }
        root
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).expect(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        fs::write(self.at(path), text).expect("a file can be written");
    }

    /// Adds a program that stands in for one of a machine.
    pub fn install(&self, name: &str, program: &str) {
        write_program(&self.at("bin").join(name), program);
    }

    /// Writes a script of a case where the case has it, with the folders that it names in here.
    pub fn place(&self, case: &Case, path: &str) {
        let script = self.moved(case.text(path));
        assert!(
            !script.contains(" /etc/"),
            "{path} would change this machine"
        );
        write_program(&self.at(path), &script);
    }

    /// bash with the programs of the root, and a script and its arguments from there.
    pub fn bash(&self, words: &[&str]) -> Command {
        let path = format!("{}:/usr/bin:/bin", self.at("bin").display());
        let mut bash = command("/bin/bash");
        bash.env("PATH", path)
            .args(words.iter().map(|word| self.at(word)));
        bash
    }

    /// Runs a script of a case to its end.
    pub fn run(&self, case: &Case, path: &str) -> Output {
        self.place(case, path);
        run(&mut self.bash(&[path]))
    }

    /// The programs that were called, with their arguments.
    pub fn calls(&self) -> Vec<String> {
        self.read("calls").lines().map(str::to_owned).collect()
    }

    /// The script with every folder of the machine inside the root.
    pub fn moved(&self, script: &str) -> String {
        let root = self.folder.path().display().to_string();
        let mut moved = script.to_owned();
        for folder in FOLDERS {
            let mut parts = moved.split(folder);
            let mut out = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                let is_inside = out.ends_with(|last: char| {
                    last.is_alphanumeric() || matches!(last, '/' | '.' | '}' | '_')
                });
                out += if is_inside { "" } else { &root };
                out += folder;
                out += part;
            }
            moved = out;
        }
        moved
    }
}
