//! `osm render`: the same bytes and refusals as the controller's, and no secret where none belongs.

use std::{collections::BTreeMap, fs};

use osm::{
    api::profile::OperatingSystemProfile,
    render::{Rendered, input::RegistryCredential, template::CompiledProfile},
    tenant::secret_text::SecretText,
};
use serde_json::{Value, json};

use crate::{
    folder::{Folder, SECRETS},
    subject::Subject,
};

const RENDER: &str =
    "render my-profile.yaml --machine-deployment workers.yaml --cluster facts.yaml";

/// What the library makes of the page's files.
fn rendered(folder: &Folder) -> Rendered {
    let profile: OperatingSystemProfile =
        serde_saphyr::from_str(&folder.read("my-profile.yaml")).expect("a profile");
    let facts: Value = serde_saphyr::from_str(&folder.read("facts.yaml")).expect("facts");
    let profile = CompiledProfile::compile(&profile.spec).expect("the profile compiles");
    let fact = |name: &str| facts.get(name).and_then(Value::as_str).expect("a text");
    let credential = RegistryCredential {
        username: SecretText::new("berlin"),
        password: SecretText::new("hidden"),
        ..RegistryCredential::default()
    };
    let subject = Subject {
        provider_spec: json!({"operatingSystem": "ubuntu", "cloudProvider": "aws"}),
        api_server: fact("apiServer").to_owned(),
        authority: fact("kubernetesCA").to_owned(),
        fetch_token: SecretText::new(fact("fetchToken")),
        bootstrap_kubeconfig: SecretText::new(fact("bootstrapKubeconfig")),
        registry_credentials: BTreeMap::from([("mirror.example".to_owned(), credential)]),
        ..Subject::new()
    };
    subject.render(&profile).expect("the profile renders")
}

#[test]
fn a_rendered_document_is_the_controllers_to_the_byte() {
    let folder = Folder::new();
    let expected = rendered(&folder);
    for (output, document) in [
        ("bootstrap", &expected.bootstrap),
        ("provisioning", &expected.provisioning),
    ] {
        let ran = folder.osm(&format!("{RENDER} -o {output}"));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{output}");
        assert_eq!(ran.stdout.as_bytes(), document.as_bytes(), "{output}");
    }
    assert_eq!(
        folder.osm(RENDER).stdout.as_bytes(),
        expected.provisioning.as_bytes()
    );
    let config: Value =
        serde_saphyr::from_str(&folder.osm(&format!("{RENDER} -o config")).stdout).expect("YAML");
    assert_eq!(config["metadata"]["name"], "workers-kube-system-config");
    assert_eq!(
        config["spec"],
        serde_json::to_value(&expected.stored_config).unwrap()
    );
}

#[test]
fn all_that_is_rendered_can_be_written_into_a_folder_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = Folder::new();
    let ran = folder.osm(&format!("{RENDER} -o all --output-dir out/new --files"));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    for name in ["config.yaml", "bootstrap", "provisioning"] {
        let mode = fs::metadata(folder.path("out/new").join(name))
            .unwrap()
            .permissions();
        assert_eq!(mode.mode() & 0o777, 0o600, "{name}");
    }
    assert_eq!(
        folder.read("out/new/files/bootstrap/etc/token"),
        format!("{}\n", SECRETS[0])
    );
    let script = folder.read("out/new/files/provisioning/opt/bin/setup");
    assert!(
        script.starts_with("#!/bin/bash\n") && script.contains("nowhere"),
        "{script}"
    );
    folder.change(
        ("my-profile.yaml", "up.yaml"),
        "path: /etc/token",
        "path: /../../token",
    );
    let ran = folder.osm(&format!(
        "{} -o all --output-dir out/up --files",
        RENDER.replace("my-profile", "up")
    ));
    assert!(
        ran.code == 1 && ran.stderr.contains("`..` would lead out"),
        "{ran:?}"
    );
}

#[test]
fn the_settings_of_a_tenant_reach_its_documents() {
    let folder = Folder::new();
    let ran = folder.osm(&format!("{RENDER} --worker-cluster berlin.yaml"));
    assert!(
        ran.code == 0 && ran.stdout.contains("echo berlin"),
        "{ran:?}"
    );
    folder.write("defaults.yaml", "variables: {site: everywhere}\n");
    let ran = folder.osm(&format!("{RENDER} --tenant-defaults defaults.yaml"));
    assert!(
        ran.code == 0 && ran.stdout.contains("echo everywhere"),
        "{ran:?}"
    );
    folder.change(("berlin.yaml", "slip.yaml"), "pauseImage", "pauseimage");
    let ran = folder.osm(&format!("{RENDER} --worker-cluster slip.yaml"));
    assert!(
        ran.code == 1 && ran.stderr.contains("slip.yaml:9:3: spec.pauseimage"),
        "{ran:?}"
    );
    assert!(ran.stderr.contains("did you mean `pauseImage`?"), "{ran:?}");
    folder.change(
        ("berlin.yaml", "bad.yaml"),
        "pauseImage: mirror.example/pause:3.10",
        "clusterDNS: [x]",
    );
    let ran = folder.osm(&format!("{RENDER} --worker-cluster bad.yaml"));
    assert!(
        ran.code == 1 && ran.stderr.contains("refused: SettingsRefused: "),
        "{ran:?}"
    );
}

