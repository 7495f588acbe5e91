//! Both documents of the Ignition profile, held against Ignition's specification 2.3.0.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    cases::{Case, Half, TOKEN, case, flatcar_cases, profile_names},
    readers::KUBELETS,
};

/// What a document has written: contents by path.
type Files = BTreeMap<String, String>;

#[test]
fn both_profiles_render_for_every_provider_and_version() {
    let expected = BTreeSet::from(["osp-flatcar", "osp-flatcar-cloud-init"]);
    assert_eq!(profile_names(flatcar_cases()), expected);
    for (profile, providers) in [
        (
            "osp-flatcar",
            "aws azure gce kubevirt openstack vmware-cloud-director vsphere",
        ),
        ("osp-flatcar-cloud-init", "anexia"),
    ] {
        for provider in providers.split(' ') {
            for kubelet in KUBELETS {
                let case = case(&format!("{profile}/{provider}/{kubelet}"));
                let setup = text_of(&case.provisioning, "/opt/bin/setup");
                assert!(setup.contains(&format!("'v{kubelet}'")), "{}", case.name);
                assert!(!case.stored.contains(TOKEN), "{}", case.name);
            }
        }
    }
}

#[test]
fn every_document_follows_the_specification_and_carries_the_files() {
    for case in ignition_cases() {
        for half in [&case.bootstrap, &case.provisioning] {
            let document: Value =
                serde_json::from_slice(&half.document).expect("a document is JSON");
            let written = read(&document).unwrap_or_else(|error| panic!("{}: {error}", case.name));
            for (path, expected) in &half.texts {
                let found = written.get(path).expect("every file is in the document");
                assert_eq!(found.trim_end(), expected.trim_end(), "{path}");
            }
            assert!(!written.keys().any(|path| path.starts_with("/proc/")));
        }
    }
}

#[test]
fn the_two_documents_write_different_files() {
    for case in flatcar_cases() {
        let both: Vec<_> = case
            .bootstrap
            .texts
            .keys()
            .filter(|path| case.provisioning.texts.contains_key(*path))
            .collect();
        assert!(both.is_empty(), "{}: {both:?}", case.name);
    }
}

#[test]
fn the_check_refuses_what_ignition_refuses() {
    let unit = "[Service]\nExecStart=/bin/true\n\n[Install]\nWantedBy=multi-user.target\n";
    let good = json!({
        "ignition": { "version": "2.3.0" },
        "storage": { "files": [
            { "filesystem": "root", "path": "/a", "mode": 420, "contents": { "source": "data:,a%0A" } },
            { "filesystem": "root", "path": "/b", "mode": 420, "contents": { "source": "data:,b" } },
        ] },
        "systemd": { "units": [
            { "name": "a.service", "enabled": true, "contents": unit,
              "dropins": [{ "name": "a.conf", "contents": "[Service]\n" }] },
        ] },
    });
    read(&good).expect("the check accepts a good document");
    for (place, value) in [
        ("/ignition/version", json!("3.0.0")),
        ("/storage/files/0/filesystem", json!("")),
        ("/storage/files/0/path", json!("a")),
        ("/storage/files/0/path", json!("/b")),
        ("/storage/files/0/path", json!("/c/../b")),
        ("/storage/files/0/mode", json!(0o10000)),
        ("/storage/files/0/mode", json!("0644")),
        ("/storage/files/0/contents/source", json!("a")),
        ("/storage/files/0/contents/source", json!("data:,a b")),
        ("/storage/files/0/contents/source", json!("data:,%0")),
        ("/systemd/units/0/contents", json!("[Service]\n")),
        ("/systemd/units/0/name", json!("a")),
        ("/systemd/units/0/dropins/0/name", json!("a")),
    ] {
        let mut bad = good.clone();
        let target = bad.pointer_mut(place).expect("the place is there");
        *target = value.clone();
        read(&bad).expect_err(&format!("{place} is {value}"));
    }
}

#[test]
fn containerd_reads_our_configuration_in_a_version_that_all_releases_know() {
    for case in flatcar_cases() {
        let half = &case.provisioning;
        let drop_in = text_of(half, "/etc/systemd/system/containerd.service.d/config.conf");
        let command = "ExecStart=/usr/bin/containerd --config /etc/containerd/config.toml";
        assert!(drop_in.lines().any(|line| line == command));
        assert!(drop_in.lines().any(|line| line == "ExecStart="));
        assert!(text_of(half, "/etc/containerd/config.toml").starts_with("version = 2\n"));
        let hosts = text_of(half, "/etc/containerd/certs.d/docker.io/hosts.toml");
        assert!(hosts.contains("registry-1.docker.io"), "{}", case.name);
    }
}

