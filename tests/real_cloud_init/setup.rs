//! The setup scripts run as far as a test can: in a folder that stands for the machine's root, with
//! programs that note what they are asked for in place of those that would change a machine.

use std::{collections::BTreeSet, fs, path::PathBuf};

use tempfile::TempDir;

use crate::{
    cases::{Case, case, profile_names},
    command, run, text, write_program,
};

/// Notes its name and arguments.
const NOTE: &str = "#!/bin/bash\necho \"${0##*/} $*\" >> \"${0%/bin/*}/calls\"\n";

/// Notes the URL, and answers with a content or with the checksum of that content.
const CURL: &str = "#!/bin/bash
echo \"${!#}\" >> \"${0%/bin/*}/fetched\"
case \"${!#}\" in
  *.sha256) printf content | sha256sum ;;
  *) printf content ;;
esac
";

/// The programs that a test must not run, or that a machine has and this one may lack.
const NOTED: [&str; 13] = [
    "amazon-linux-extras",
    "apt-get",
    "apt-mark",
    "dnf",
    "hostnamectl",
    "rpm",
    "setenforce",
    "sysctl",
    "systemctl",
    "tar",
    "update-ca-certificates",
    "update-ca-trust",
    "yum",
];

/// The folders of a machine that scripts name.
const FOLDERS: [&str; 6] = ["/etc/", "/opt/", "/proc/", "/run/", "/usr/local/", "/var/"];

/// A machine by its `/etc/os-release`.
#[derive(Clone, Copy)]
struct Distribution {
    profile: &'static str,
    release: &'static str,
}

const UBUNTU: Distribution = Distribution {
    profile: "osp-ubuntu",
    release: "ID=ubuntu\nVERSION_ID=\"24.04\"\nVERSION_CODENAME=noble\n",
};

const DISTRIBUTIONS: [Distribution; 1] = [UBUNTU];

/// What a script did.
struct Setup {
    root: TempDir,
}

impl Setup {
    fn run(case: &Case, distribution: Distribution, processor: &str) -> Self {
        let root = tempfile::tempdir().expect("a temporary folder can be made");
        let setup = Self { root };
        for folder in [
            "bin",
            "etc/apt/sources.list.d",
            "etc/yum.repos.d",
            "opt/bin",
            "proc",
        ] {
            fs::create_dir_all(setup.at(folder)).expect("a folder can be made");
        }
        for name in NOTED {
            write_program(&setup.at("bin").join(name), NOTE);
        }
        write_program(&setup.at("bin/curl"), CURL);
        let uname = format!("#!/bin/bash\necho {processor}\n");
        write_program(&setup.at("bin/uname"), &uname);
        for path in [
            "opt/disable-swap.sh",
            "opt/load-kernel-modules.sh",
            "opt/bin/setup_net_env.sh",
            "opt/bin/fetch-kubelet-kubeconfig",
        ] {
            write_program(&setup.at(path), "#!/bin/bash\n");
        }
        setup.write("etc/os-release", distribution.release);
        setup.write("proc/locks", "");
        setup.write("calls", "");
        setup.write("fetched", "");
        let script = case
            .provisioning
            .texts
            .get("/opt/bin/setup")
            .expect("the script is there");
        setup.write("setup", &setup.moved(script));
        let path = format!("{}:/usr/bin:/bin", setup.at("bin").display());
        let output = run(command("bash").env("PATH", path).arg(setup.at("setup")));
        assert!(output.status.success(), "{}: {}", case.name, text(&output));
        setup
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).expect("the script wrote the file")
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.at(path), text).expect("a file can be written");
    }

    /// The script with every folder of the machine inside the root.
    fn moved(&self, script: &str) -> String {
        let root = self.root.path().display().to_string();
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

    fn fetched(&self) -> BTreeSet<String> {
        self.read("fetched").lines().map(str::to_owned).collect()
    }

    /// The packages that were asked for.
    fn packages(&self) -> BTreeSet<String> {
        let calls = self.read("calls");
        calls
            .lines()
            .filter_map(|call| call.split_once(" install "))
            .flat_map(|(_, words)| words.split_whitespace())
            .filter(|word| !word.starts_with('-') && !word.contains("::"))
            .map(str::to_owned)
            .collect()
    }
}

#[test]
fn a_machine_fetches_what_its_profile_lists_and_nothing_else() {
    let mut profiles = BTreeSet::new();
    for distribution in DISTRIBUTIONS {
        profiles.insert(distribution.profile);
        for special in ["1.33.5", "1.36.0", "mirrored"] {
            let case = case(&format!("{}/aws/{special}", distribution.profile));
            let amd64 = Setup::run(case, distribution, "x86_64");
            let arm64 = Setup::run(case, distribution, "aarch64");
            let fetched = &amd64.fetched() | &arm64.fetched();
            let expected = &listed(case, "file") | &listed(case, "checksum");
            assert_eq!(fetched, expected, "{}", case.name);
            for (setup, other) in [(&amd64, "arm64"), (&arm64, "amd64")] {
                let is_other = |url: &String| url.contains(other);
                assert!(!setup.fetched().iter().any(is_other), "{}", case.name);
            }
            assert_eq!(amd64.packages(), listed(case, "package"), "{}", case.name);
            assert_eq!(arm64.packages(), amd64.packages(), "{}", case.name);
            if special == "mirrored" {
                let is_mirrored = |url: &String| url.starts_with("https://mirror.example.com/");
                assert!(fetched.iter().all(is_mirrored), "{fetched:?}");
            }
        }
    }
    assert_eq!(profiles, profile_names(), "every profile is run");
}

/// What the provisioning half lists of this kind.
fn listed(case: &Case, kind: &str) -> BTreeSet<String> {
    let [_, provisioning] = &case.artefacts;
    let of_line = |line: &str| {
        let (found, value) = line.split_once(' ').expect("a line is `KIND VALUE`");
        (found == kind).then(|| value.to_owned())
    };
    let lines = provisioning.lines().filter(|line| !line.is_empty());
    lines.filter_map(of_line).collect()
}
