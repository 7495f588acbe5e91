//! The commands that work on files: the real binary, on the files that `docs/cli.md` shows, and
//! with the examples of that page as they stand there.

mod diff;
mod drop_in;
mod folder;
mod lint;
mod memory;
mod operators;
mod render;
#[path = "../rendering/subject.rs"]
mod subject;

use std::fs;

use serde_json::{Value, json};

use folder::{Folder, fences, page};

#[test]
fn the_default_profiles_can_be_listed_shown_and_exported() {
    let folder = Folder::new();
    let shipped = osm::render::default_profiles::default_profiles();
    let list = folder.osm("profiles list").stdout;
    assert_eq!(list.lines().count(), shipped.len() + 1);
    let ran = folder.osm("profiles export --dir out");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""));
    for profile in shipped {
        assert!(list.contains(profile.name), "{list}");
        assert_eq!(
            folder
                .osm(&format!("profiles show {}", profile.name))
                .stdout,
            profile.yaml
        );
        assert_eq!(
            folder.read(&format!("out/{}.yaml", profile.name)),
            profile.yaml
        );
    }
    folder.osm("profiles export --dir one osp-ubuntu");
    assert_eq!(fs::read_dir(folder.path("one")).unwrap().count(), 1);
}

#[test]
fn two_sets_of_profiles_say_what_their_difference_takes_on_machines() {
    let folder = Folder::new();
    folder.osm("profiles export --dir old");
    let same = folder.osm("profiles diff old");
    assert_eq!(same.code, 0, "{}", same.stderr);
    fs::remove_file(folder.path("old/osp-rhel.yaml")).unwrap();
    for name in ["osp-ubuntu", "osp-debian"] {
        let file = format!("old/{name}.yaml");
        let text = folder.read(&file);
        let setting = "net.bridge.bridge-nf-call-iptables = 1";
        let old = text.replacen(setting, "net.bridge.bridge-nf-call-iptables = 0", 1);
        folder.write(&file, &old);
    }
    let ran = folder.osm("profiles diff old");
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    let row = |name: &str| {
        let line = ran.stdout.lines().find(|line| line.starts_with(name));
        let words = line.expect(name).split_whitespace();
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("osp-debian")[3], "RestartUnit");
    assert_eq!(row("osp-flatcar")[3], "None");
    let [_, old, _, class] = &row("osp-rhel")[..] else {
        panic!("{}", ran.stdout);
    };
    assert_eq!([&**old, class], ["-", "-"]);
    let effect = "osp-debian, osp-ubuntu\n  /etc/sysctl.d/k8s.conf: RestartUnit \
                  (systemd-sysctl.service)\n";
    assert!(ran.stdout.ends_with(effect), "{}", ran.stdout);
    let none = folder.osm("profiles diff nowhere");
    assert!(none.code == 1 && none.stderr.contains("cannot read nowhere"));
}

#[test]
fn every_command_reads_lists_and_the_platforms_own_kind() {
    let folder = Folder::new();
    let list = |kind: &str, text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let items: Vec<String> = lines.map(|line| format!("  {line}\n")).collect();
        let items = items.concat().replacen("  ", "- ", 1);
        format!("apiVersion: v1\nkind: {kind}\nmetadata: {{resourceVersion: ''}}\nitems:\n{items}")
    };
    let profile = folder.read("my-profile.yaml");
    let kind = "kind: OperatingSystemProfile";
    folder.change(
        ("my-profile.yaml", "custom.yaml"),
        kind,
        "kind: CustomOperatingSystemProfile",
    );
    folder.write("list.yaml", &list("List", &profile));
    folder.write(
        "workers-list.yaml",
        &list("MachineDeploymentList", &folder.read("workers.yaml")),
    );
    for line in [
        "lint PROFILE",
        "render PROFILE --machine-deployment workers.yaml --cluster facts.yaml",
        "diff PROFILE osp-ubuntu --machine-deployment workers.yaml --cluster facts.yaml",
        "bom PROFILE --kubernetes 1.34.1",
        "lint my-profile.yaml --base PROFILE",
    ] {
        let ran = |profile: &str, workers: &str| {
            let line = line
                .replace("PROFILE", profile)
                .replace("workers.yaml", workers);
            let ran = folder.osm(&line);
            (ran.code, ran.stdout.replace(profile, "PROFILE"))
        };
        let (code, expected) = ran("my-profile.yaml", "workers.yaml");
        for profile in ["custom.yaml", "list.yaml"] {
            let (other_code, found) = ran(profile, "workers-list.yaml");
            // In a list, findings are at other lines.
            let is_equal = line.starts_with("lint") || found == expected;
            assert!(other_code == code && is_equal, "{line} {profile}: {found}");
        }
    }
    let go = "apiVersion: operatingsystemmanager.k8c.io/v1alpha1
