//! The bootstrap scripts, run in a folder that stands for the machine's root.

use std::{fs, path::PathBuf, process::Output};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    cases::{Case, case},
    flatcar::ignition::{read, text_of},
    programs::{command, run, text, write_program},
    root::{NOTE, moved},
};

/// Gives the answer of this attempt; without one, it fails as at an HTTP error.
const CURL: &str = "#!/bin/bash
root=\"${0%/bin/*}\"
answer=\"$root/answers/$(wc -l < \"$root/delays\")\"
[ -f \"$answer\" ] || exit 22
while [ \"$1\" != --output ]; do shift; done
cp \"$answer\" \"$2\"
";

/// Notes the delay and what an attempt that failed has left behind; ends what would never end.
const SLEEP: &str = "#!/bin/bash
root=\"${0%/bin/*}\"
echo \"$1\" >> \"$root/delays\"
find \"$root/usr/share/oem\" \"$root/boot\" \"$root/run\" -type f >> \"$root/left\"
[ -f \"$root/etc/machine-id\" ] || echo machine-id >> \"$root/left\"
[ \"$(wc -l < \"$root/delays\")\" -lt 20 ] || kill \"$PPID\"
";

const MKTEMP: &str = "#!/bin/bash\nexec /usr/bin/mktemp -d -p \"${0%/bin/*}/run\"\n";

/// The programs that a test must not run, or that only a machine has.
const NOTED: [&str; 6] = [
    "coreos-cloudinit",
    "networkctl",
    "sync",
    "systemctl",
    "update-ca-certificates",
    "vmtoolsd",
];

/// A machine, in a folder.
pub struct Machine {
    root: TempDir,
}

impl Machine {
    pub fn new() -> Self {
        let root = tempfile::tempdir().expect("a temporary folder can be made");
        let machine = Self { root };
        for folder in [
            "answers",
            "bin",
            "boot/flatcar",
            "etc/systemd/network",
            "etc/ssl/certs",
            "opt/bin",
            "run",
            "usr/share/oem",
        ] {
            fs::create_dir_all(machine.at(folder)).expect("a folder can be made");
        }
        for name in NOTED {
            machine.install(name, NOTE);
        }
        machine.install("curl", CURL);
        machine.install("mktemp", MKTEMP);
        machine.install("sleep", SLEEP);
        for file in ["calls", "delays", "left", "etc/machine-id"] {
            machine.write(file, "");
        }
        machine
    }

    pub fn install(&self, name: &str, program: &str) {
        write_program(&self.at("bin").join(name), program);
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).expect("the file is there")
    }

    pub fn write(&self, path: &str, text: &str) {
        fs::write(self.at(path), text).expect("a file can be written");
    }

    /// The programs that were called, with their arguments.
    pub fn calls(&self) -> Vec<String> {
        self.read("calls").lines().map(str::to_owned).collect()
    }

    /// What the API server answers at this attempt.
    pub fn answer(&self, attempt: usize, document: &[u8]) {
        let secret = json!({ "data": { "cloud-config": STANDARD.encode(document) } });
        self.write(&format!("answers/{attempt}"), &secret.to_string());
    }

    /// Runs the bootstrap of a case once.
    pub fn bootstrap(&self, case: &Case) -> Output {
        self.place(case);
        self.bash(&["opt/bin/bootstrap"])
    }

    /// Runs the bootstrap of a case until it succeeds.
    pub fn supervised_bootstrap(&self, case: &Case) -> Output {
        self.place(case);
        self.bash(&["opt/bin/supervise.sh", "opt/bin/bootstrap"])
    }

    fn place(&self, case: &Case) {
        for path in ["/opt/bin/bootstrap", "/opt/bin/supervise.sh"] {
            let script = moved(text_of(&case.bootstrap, path), self.root.path());
            write_program(&self.at(path.trim_start_matches('/')), &script);
        }
        assert!(!self.read("opt/bin/bootstrap").contains(" /etc/"));
    }

    fn bash(&self, words: &[&str]) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.at("bin").display());
        run(command("bash")
            .env("PATH", path)
            .args(words.iter().map(|word| self.at(word))))
    }
}

#[test]
fn nothing_is_written_until_the_whole_document_came_and_the_machine_restarts_once() {
    let case = case("osp-flatcar/openstack/1.34.1");
    let machine = Machine::new();
    // The first attempt has no answer at all.
    machine.write("answers/1", r#"{"kind":"Status","status":"Failure"}"#);
    machine.answer(2, b"#cloud-config\n");
    machine.answer(3, br#"{"ignition":{"version":"2.3.0"},"storage":{"#);
    machine.answer(4, br#"{"ignition":{}}"#);
    machine.answer(5, &case.provisioning.document);
    let output = machine.supervised_bootstrap(case);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(machine.read("delays"), "2\n4\n8\n16\n32\n");
    let left = machine.read("left");
    let left: Vec<_> = left
        .lines()
        .filter(|path| !path.ends_with("/run/osm-provisioning.ign"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let written = fs::read(machine.at("usr/share/oem/config.ign")).expect("it is there");
    assert_eq!(written, case.provisioning.document);
    assert!(machine.at("boot/flatcar/first_boot").is_file());
    assert!(!machine.at("etc/machine-id").exists());
    assert_eq!(machine.calls(), ["sync ", "sync ", "systemctl reboot"]);
    assert!(!text(&output).contains(crate::cases::TOKEN));
}

#[test]
fn the_bootstrap_does_nothing_once_ignition_has_run_again() {
    let case = case("osp-flatcar/openstack/1.34.1");
    let document = serde_json::from_slice(&case.provisioning.document).expect("it is JSON");
    let files = read(&document).expect("Ignition takes the document");
    assert!(files.contains_key("/etc/bootstrap-complete"));
    let unit = text_of(&case.bootstrap, "/etc/systemd/system/bootstrap.service");
    let condition = "ConditionPathExists=!/etc/bootstrap-complete";
    assert!(unit.lines().any(|line| line == condition));
    let machine = Machine::new();
    machine.write("etc/bootstrap-complete", "");
    assert!(machine.bootstrap(case).status.success());
    assert!(machine.calls().is_empty());
}

#[test]
fn a_machine_whose_ignition_did_not_run_again_does_not_restart_forever() {
    let case = case("osp-flatcar/openstack/1.34.1");
    let machine = Machine::new();
    machine.answer(0, &case.provisioning.document);
    machine.write("boot/flatcar/first_boot", "");
    let output = machine.bootstrap(case);
    assert!(!output.status.success());
    assert!(text(&output).contains("Ignition did not run"));
    assert!(machine.calls().is_empty());
}

#[test]
fn a_restart_that_failed_is_asked_for_again() {
    let case = case("osp-flatcar/openstack/1.34.1");
    let machine = Machine::new();
    machine.answer(0, &case.provisioning.document);
    machine.install("systemctl", "#!/bin/bash\nexit 1\n");
    assert!(!machine.bootstrap(case).status.success());
    machine.install("systemctl", NOTE);
    assert!(machine.bootstrap(case).status.success());
    assert!(machine.calls().contains(&"systemctl reboot".to_owned()));
}

#[test]
fn recent_releases_mount_the_oem_partition_elsewhere() {
    let case = case("osp-flatcar/aws/1.34.1");
    let machine = Machine::new();
    machine.answer(0, &case.provisioning.document);
    fs::create_dir(machine.at("oem")).expect("a folder can be made");
    assert!(machine.bootstrap(case).status.success());
    assert!(machine.at("oem/config.ign").is_file());
    assert!(!machine.at("usr/share/oem/config.ign").exists());
}

#[test]
fn updates_are_off_before_anything_is_fetched() {
    let machine = Machine::new();
    let output = machine.bootstrap(case("osp-flatcar/aws/without-updates"));
    assert!(!output.status.success(), "there is no answer");
    let expected = ["update-engine.service", "locksmithd.service"]
        .map(|unit| format!("systemctl mask --now {unit}"));
    assert_eq!(machine.calls(), expected);
}

/// Recent releases have a link into a read-only file system there.
#[test]
fn the_proxy_replaces_a_link_in_place_of_the_environment() {
    let machine = Machine::new();
    machine.write("usr/environment", "LANG=C\n");
    let target = machine.at("usr/environment");
    std::os::unix::fs::symlink(target, machine.at("etc/environment")).expect("a link can be made");
    machine.bootstrap(case("osp-flatcar/aws/proxy"));
    assert_eq!(machine.read("usr/environment"), "LANG=C\n");
    let environment = machine.read("etc/environment");
    assert!(environment.starts_with("LANG=C\n"), "{environment}");
    assert!(environment.contains("\nhttps_proxy='http://user:word@proxy:3128'\n"));
    let certificate = machine.read("etc/ssl/certs/osm-1.pem");
    assert!(certificate.starts_with("-----BEGIN CERTIFICATE-----"));
    assert_eq!(machine.calls(), ["update-ca-certificates "]);
}

#[test]
fn vcloud_director_gives_a_machine_of_a_static_pool_its_address() {
    let machine = Machine::new();
    let properties = [
        ("primaryNic", "1"),
        ("bootproto_0", "dhcp"),
        ("bootproto_1", "static"),
        ("ip_1", "192.0.2.7"),
        ("netmask_1", "255.255.252.0"),
        ("gateway_1", "192.0.2.1"),
        ("macaddr_1", "00:50:56:01:aa:99"),
        ("dns1_1", "192.0.2.2"),
        ("dns2_1", ""),
    ]
    .map(|(key, value)| format!("<Property oe:key=\"vCloud_{key}\" oe:value=\"{value}\"/>\n"))
    .concat();
    machine.write("properties", &properties);
    let answer = format!("#!/bin/bash\ncat {}\n", machine.at("properties").display());
    machine.install("vmtoolsd", &answer);
    machine.bootstrap(case("osp-flatcar/vmware-cloud-director/1.34.1"));
    assert_eq!(
        machine.read("etc/systemd/network/static.network"),
        "[Match]\nMACAddress=00:50:56:01:aa:99\n\n[Network]\nAddress=192.0.2.7/22\n\
         Gateway=192.0.2.1\nDNS=192.0.2.2\n"
    );
    assert_eq!(machine.calls(), ["networkctl reload"]);

    let machine = Machine::new();
    machine.bootstrap(case("osp-flatcar/vmware-cloud-director/1.34.1"));
    assert!(!machine.at("etc/systemd/network/static.network").exists());
}