#[test]
fn a_fixed_address_is_there_before_the_first_request() {
    let network = "/etc/systemd/network/static.network";
    for case in flatcar_cases() {
        let text = text_of(&case.bootstrap, network);
        if case.name.ends_with("/static") {
            assert_eq!(
                text.trim_end(),
                "[Match]\nName=en* eth*\n\n[Network]\nAddress=192.0.2.7/24\n\
                 Gateway=192.0.2.1\nDNS=192.0.2.2\nDNS=192.0.2.3"
            );
        } else {
            assert_eq!(text.trim(), "", "{}", case.name);
        }
    }
}

#[test]
fn the_resolver_of_pods_is_not_the_stub() {
    for case in flatcar_cases() {
        let configuration = text_of(&case.provisioning, "/etc/kubernetes/kubelet.conf");
        let line = "resolvConf: /run/systemd/resolve/resolv.conf";
        assert!(configuration.lines().any(|found| found == line));
    }
}

fn ignition_cases() -> impl Iterator<Item = &'static Case> {
    flatcar_cases().filter(|case| case.profile == "osp-flatcar")
}

pub fn text_of<'a>(half: &'a Half, path: &str) -> &'a str {
    half.texts.get(path).expect("the file is there")
}

macro_rules! ensure {
    ($holds:expr, $what:expr) => {
        if !$holds {
            return Err(format!("wrong: {}", $what));
        }
    };
}

/// The files of a document, if Ignition would take it.
pub fn read(document: &Value) -> Result<Files, String> {
    let version = document.pointer("/ignition/version");
    ensure!(version == Some(&json!("2.3.0")), "the version");
    let mut files = Files::new();
    for file in list(document, "/storage/files") {
        ensure!(file.get("filesystem") == Some(&json!("root")), "filesystem");
        let path = word(file, "/path")?;
        let is_plain = path
            .split('/')
            .skip(1)
            .all(|part| !matches!(part, "" | "." | ".."));
        ensure!(path.starts_with('/') && is_plain, path);
        let mode = file.get("mode").and_then(Value::as_u64);
        ensure!(mode.is_some_and(|mode| mode <= 0o7777), "mode");
        let content = decode(word(file, "/contents/source")?)?;
        ensure!(files.insert(path.to_owned(), content).is_none(), path);
    }
    let mut names = BTreeSet::new();
    for unit in list(document, "/systemd/units") {
        let name = word(unit, "/name")?;
        ensure!(name.ends_with(".service") && names.insert(name), name);
        let path = format!("/etc/systemd/system/{name}");
        let contents = unit.get("contents").and_then(Value::as_str);
        ensure!(contents.is_none() || !files.contains_key(&path), name);
        if unit.get("enabled") == Some(&json!(true)) {
            let text = contents.or(files.get(&path).map(String::as_str));
            let is_installed = |text: &str| text.lines().any(|line| line == "[Install]");
            ensure!(text.is_some_and(is_installed), "[Install]");
        }
        for drop_in in list(unit, "/dropins") {
            ensure!(
                word(drop_in, "/name")?.strip_suffix(".conf").is_some(),
                "a drop-in"
            );
        }
    }
    Ok(files)
}

fn list<'a>(value: &'a Value, place: &str) -> &'a [Value] {
    value
        .pointer(place)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn word<'a>(value: &'a Value, place: &str) -> Result<&'a str, String> {
    let word = value.pointer(place).and_then(Value::as_str);
    word.ok_or_else(|| format!("missing: {place}"))
}

/// What stands behind `data:,`, unescaped.
fn decode(source: &str) -> Result<String, String> {
    let escaped = source.strip_prefix("data:,").ok_or("not a data URL")?;
    let mut bytes = Vec::new();
    let mut rest = escaped.bytes();
    while let Some(byte) = rest.next() {
        ensure!(byte.is_ascii_graphic(), "a character that is not of a URL");
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            let high = digit().ok_or("an escape")?;
            let low = digit().ok_or("an escape")?;
            bytes.push(u8::try_from(high * 16 + low).expect("two digits are a byte"));
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).map_err(|error| error.to_string())
}
