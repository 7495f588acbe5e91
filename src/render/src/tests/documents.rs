//! Tests the documents to the byte.

use super::*;
use crate::encode::{cloud_init, ignition};
use osm_api::{
    config::ConfigHalf,
    profile::{CloudProvider, CloudProviderSpec, DropIn, Unit},
};

pub(super) const MACHINE: MachineInput<'_> = MachineInput {
    name: "workers",
    dist_upgrade_on_boot: false,
};

pub(super) fn a_config(provider: CloudProvider, half: ConfigHalf) -> OperatingSystemConfigSpec {
    OperatingSystemConfigSpec {
        os_name: OperatingSystem::Ubuntu,
        os_version: String::new(),
        cloud_provider: CloudProviderSpec {
            name: provider,
            spec: None,
        },
        bootstrap_config: half.clone(),
        provisioning_config: half,
        provisioning_utility: None,
        ignition_version: None,
    }
}

pub(super) fn a_unit(content: &str) -> Unit {
    Unit {
        name: "a.service".to_owned(),
        enable: Some(true),
        mask: None,
        content: Some(content.to_owned()),
        drop_ins: vec![DropIn {
            name: "10-a.conf".to_owned(),
            content: "[Unit]\nAfter=b\n".to_owned(),
        }],
    }
}

fn text(document: &UserData) -> String {
    String::from_utf8_lossy(document.as_bytes()).into_owned()
}

fn cloud_config(provider: CloudProvider, half: Half, content: ConfigHalf) -> String {
    text(&cloud_init::encode(&a_config(provider, content), half, MACHINE).unwrap())
}

fn ignition(provider: CloudProvider, half: Half, content: ConfigHalf) -> String {
    let document = ignition::encode(&a_config(provider, content), half, MACHINE).unwrap();
    let _: serde_json::Value = serde_json::from_slice(document.as_bytes()).unwrap();
    text(&document)
}

#[test]
fn a_cloud_config_without_content_has_its_frame() {
    let empty = ConfigHalf::default;
    assert_eq!(
        cloud_config(CloudProvider::Aws, Half::Bootstrap, empty()),
        "#cloud-config\n\nssh_pwauth: false\n\n"
    );
    assert_eq!(
        cloud_config(CloudProvider::Azure, Half::Bootstrap, empty()),
        "#cloud-config\nhostname: <MACHINE_NAME>\n\nssh_pwauth: false\n\n\
         write_files:\n- path: /etc/machine-name\n  permissions: '0600'\n  content: |-\n        \
         <MACHINE_NAME>\n"
    );
    let edge = cloud_config(CloudProvider::Edge, Half::Bootstrap, empty());
    assert!(
        edge.starts_with("#cloud-config\nhostname: workers\n"),
        "{edge}"
    );
    let upgraded = cloud_init::encode(
        &a_config(CloudProvider::Aws, empty()),
        Half::Provisioning,
        MachineInput {
            dist_upgrade_on_boot: true,
            ..MACHINE
        },
    );
    assert_eq!(
        text(&upgraded.unwrap()),
        "#cloud-config\n\npackage_upgrade: true\npackage_reboot_if_required: true\n\
         ssh_pwauth: false\n\n"
    );
}

