//! Tests of compressed files, and of the other version of Ignition.

use std::io::Read;

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::read::GzDecoder;
use serde_json::Value as Json;

use super::documents::{MACHINE, a_config, a_unit};
use super::*;
use osm_api::{
    config::ConfigHalf,
    profile::{CloudProvider, File, IgnitionVersion, Unit},
};

fn a_compressed_file(data: &str) -> File {
    let mut file = a_file("/opt/bin/setup", data);
    file.content.inline.as_mut().unwrap().encoding = Some("gzip".to_owned());
    file
}

fn unpacked(data: &str) -> String {
    let bytes = STANDARD.decode(data).unwrap();
    let mut text = String::new();
    GzDecoder::new(bytes.as_slice())
        .read_to_string(&mut text)
        .unwrap();
    text
}

/// Returns the Ignition document of a half.
fn ignition(version: IgnitionVersion, half: ConfigHalf) -> Result<Json, RenderError> {
    let mut config = a_config(CloudProvider::Azure, half);
    config.provisioning_utility = Some(ProvisioningUtility::Ignition);
    config.ignition_version = Some(version);
    let document = encode(&config, Half::Bootstrap, MACHINE)?;
    Ok(serde_json::from_slice(document.as_bytes()).unwrap())
}

fn with_files(files: Vec<File>) -> ConfigHalf {
    ConfigHalf {
        files,
        ..ConfigHalf::default()
    }
}

/// White space at both ends, control characters, and characters that YAML cannot contain.
const TEXT: &str = "  first\n\x0b\u{2028}second\r\n\n\n";

#[test]
fn a_compressed_file_of_a_cloud_config_is_gzip_in_base64() {
    let config = a_config(
        CloudProvider::Aws,
        with_files(vec![a_compressed_file(TEXT)]),
    );
    let document = encode(&config, Half::Provisioning, MACHINE).unwrap();
    let document = String::from_utf8(document.as_bytes().to_vec()).unwrap();
    let read: Json = serde_saphyr::from_str(&document).unwrap();
    let file = &read["write_files"][0];
    assert_eq!(file["encoding"], "gz+b64");
    assert_eq!(unpacked(file["content"].as_str().unwrap()), TEXT);
}

#[test]
fn an_encoding_with_which_cloud_init_would_fail_is_refused() {
    let encoded = |encoding: &str, data: &str| {
        let mut file = a_file("/a", data);
        file.content.inline.as_mut().unwrap().encoding = Some(encoding.to_owned());
        let config = a_config(CloudProvider::Aws, with_files(vec![file]));
        encode(&config, Half::Provisioning, MACHINE)
    };
    for (encoding, data) in [
        ("b64", "text"),
        ("", "text"),
        ("Text/Plain", "text"),
        ("unknown", "text"),
        ("base64", "dGV4\ndA==\n"),
        ("GZ+B64", "dGV4dA=="),
    ] {
        assert!(encoded(encoding, data).is_ok(), "{encoding}");
    }
    for (encoding, data) in [
        ("gz", "text"),
        ("Gzip", "text"),
        ("B64", "dGV4dA=="),
        (" b64", "dGV4dA=="),
        ("base64", "no text"),
    ] {
        assert!(encoded(encoding, data).is_err(), "{encoding}");
    }
}

#[test]
fn a_compressed_file_of_ignition_names_its_compression() {
    for version in [IgnitionVersion::V2, IgnitionVersion::V3] {
        let document = ignition(version, with_files(vec![a_compressed_file(TEXT)])).unwrap();
        let contents = &document["storage"]["files"][1]["contents"];
        assert_eq!(contents["compression"], "gzip");
        let source = contents["source"].as_str().unwrap();
        let data = source.strip_prefix("data:;base64,").unwrap();
        assert_eq!(unpacked(data), TEXT);
        let plain = &document["storage"]["files"][0]["contents"];
        assert_eq!(plain.get("compression"), None);
    }
}

#[test]
fn the_same_text_is_compressed_to_the_same_bytes_without_a_time() {
    let text = "#!/bin/bash\n".repeat(1_000);
    let bytes = encode::gzip::gzip(text.as_bytes(), 9);
    assert_eq!(bytes, encode::gzip::gzip(text.as_bytes(), 9));
    assert_eq!(bytes[4..8], [0; 4], "the header's time");
    assert!(bytes.len() < 100, "{}", bytes.len());
}

#[test]
fn a_compressed_file_may_not_ask_for_the_machines_name() {
    for name in ["<MACHINE_NAME>", "%3CMACHINE_NAME%3E"] {
        let text = format!("hostnamectl set-hostname {name}");
        let mut world = a_world();
        world.profile.bootstrap_config.files = vec![a_compressed_file(&text)];
        let error = world.render().unwrap_err();
        assert_eq!(error.category(), "unsafe-value");
        assert_eq!(
            error.to_string(),
            "bootstrapConfig, file `/opt/bin/setup`, content: it is compressed and holds the \
             placeholder of the machine's name, which machine-controller could not replace; take \
             `encoding: gzip` away, or read /etc/machine-name"
        );
        // Nodes fetch the other document themselves, so no placeholder in it is replaced.
        world.profile.provisioning_config.files = vec![a_compressed_file(&text)];
        world.profile.bootstrap_config.files = Vec::new();
        assert!(world.render().is_ok());
    }
}