#[test]
fn a_kubelet_that_is_not_supported_gets_a_note() {
    let folder = Folder::new();
    folder.change(("workers.yaml", "old.yaml"), "1.34.1", "1.12.0");
    for line in [
        RENDER.replace("workers.yaml", "old.yaml"),
        "bom my-profile.yaml --kubernetes 1.12.0".to_owned(),
    ] {
        let ran = folder.osm(&line);
        let note = "note: kubelet 1.12.0 is not supported: documents are tested with 1.34 to 1.37";
        assert_eq!(ran.stderr.lines().next(), Some(note), "{line}: {ran:?}");
        assert_eq!(ran.code, 0, "{line}: {ran:?}");
    }
}

#[test]
fn a_key_missing_in_the_cluster_info_gets_a_placeholder_and_a_note() {
    let folder = Folder::new();
    folder.write(
        "some.yaml",
        "apiServer: https://one.example\nfetchToken: t\n",
    );
    let line = RENDER.replace("facts.yaml", "some.yaml");
    let ran = folder.osm(&line);
    let note = "note: placeholders stand for kubernetesCA, bootstrapKubeconfig;";
    assert!(ran.code == 0 && ran.stderr.starts_with(note), "{ran:?}");
    assert_eq!(
        folder.osm(&line).stdout,
        ran.stdout,
        "the same files give the same bytes"
    );
}

#[test]
fn no_secret_of_the_cluster_info_reaches_stderr() {
    let folder = Folder::new();
    let facts = ("facts.yaml", "facts.yaml");
    let check = |line: &str, code: i32, expected: &str| {
        let ran = folder.osm(line);
        assert!(
            ran.code == code && ran.stderr.contains(expected),
            "{line}: {ran:?}"
        );
        for secret in SECRETS {
            assert!(!ran.stderr.contains(secret), "{line}: {}", ran.stderr);
        }
    };
    check(RENDER, 0, "");
    folder.change(("workers.yaml", "flatcar.yaml"), "ubuntu", "flatcar");
    check(
        &RENDER.replace("workers", "flatcar"),
        1,
        "refused: OperatingSystemProfileError: ",
    );
    let token = format!("fetchToken: {}", SECRETS[0]);
    folder.change(facts, &token, &format!("fetchToken: [{}]", SECRETS[0]));
    check(
        RENDER,
        1,
        "facts.yaml:7:1: fetchToken: the value is not of type string",
    );
    folder.change(facts, "fetchToken", "fetchTokn");
    check(RENDER, 1, "did you mean `fetchToken`?");
    folder.change(
        facts,
        "fetchTokn: [",
        &format!("fetchToken: {{{}: [", SECRETS[2]),
    );
    check(RENDER, 1, "facts.yaml:");
}

#[test]
fn what_cannot_be_read_is_reported_with_file_and_fix_and_ends_with_one() {
    let folder = Folder::new();
    folder.change(
        ("my-profile.yaml", "slip.yaml"),
        "osName: ubuntu",
        "provisioningUtility: kickstart\n  osName: ubuntu",
    );
    folder.change(
        ("workers.yaml", "none.yaml"),
        "kind: MachineDeployment",
        "kind: Machine",
    );
    folder.write(
        "two.yaml",
        &format!("{0}---\n{0}", folder.read("workers.yaml")),
    );
    for (line, expected) in [
        (
            RENDER.replace("my-profile", "nothing"),
            "`nothing.yaml` is no file, and no default profile is called",
        ),
        (
            RENDER.replace("my-profile", "slip"),
            "slip.yaml:7:3: spec.provisioningUtility: `kickstart` is not allowed; write one of",
        ),
        (
            RENDER.replace("workers", "none"),
            "none.yaml: no document has `kind: MachineDeployment`",
        ),
        (
            RENDER.replace("workers", "two"),
            "two.yaml: it holds more than one MachineDeployment",
        ),
        ("lint nothing.yaml".to_owned(), "cannot read nothing.yaml"),
        (
            "diff my-profile.yaml --machine-deployment workers.yaml".to_owned(),
            "it extends no other profile",
        ),
        (
            "profiles show osp-none".to_owned(),
            "no default profile is called osp-none",
        ),
        (
            "profiles show osp-ubunt".to_owned(),
            "no default profile is called osp-ubunt; did you mean osp-ubuntu?",
        ),
    ] {
        let ran = folder.osm(&line);
        assert!(
            ran.code == 1 && ran.stderr.contains(expected),
            "{line}: {ran:?}"
        );
        assert_eq!(ran.stdout, "", "{line}");
    }
    for (line, expected) in [
        (format!("{RENDER} -o all"), "--output-dir"),
        (
            format!("{RENDER} -o nothing"),
            "possible values: config, bootstrap, provisioning, all",
        ),
        ("bom my-profile.yaml".to_owned(), "--kubernetes"),
    ] {
        let ran = folder.osm(&line);
        assert!(
            ran.code == 2 && ran.stderr.contains(expected),
            "{line}: {ran:?}"
        );
        assert_eq!(ran.stdout, "", "{line}");
    }
}