#[test]
fn keys_are_trimmed_and_each_written_once() {
    let half = ConfigHalf {
        user_ssh_keys: ["b ", "a", "", "  ", "b\n"].map(str::to_owned).to_vec(),
        ..ConfigHalf::default()
    };
    let document = cloud_config(CloudProvider::Aws, Half::Provisioning, half.clone());
    assert!(
        document.ends_with("ssh_authorized_keys:\n- 'b'\n- 'a'\n"),
        "{document}"
    );
    let document = ignition(CloudProvider::Aws, Half::Provisioning, half);
    assert!(
        document.contains(r#""sshAuthorizedKeys":["b","a"]"#),
        "{document}"
    );
}

#[test]
fn files_of_a_cloud_config_carry_their_encoding_and_mode() {
    let mut encoded = a_file("/b", "x\n");
    encoded.permissions = 1755;
    encoded.content.inline.as_mut().unwrap().encoding = Some("b64".to_owned());
    let half = ConfigHalf {
        files: vec![a_file("/a", "1\n\n2\n"), encoded],
        ..ConfigHalf::default()
    };
    let document = cloud_config(CloudProvider::Aws, Half::Provisioning, half);
    assert!(
        document.ends_with(
            "write_files:\n- path: '/a'\n  permissions: '0644'\n  content: |-\n    1\n    \n    2\n    \n\n\
             - path: '/b'\n  permissions: '1755'\n  encoding: 'b64'\n  content: |-\n    eAo=\n"
        ),
        "{document}"
    );
}

#[test]
fn units_and_modules_of_a_cloud_config_have_their_grammar() {
    let modules = CloudInitModules {
        bootcmd: vec!["echo a".to_owned()],
        runcmd: vec!["[ls, -l]".to_owned(), "\"a: b\"".to_owned()],
        rh_subscription: BTreeMap::from([
            ("username".to_owned(), "u".to_owned()),
            ("password".to_owned(), String::new()),
        ]),
        yum_repos: BTreeMap::from([
            (
                "repo".to_owned(),
                BTreeMap::from([("baseurl".to_owned(), "https://k8c.io".to_owned())]),
            ),
            ("without".to_owned(), BTreeMap::new()),
        ]),
        yum_repo_dir: Some("/etc/repos".to_owned()),
    };
    let half = ConfigHalf {
        units: vec![
            a_unit("[Install]\n"),
            Unit {
                name: "b.service".to_owned(),
                mask: Some(true),
                ..Unit::default()
            },
        ],
        modules: Some(modules),
        ..ConfigHalf::default()
    };
    let document = cloud_config(CloudProvider::Aws, Half::Provisioning, half);
    assert_eq!(
        document.split_once("ssh_pwauth: false\n\n").unwrap().1,
        "coreos:\n  units:\
         \n  - name: \"a.service\"\n    enable: true\n    command: start\n    mask: false\n\
         \n    content: |\n      [Install]\n      \n\
         \n    drop_ins:\n      - name: \"10-a.conf\"\n        content: |\n          [Unit]\n          After=b\n          \
         \n  - name: \"b.service\"\n    enable: false\n    \n    mask: true\n\n\
         \nbootcmd:\n- echo a\n\
         \nruncmd:\n- [ls, -l]\n- \"a: b\"\n\
         \nrh_subscription:\n    password: \n    username: u\n\
         \nyum_repos:\n    repo:\n       baseurl: https://k8c.io\n\
         \nyum_repo_dir: /etc/repos"
    );
}

#[test]
fn an_ignition_document_has_its_shape() {
    assert_eq!(
        ignition(CloudProvider::Aws, Half::Bootstrap, ConfigHalf::default()),
        r#"{"ignition":{"config":{},"security":{"tls":{}},"timeouts":{},"version":"2.3.0"},"networkd":{},"passwd":{},"storage":{},"systemd":{}}"#
    );
    let half = ConfigHalf {
        files: vec![a_file("/a", "")],
        units: vec![a_unit("[Install]\nWantedBy=<x>")],
        ..ConfigHalf::default()
    };
    let document = ignition(CloudProvider::Azure, Half::Bootstrap, half);
    assert!(
        document.ends_with(
            r#""storage":{"files":[{"filesystem":"root","path":"/etc/machine-name","contents":{"source":"data:,%3CMACHINE_NAME%3E","verification":{}},"mode":384},{"filesystem":"root","path":"/a","contents":{"source":"data:,","verification":{}},"mode":420}]},"systemd":{"units":[{"contents":"[Install]\nWantedBy=\u003cx\u003e\n","dropins":[{"contents":"[Unit]\nAfter=b\n","name":"10-a.conf"}],"enabled":true,"name":"a.service"}]}}"#
        ),
        "{document}"
    );
}

#[test]
fn text_in_an_ignition_document_passes_through_a_yaml_block() {
    let check = |data: &str, expected: Option<&str>| {
        let half = ConfigHalf {
            files: vec![a_file("/a", data)],
            ..ConfigHalf::default()
        };
        let config = a_config(CloudProvider::Aws, half);
        let document = ignition::encode(&config, Half::Provisioning, MACHINE);
        let source = document.ok().map(|document| {
            let value: serde_json::Value = serde_json::from_slice(document.as_bytes()).unwrap();
            let source = &value["storage"]["files"][0]["contents"]["source"];
            source
                .as_str()
                .unwrap()
                .replace("%20", " ")
                .replace("%0A", "|")
        });
        let expected = expected.map(|text| format!("data:,{text}"));
        assert_eq!(source, expected, "{data:?}");
    };
    check("", Some(""));
    check("\n\n", Some(""));
    check("a", Some("a|"));
    check("a\n\n\n", Some("a|"));
    check("\n\na\n", Some("||a|"));
    check("  a\n    b\n  c", Some("a|  b|c|"));
    check("  a\n\n  b", Some("a||b|"));
    check("a\n  \nb", Some("a|  |b|"));
    check("~!*'()-_.", Some("~!*'()-_.|"));
    check("  a\nb", None);
    check("    \n  a", None);
    check("a\rb", None);
}

/// As it reads every unit that systemd reads, but for long lines.
#[test]
fn what_ignition_reads_of_a_unit_is_let_through() {
    for text in [
        format!("[Service]\nA={}\n", "a".repeat(2_045)),
        "; a comment\n\n [Service] \nExecStart=a \\\n  b c\\\n\n[Install]\n".to_owned(),
        "before any section\n[Service]\nA=\n".to_owned(),
        "[Service]\n# ExecStart=/a \\ \n  --b\nExecStart=/c\n".to_owned(),
    ] {
        let mut unit = a_unit("[Install]\n");
        unit.drop_ins[0].content = text.clone();
        let half = ConfigHalf {
            units: vec![unit],
            ..ConfigHalf::default()
        };
        let config = a_config(CloudProvider::Aws, half);
        let encoded = ignition::encode(&config, Half::Bootstrap, MACHINE);
        assert!(encoded.is_ok(), "{text}");
    }
}

#[test]
fn a_file_below_a_file_is_refused_by_either_tool() {
    let check = |paths: [&str; 2], utility, expected: Option<&str>| {
        let half = ConfigHalf {
            files: paths.map(|path| a_file(path, "")).to_vec(),
            ..ConfigHalf::default()
        };
        let mut config = a_config(CloudProvider::Azure, half);
        config.provisioning_utility = Some(utility);
        let encoded = encode(&config, Half::Bootstrap, MACHINE);
        let found = encoded.err().map(|error| error.to_string());
        let place = |it| format!("bootstrapConfig, file {it}, which is a file");
        assert_eq!(found, expected.map(place));
    };
    for utility in [
        ProvisioningUtility::CloudInit,
        ProvisioningUtility::Ignition,
    ] {
        let below = Some("`/etc/a/b/c`, path: it is below `/etc/a`");
        check(["/etc/a/b/c", "/etc/a"], utility, below);
        let below = Some("`/etc//a/b`, path: it is below `/etc/a/`");
        check(["/etc//a/b", "/etc/a/"], utility, below);
        let below = Some("`/etc/machine-name/a`, path: it is below `/etc/machine-name`");
        check(["/etc/machine-name/a", "/a"], utility, below);
        check(["/etc/a", "/etc/ab/c"], utility, None);
    }
}

#[test]
fn what_the_transpiler_reports_is_refused() {
    let check = |unit: Unit, expected: &str| {
        let half = ConfigHalf {
            units: vec![unit],
            ..ConfigHalf::default()
        };
        let config = a_config(CloudProvider::Aws, half);
        let error = ignition::encode(&config, Half::Bootstrap, MACHINE).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check(
        a_unit("[Unit]\n"),
        "bootstrapConfig, unit `a.service`, content: \
         the unit is enabled and has no [Install] section",
    );
    check(
        Unit {
            name: "a".to_owned(),
            ..Unit::default()
        },
        "bootstrapConfig, unit `a`, name: it ends with no unit type that systemd knows",
    );
    let mut unit = a_unit("[Install]\n");
    unit.drop_ins[0].name = "a.txt".to_owned();
    check(
        unit,
        "bootstrapConfig, unit `a.service`, drop-in, name: it does not end with .conf",
    );
    let long = "a".repeat(2_045);
    let too_long = "longer than the 2,047 bytes that Ignition takes; continue it with a backslash";
    for (text, fault) in [
        (
            format!("[Install]\nA=b{long}"),
            format!("line 2 is {too_long}"),
        ),
        (
            format!("# b{long}a\n[Install]\n"),
            format!("line 1 is {too_long}"),
        ),
        (
            "[Install]x\n".to_owned(),
            "line 1 has text after the name of a section".to_owned(),
        ),
        (
            "[Install\n".to_owned(),
            "line 1 has the name of a section without `]`".to_owned(),
        ),
        (
            "[Install]\nA=b \\ \n  c\n".to_owned(),
            "line 3 is no setting such as `Name=value`".to_owned(),
        ),
        (
            "[Install]\nA\n".to_owned(),
            "line 2 is no setting such as `Name=value`".to_owned(),
        ),
    ] {
        let mut unit = a_unit("[Install]\n");
        unit.drop_ins[0].content = text;
        let expected = format!("bootstrapConfig, unit `a.service`, content: {fault}");
        check(unit, &expected);
    }
    let half = ConfigHalf {
        files: vec![a_file("etc/a", "")],
        ..ConfigHalf::default()
    };
    let config = a_config(CloudProvider::Aws, half);
    let error = ignition::encode(&config, Half::Bootstrap, MACHINE).unwrap_err();
    assert_eq!(
        error.to_string(),
        "bootstrapConfig, file `etc/a`, path: it is not an absolute path"
    );
}

#[test]
fn a_unit_without_content_leaves_its_place_empty() {
    let unit = Unit {
        name: "a.service".to_owned(),
        ..Unit::default()
    };
    let content = ConfigHalf {
        units: vec![unit],
        ..ConfigHalf::default()
    };
    let text = cloud_config(CloudProvider::Aws, Half::Bootstrap, content);
    let unit = "  - name: \"a.service\"\n    enable: false\n    \n    mask: false\n\n";
    assert!(text.ends_with(unit), "{text:?}");
}

#[test]
fn lines_that_end_as_windows_ends_them_end_as_a_reader_of_yaml_reads_them() {
    let content = || ConfigHalf {
        files: vec![a_file("/ca.pem", "BEGIN\r\nabc\r\nEND\r\n")],
        ..ConfigHalf::default()
    };
    let text = cloud_config(CloudProvider::Aws, Half::Bootstrap, content());
    assert!(text.contains("    BEGIN\n    abc\n    END\n"), "{text:?}");
    assert!(!text.contains('\r'));
    let text = ignition(CloudProvider::Aws, Half::Bootstrap, content());
    assert!(text.contains("data:,BEGIN%0Aabc%0AEND%0A"), "{text}");
    let bare = ConfigHalf {
        files: vec![a_file("/ca.pem", "a\rb")],
        ..ConfigHalf::default()
    };
    let config = a_config(CloudProvider::Aws, bare);
    assert!(cloud_init::encode(&config, Half::Bootstrap, MACHINE).is_err());
}

#[test]
fn a_text_that_begins_with_spaces_is_written_as_it_is() {
    let half = ConfigHalf {
        files: vec![a_file("/etc/x", "  a\n  b\n")],
        ..ConfigHalf::default()
    };
    let document = cloud_config(CloudProvider::Aws, Half::Provisioning, half);
    let block = "  content: |-\n      a\n      b\n    \n";
    assert!(document.ends_with(block), "{document}");
}

#[test]
fn a_text_that_would_end_its_block_is_refused_with_the_remedy() {
    let mut world = a_world();
    world.profile.provisioning_config.files = vec![a_file("/etc/x", "    art\n  art\n")];
    assert_eq!(
        world.render().unwrap_err().to_string(),
        "provisioningConfig, file `/etc/x`, content: a line is indented less than the first one, \
         which would end the block; write `encoding: b64` beside it"
    );
}

/// Returns the provisioning document for a machine with Red Hat Enterprise Linux.
fn subscribed(user: &str, password: &str) -> String {
    let mut world = a_world();
    world.profile.os_name = OperatingSystem::Rhel;
    world.provider_spec["operatingSystem"] = json!("rhel");
    world.provider_spec["operatingSystemSpec"] = json!({
        "rhelSubscriptionManagerUser": user,
        "rhelSubscriptionManagerPassword": password,
    });
    text(
        &world
            .render()
            .expect("the subscription renders")
            .provisioning,
    )
}

#[test]
fn a_subscription_reads_back_as_the_machine_deployment_has_it() {
    for value in [
        "@a: b#1", "#a", "!a", "%a", "*a", "&a", "[a", ">a", "a: b", "a #b", "it's", "'a", "\"a",
        "yes", "null", "0755", " a ", "a\tb",
    ] {
        let document = subscribed(value, value);
        let read: serde_json::Value = serde_saphyr::from_str(&document).expect(value);
        assert_eq!(read["rh_subscription"]["username"], value, "{document}");
        assert_eq!(read["rh_subscription"]["password"], value, "{document}");
    }
    // Values that need no quotes, or have their own, are unchanged.
    for value in ["u@example.com", "a#b", "7", "'a: b'", "\"yes\""] {
        let document = subscribed(value, "p");
        assert!(
            document.contains(&format!("username: {value}\n")),
            "{document}"
        );
    }
}