#[test]
fn the_config_keeps_the_text_of_a_compressed_file() {
    let mut world = a_world();
    world.profile.bootstrap_config.files = vec![a_compressed_file("{{ SecretName }}")];
    let rendered = world.render().unwrap();
    let file = &rendered.stored_config.bootstrap_config.files[0];
    assert_eq!(data(file), "workers-kube-system-provisioning-config");
    let encoding = &file.content.inline.as_ref().unwrap().encoding;
    assert_eq!(encoding.as_deref(), Some("gzip"));
}

#[test]
fn an_ignition_document_of_version_3_has_its_shape() {
    let half = ConfigHalf {
        user_ssh_keys: vec!["ssh-rsa A".to_owned()],
        files: vec![a_file("/etc/a", "a b")],
        units: vec![
            a_unit("[Install]\nWantedBy=<x>"),
            Unit {
                name: "b.service".to_owned(),
                mask: Some(true),
                ..Unit::default()
            },
        ],
        ..ConfigHalf::default()
    };
    assert_eq!(
        ignition(IgnitionVersion::V3, half).unwrap(),
        json!({
            "ignition": {"version": "3.3.0"},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-rsa A"]}]},
            "storage": {"files": [
                {
                    "path": "/etc/machine-name", "overwrite": true, "mode": 384,
                    "contents": {"source": "data:,%3CMACHINE_NAME%3E"},
                },
                {
                    "path": "/etc/a", "overwrite": true, "mode": 420,
                    "contents": {"source": "data:,a%20b%0A"},
                },
            ]},
            "systemd": {"units": [
                {
                    "name": "a.service", "enabled": true,
                    "contents": "[Install]\nWantedBy=<x>\n",
                    "dropins": [{"name": "10-a.conf", "contents": "[Unit]\nAfter=b\n"}],
                },
                {"name": "b.service", "enabled": false, "mask": true},
            ]},
        })
    );
    assert_eq!(
        ignition(IgnitionVersion::V3, ConfigHalf::default()).unwrap()["passwd"],
        json!({})
    );
}

#[test]
fn what_only_version_3_refuses_is_refused_in_it() {
    let check = |half: &ConfigHalf, expected: &str| {
        assert!(
            ignition(IgnitionVersion::V2, half.clone()).is_ok(),
            "{expected}"
        );
        let error = ignition(IgnitionVersion::V3, half.clone()).unwrap_err();
        assert_eq!(error.to_string(), format!("bootstrapConfig, {expected}"));
    };
    let twice = "another file has the same; Ignition 3 refuses that";
    check(
        &with_files(vec![a_file("/a", "1"), a_file("/a", "2")]),
        &format!("file `/a`, path: {twice}"),
    );
    check(
        &with_files(vec![a_file("/etc/machine-name", "1")]),
        &format!("file `/etc/machine-name`, path: {twice}"),
    );
    for path in ["/a//b", "/a/", "/./a", "/a/../b", "/"] {
        check(
            &with_files(vec![a_file(path, "")]),
            &format!("file `{path}`, path: it has empty parts, `.` or `..`, or ends with `/`"),
        );
    }
    let mut file = a_file("/a", "");
    file.permissions = 4755;
    check(
        &with_files(vec![file]),
        "file `/a`, permissions: Ignition 3.3.0 takes three digits at most",
    );
    let mut unit = a_unit("[Install]\n");
    let with_units = |units: Vec<Unit>| ConfigHalf {
        units,
        ..ConfigHalf::default()
    };
    check(
        &with_units(vec![unit.clone(), unit.clone()]),
        "unit `a.service`, name: another unit has the same; Ignition 3 refuses that",
    );
    unit.drop_ins.push(unit.drop_ins[0].clone());
    check(
        &with_units(vec![unit]),
        "unit `a.service`, drop-in, name: another drop-in has the same",
    );
}

#[test]
fn what_version_2_refuses_version_3_refuses_too() {
    let mut unit = a_unit("[Unit]\n");
    let no_install = with_unit(unit.clone());
    unit.content = None;
    "a".clone_into(&mut unit.name);
    let mut file = a_file("/a", "");
    file.permissions = 689;
    for half in [
        no_install,
        with_unit(unit),
        with_files(vec![file]),
        with_files(vec![a_file("a", "")]),
        with_files(vec![a_file("/a", "a\rb")]),
        with_files(vec![a_file("/a", "  a\nb")]),
    ] {
        let refused = [IgnitionVersion::V2, IgnitionVersion::V3]
            .map(|version| ignition(version, half.clone()).unwrap_err());
        assert_eq!(refused[0], refused[1]);
    }
}

fn with_unit(unit: Unit) -> ConfigHalf {
    ConfigHalf {
        units: vec![unit],
        ..ConfigHalf::default()
    }
}

#[test]
fn a_profile_for_ignition_names_the_version_of_its_documents() {
    let mut world = a_world();
    world.profile.os_name = OperatingSystem::Flatcar;
    world.profile.provisioning_utility = Some(ProvisioningUtility::Ignition);
    world.profile.ignition_version = Some(IgnitionVersion::V3);
    world.provider_spec["operatingSystem"] = json!("flatcar");
    let rendered = world.render().unwrap();
    for document in [&rendered.bootstrap, &rendered.provisioning] {
        let document: Json = serde_json::from_slice(document.as_bytes()).unwrap();
        assert_eq!(document["ignition"]["version"], "3.3.0");
    }
    let stored = serde_json::to_value(&rendered.stored_config).unwrap();
    assert_eq!(stored["ignitionVersion"], "3.3.0");
}
