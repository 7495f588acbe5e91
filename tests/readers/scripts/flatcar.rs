//! The bootstrap scripts of Flatcar's machines.

use std::{fs, process::Output};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

use crate::{
    cases::{Case, Half, TOKEN, case},
    documents::{files_of, parse},
    programs::{run, text},
    root::{NOTE, Root},
};

const BOOTSTRAP: &str = "/opt/bin/bootstrap";

/// Gives the answer of this attempt; without one, it fails as at an HTTP error.
const CURL: &str = "#!/bin/bash
root=\"${0%/bin/*}\"
answer=\"$root/answers/$(wc -l < \"$root/delays\")\"
[ -f \"$answer\" ] || exit 22
while [ \"$1\" != --output ]; do shift; done
cp \"$answer\" \"$2\"
";

const MKTEMP: &str = "#!/bin/bash\nexec /usr/bin/mktemp -d -p \"${0%/bin/*}/run\"\n";

/// Notes its arguments, and writes what setup begins with.
const COREOS_CLOUDINIT: &str = "#!/bin/bash
root=\"${0%/bin/*}\"
echo \"coreos-cloudinit $*\" >> \"$root/calls\"
printf '#!/bin/bash\\n' > \"$root/opt/bin/setup\"
chmod 755 \"$root/opt/bin/setup\"
";

/// A machine that fetches its document.
fn machine() -> Root {
    let root = Root::new();
    root.install("curl", CURL);
    root.install("mktemp", MKTEMP);
    root
}

/// What the API server answers at this attempt.
fn answer(root: &Root, attempt: usize, document: &[u8]) {
    let secret = json!({ "data": { "cloud-config": STANDARD.encode(document) } });
    root.write(&format!("answers/{attempt}"), &secret.to_string());
}

/// Runs the bootstrap of a case until it succeeds.
fn supervised_bootstrap(root: &Root, case: &Case) -> Output {
    let supervise = "/opt/bin/supervise.sh";
    root.place(case, supervise);
    root.place(case, BOOTSTRAP);
    run(&mut root.bash(&[supervise, BOOTSTRAP]))
}

#[test]
fn nothing_is_written_until_the_whole_document_came_and_the_machine_restarts_once() {
    let case = case("osp-flatcar/openstack/1.34.1");
    let root = machine();
    // The first attempt has no answer at all.
    root.write("answers/1", r#"{"kind":"Status","status":"Failure"}"#);
    answer(&root, 2, b"#cloud-config\n");
    answer(&root, 3, br#"{"ignition":{"version":"2.3.0"},"storage":{"#);
    answer(&root, 4, br#"{"ignition":{}}"#);
    answer(&root, 5, &case.provisioning.document);
    let output = supervised_bootstrap(&root, case);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(root.read("delays"), "2\n4\n8\n16\n32\n");
    let left = root.read("left");
    let left: Vec<_> = left
        .lines()
        .filter(|path| !path.ends_with("/run/osm-provisioning.ign"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let written = fs::read(root.at("usr/share/oem/config.ign")).expect("it is there");
    assert_eq!(written, case.provisioning.document);
    assert!(root.at("boot/flatcar/first_boot").is_file());
    assert!(!root.at("etc/machine-id").exists());
    assert_eq!(root.calls(), ["sync ", "sync ", "systemctl reboot"]);
    assert!(!text(&output).contains(TOKEN));
}

#[test]
fn the_bootstrap_does_nothing_once_ignition_has_run_again() {
    let case = case("osp-flatcar/openstack/1.34.1");
    let files = files_of(&case.provisioning.document);
    assert!(
        files
            .iter()
            .any(|file| file.path == "/etc/bootstrap-complete")
    );
    let unit = case.text("/etc/systemd/system/bootstrap.service");
    let condition = "ConditionPathExists=!/etc/bootstrap-complete";
    assert!(unit.lines().any(|line| line == condition));
    let root = machine();
    root.write("etc/bootstrap-complete", "");
    assert!(root.run(case, BOOTSTRAP).status.success());
    assert!(root.calls().is_empty());
}

#[test]
fn a_machine_whose_ignition_did_not_run_again_does_not_restart_forever() {
    let case = case("osp-flatcar/openstack/1.34.1");
    let root = machine();
    answer(&root, 0, &case.provisioning.document);
    root.write("boot/flatcar/first_boot", "");
    let output = root.run(case, BOOTSTRAP);
    assert!(!output.status.success());
    assert!(text(&output).contains("Ignition did not run"));
    assert!(root.calls().is_empty());
}

#[test]
fn a_restart_that_failed_is_asked_for_again() {
    let case = case("osp-flatcar/openstack/1.34.1");
    let root = machine();
    answer(&root, 0, &case.provisioning.document);
    root.install("systemctl", "#!/bin/bash\nexit 1\n");
    assert!(!root.run(case, BOOTSTRAP).status.success());
    root.install("systemctl", NOTE);
    assert!(root.run(case, BOOTSTRAP).status.success());
    assert!(root.calls().contains(&"systemctl reboot".to_owned()));
}

#[test]
fn recent_releases_mount_the_oem_partition_elsewhere() {
    let case = case("osp-flatcar/aws/1.34.1");
    let root = machine();
    answer(&root, 0, &case.provisioning.document);
    fs::create_dir(root.at("oem")).expect("a folder can be made");
    assert!(root.run(case, BOOTSTRAP).status.success());
    assert!(root.at("oem/config.ign").is_file());
    assert!(!root.at("usr/share/oem/config.ign").exists());
}

#[test]
fn updates_are_off_before_anything_is_fetched() {
    let root = machine();
    let output = root.run(case("osp-flatcar/aws/without-updates"), BOOTSTRAP);
    assert!(!output.status.success(), "there is no answer");
    let expected = ["update-engine.service", "locksmithd.service"]
        .map(|unit| format!("systemctl mask --now {unit}"));
    assert_eq!(root.calls(), expected);
}

/// Recent releases have a link into a read-only file system there.
#[test]
fn the_proxy_replaces_a_link_in_place_of_the_environment() {
    let root = machine();
    root.write("usr/environment", "LANG=C\n");
    let target = root.at("usr/environment");
    std::os::unix::fs::symlink(target, root.at("etc/environment")).expect("a link can be made");
    root.run(case("osp-flatcar/aws/proxy"), BOOTSTRAP);
    assert_eq!(root.read("usr/environment"), "LANG=C\n");
    let environment = root.read("etc/environment");
    assert!(environment.starts_with("LANG=C\n"), "{environment}");
    assert!(environment.contains("\nhttps_proxy='http://user:word@proxy:3128'\n"));
    let certificate = root.read("etc/ssl/certs/osm-1.pem");
    assert!(certificate.starts_with("-----BEGIN CERTIFICATE-----"));
    assert_eq!(root.calls(), ["update-ca-certificates "]);
}

#[test]
fn vcloud_director_gives_a_machine_of_a_static_pool_its_address() {
    let root = machine();
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
    root.write("properties", &properties);
    let answer = format!("#!/bin/bash\ncat {}\n", root.at("properties").display());
    root.install("vmtoolsd", &answer);
    root.run(case("osp-flatcar/vmware-cloud-director/1.34.1"), BOOTSTRAP);
    assert_eq!(
        root.read("etc/systemd/network/static.network"),
        "[Match]\nMACAddress=00:50:56:01:aa:99\n\n[Network]\nAddress=192.0.2.7/22\n\
         Gateway=192.0.2.1\nDNS=192.0.2.2\n"
    );
    assert_eq!(root.calls(), ["networkctl reload"]);

    let root = machine();
    root.run(case("osp-flatcar/vmware-cloud-director/1.34.1"), BOOTSTRAP);
    assert!(!root.at("etc/systemd/network/static.network").exists());
}

#[test]
fn the_bootstrap_is_started_by_its_document_and_setup_by_the_bootstrap() {
    let case = case("osp-flatcar-cloud-init/anexia/1.34.1");
    let units = |half: &Half| parse(&half.document).pointer("/coreos/units").cloned();
    let expected = json!([{
        "name": "bootstrap.service", "enable": true, "command": "start", "mask": false,
    }]);
    assert_eq!(units(&case.bootstrap), Some(expected));
    assert_eq!(units(&case.provisioning), None);

    let root = machine();
    root.install("coreos-cloudinit", COREOS_CLOUDINIT);
    root.write("answers/1", r#"{"kind":"Status","status":"Failure"}"#);
    answer(&root, 2, br#"{"ignition":{"version":"2.3.0"}}"#);
    answer(&root, 3, &case.provisioning.document);
    let output = supervised_bootstrap(&root, case);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(root.read("delays"), "2\n4\n8\n");
    let document = root.at("run/osm-provisioning.yaml");
    assert_eq!(
        root.calls(),
        [
            &format!("coreos-cloudinit --from-file={}", document.display()),
            "systemctl daemon-reload",
            "systemctl enable setup.service",
            "systemctl restart setup.service",
            "systemctl disable bootstrap.service",
        ]
    );
    let fetched = fs::read(document).expect("it is there");
    assert_eq!(fetched, case.provisioning.document);
    assert!(root.at("etc/bootstrap-complete").is_file());
}

#[test]
fn a_document_that_was_not_applied_is_tried_again() {
    let case = case("osp-flatcar-cloud-init/anexia/1.34.1");
    for program in ["#!/bin/bash\nexit 1\n", "#!/bin/bash\nexit 0\n"] {
        let root = machine();
        answer(&root, 0, &case.provisioning.document);
        root.install("coreos-cloudinit", program);
        assert!(!root.run(case, BOOTSTRAP).status.success());
        assert!(root.calls().is_empty());
        assert!(!root.at("etc/bootstrap-complete").exists());
    }
}