kind: OperatingSystemProfile
metadata: {name: osp-go}
spec:
  osName: ubuntu
  osVersion: '24.04'
  version: v1.0.0
  supportedCloudProviders: [{name: aws}]
  bootstrapConfig: {}
  provisioningConfig: {}
";
    folder.write("go.yaml", &list("List", go));
    let ran = folder.osm("convert go.yaml");
    assert!(
        ran.code == 0 && ran.stdout.contains(kind) && !ran.stdout.contains("items:"),
        "{ran:?}"
    );
}

#[test]
fn a_bill_says_where_it_comes_from() {
    let folder = Folder::new();
    let line = "bom my-profile.yaml --kubernetes 1.34.1";
    let ran = folder.osm(line);
    let url = "url https://dl.k8s.io/v1.34.1/bin/linux/${ARCH}/kubelet  # provisioningConfig /opt/bin/setup:2\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (0, url));
    assert!(
        ran.stderr.contains("read out of its files"),
        "{}",
        ran.stderr
    );
    let half = "  provisioningConfig:\n";
    let list = format!(
        "{half}    templates:\n      artefacts: package socat-{{{{ variables.site|default('x') }}}}\n"
    );
    folder.change(("my-profile.yaml", "listed.yaml"), half, &list);
    let line = "bom listed.yaml --kubernetes 1.34.1 --worker-cluster berlin.yaml";
    let ran = folder.osm(line);
    let expected = "image mirror.example/pause:3.10\npackage socat-berlin\n";
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
        (0, expected, "")
    );
    let json: Value =
        serde_json::from_str(&folder.osm(&format!("{line} --format json")).stdout).unwrap();
    assert_eq!(
        json[1],
        json!({"kind": "package", "value": "socat-berlin", "profiles": ["osp-mine"]})
    );
    folder.change(("listed.yaml", "odd.yaml"), "package socat", "wheel socat");
    let ran = folder.osm("bom odd.yaml --kubernetes 1.34.1");
    assert!(
        ran.code == 1
            && ran
                .stderr
                .contains("refused: odd.yaml: template `artefacts`"),
        "{ran:?}"
    );
}

/// Tests are built without a commit; the image is built with one.
#[test]
fn the_version_names_release_and_commit() {
    let ran = Folder::new().osm("version");
    let start = concat!("osm ", env!("CARGO_PKG_VERSION"), "\ncommit unknown (");
    assert!(ran.stdout.starts_with(start), "{ran:?}");
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}

#[test]
fn every_command_has_examples_and_every_shell_its_completions() {
    let folder = Folder::new();
    for command in [
        "crds",
        "rbac",
        "render",
        "lint",
        "diff",
        "profiles",
        "bom",
        "completions",
        "version",
        "run",
        "plan",
        "explain",
        "doctor",
        "tenants",
        "tenant",
        "tenant add",
        "adopt kkp",
        "tenant remove",
    ] {
        let help = folder.osm(&format!("{command} --help")).stdout;
        assert!(
            help.contains(&format!("\n  osm {command}")) || help.contains("<(osm"),
            "{help}"
        );
        assert!(help.contains("Example"), "{help}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = folder.osm(&format!("completions {shell}"));
        assert!(
            script.code == 0 && script.stdout.contains("OSM_COMPLETE"),
            "{shell}: {script:?}"
        );
    }
}

#[test]
fn the_examples_of_the_page_do_what_the_page_shows() {
    let folder = Folder::new();
    let page = page();
    let fences = fences(&page);
    let mut count = 0;
    for (index, (language, script)) in fences.iter().enumerate() {
        if *language != "sh" {
            continue;
        }
        let ran = folder.run("bash", &["-euc", script]);
        assert_eq!(ran.code, 0, "{script}\n{}", ran.stderr);
        if let Some(("text", shown)) = fences.get(index + 1) {
            assert_eq!(
                ran.stdout.trim_end(),
                shown.trim_end(),
                "{script}\n{}",
                ran.stderr
            );
            count += 1;
        }
    }
    assert!(count >= 5, "the page shows what its examples print");
}
