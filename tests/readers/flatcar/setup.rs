//! The setup script, run in a folder that stands for the machine's root.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{
    cases::{Case, case, flatcar_cases, profile_names},
    flatcar::ignition::text_of,
    programs::{command, run, text, write_program},
    root::{DOWNLOAD, NOTE, listed, moved},
};

#[test]
fn a_machine_fetches_what_its_profile_lists_and_nothing_else() {
    for (profile, provider) in [
        ("osp-flatcar", "openstack"),
        ("osp-flatcar-cloud-init", "anexia"),
    ] {
        assert!(profile_names(flatcar_cases()).contains(profile));
        let case = case(&format!("{profile}/{provider}/1.36.0"));
        let expected = &listed(case, "file") | &listed(case, "checksum");
        let fetched = &fetched(case, "x86_64") | &fetched(case, "aarch64");
        assert_eq!(fetched, expected, "{profile}");
        let [bootstrap, _] = &case.artefacts;
        assert_eq!(bootstrap.trim(), "", "the image has all that is needed");
    }
}

#[test]
fn every_place_that_a_machine_fetches_from_can_be_moved() {
    let fetched = fetched(case("osp-flatcar/aws/mirrored"), "x86_64");
    assert_eq!(fetched.len(), 6);
    for url in fetched {
        assert!(url.starts_with("https://mirror.example.com/"), "{url}");
    }
}

/// The URLs that setup asks for on a processor.
fn fetched(case: &Case, processor: &str) -> BTreeSet<String> {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let root = folder.path();
    for path in ["bin", "etc", "opt/bin"] {
        fs::create_dir_all(root.join(path)).expect("a folder can be made");
    }
    for name in ["hostnamectl", "sysctl", "systemctl", "tar"] {
        write_program(&root.join("bin").join(name), NOTE);
    }
    write_program(&root.join("bin/curl"), DOWNLOAD);
    write_program(
        &root.join("bin/uname"),
        &format!("#!/bin/bash\necho {processor}\n"),
    );
    for path in [
        "opt/disable-swap.sh",
        "opt/load-kernel-modules.sh",
        "opt/bin/setup_net_env.sh",
        "opt/bin/fetch-kubelet-kubeconfig",
    ] {
        write_program(&root.join(path), "#!/bin/bash\n");
    }
    let script = moved(text_of(&case.provisioning, "/opt/bin/setup"), root);
    write_program(&root.join("setup"), &script);
    let path = format!("{}:/usr/bin:/bin", root.join("bin").display());
    let output = run(command("bash").env("PATH", path).arg(root.join("setup")));
    assert!(output.status.success(), "{}: {}", case.name, text(&output));
    let read = |path: &Path| fs::read_to_string(path).expect("the script wrote the file");
    let calls = read(&root.join("calls"));
    for call in [
        "systemctl restart containerd.service",
        "systemctl restart kubelet.service",
        "systemctl disable setup.service",
    ] {
        assert!(calls.lines().any(|line| line == call), "{calls}");
    }
    assert!(root.join("etc/setup-complete").is_file());
    read(&root.join("fetched"))
        .lines()
        .map(str::to_owned)
        .collect()
}
