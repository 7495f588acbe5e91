use serde_json::{Value, json};

use super::*;
use osm_render::thin::{content_name, thin};

fn a_profile() -> Value {
    json!({
        "osName": "ubuntu",
        "osVersion": "24.04",
        "version": "v1.2.3",
        "supportedCloudProviders": [{ "name": "aws" }, { "name": "vmware-cloud-director" }],
        "bootstrapConfig": { "files": [a_file("/opt/bin/bootstrap")] },
        "provisioningConfig": {
            "files": [a_file("/opt/bin/setup")],
            "supportedContainerRuntimes": [
                { "name": "docker", "files": [a_file("/opt/bin/setup")] },
                { "name": "containerd", "files": [a_file("/etc/containerd/config.toml")] },
            ],
        },
    })
}

fn a_file(path: &str) -> Value {
    json!({ "path": path, "permissions": 755, "content": { "inline": { "data": "" } } })
}

/// The profile with the value at a JSON pointer set; to a list, the value is appended.
fn with(pointer: &str, value: Value) -> OperatingSystemProfileSpec {
    let mut profile = a_profile();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match profile.pointer_mut(parent).unwrap() {
        Value::Array(list) => list.push(value),
        parent => parent[key] = value,
    }
    serde_json::from_value(profile).unwrap()
}

fn plain() -> OperatingSystemProfileSpec {
    serde_json::from_value(a_profile()).unwrap()
}

#[test]
fn a_simple_profile_is_accepted_without_warnings() {
    assert_eq!(check(&plain()), Ok(()));
    assert_eq!(warnings(&plain()), []);
}

#[test]
fn only_a_profile_for_flatcar_may_have_units() {
    for half in ["/bootstrapConfig/units", "/provisioningConfig/units"] {
        let spec = with(half, json!([{ "name": "a.service" }]));
        let refused = check(&spec).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "OperatingSystemProfile for ubuntu does not support units"
        );
        let flatcar = OperatingSystemProfileSpec {
            os_name: OperatingSystem::Flatcar,
            ..spec
        };
        assert_eq!(check(&flatcar), Ok(()));
    }
}

#[test]
fn only_a_profile_for_ignition_may_set_an_ignition_version() {
    let mut spec = with("/ignitionVersion", json!("3.3.0"));
    let refused = check(&spec).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "spec.ignitionVersion: it is set, and spec.provisioningUtility is not `ignition`; remove \
         one of the two"
    );
    spec.provisioning_utility = Some(ProvisioningUtility::Ignition);
    assert_eq!(check(&spec), Ok(()));
}

#[test]
fn a_file_without_content_is_refused_and_its_field_is_named() {
    let file = json!({ "path": "/x", "content": {} });
    for (pointer, field) in [
        ("/bootstrapConfig/files/-", "spec.bootstrapConfig.files[1]"),
        (
            "/provisioningConfig/files/-",
            "spec.provisioningConfig.files[1]",
        ),
        (
            "/provisioningConfig/supportedContainerRuntimes/1/files/-",
            "spec.provisioningConfig.supportedContainerRuntimes[1].files[1]",
        ),
    ] {
        let field = format!("{field}.content.inline");
        assert_eq!(
            check(&with(pointer, file.clone())),
            Err(ProfileRefused::NoContent { field })
        );
    }
}

#[test]
fn a_version_must_be_a_semantic_version_with_the_prefix_v() {
    for (version, accepted) in [
        ("v1.2.3", true),
        ("v1.2.3-rc.1", true),
        ("v1.2.3+jinja", true),
        ("v1.2.3-rc.1+jinja.2", true),
        ("foov1.2.3", true),
        ("dev-v1.2.3", true),
        ("1.2.3", false),
        ("v1.2", false),
        ("v01.2.3", false),
        ("v1.2.3.1", false),
        ("v1.2.3 ", false),
        ("", false),
    ] {
        assert_eq!(
            check(&with("/version", json!(version))).is_ok(),
            accepted,
            "{version}"
        );
    }
}

#[test]
fn a_changed_profile_needs_another_version() {
    let old = plain();
    let changed = with("/osVersion", json!("26.04"));
    assert_eq!(check_update(&old, &old), Ok(()));
    let refused = check_update(&old, &changed).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "OperatingSystemProfile is immutable. For updates .spec.version needs to be updated"
    );
    for version in ["v1.2.4", "v1.0.0"] {
        let changed = OperatingSystemProfileSpec {
            version: version.to_owned(),
            ..changed.clone()
        };
        assert_eq!(check_update(&old, &changed), Ok(()), "{version}");
    }
    let thin = thin(content_name("osp", &old), &old);
    assert_eq!(check_update(&thin, &old), Ok(()), "it becomes whole");
    let refused = check_update(&old, &thin);
    assert_eq!(refused, Err(ProfileRefused::SameVersion));
}

#[test]
fn a_profile_serves_only_its_operating_system_and_cloud_providers() {
    let demand = |operating_system, cloud_provider| {
        let demand = Demand {
            operating_system,
            cloud_provider,
        };
        check_demand("osp-mine", &plain(), demand).map_err(|refused| refused.to_string())
    };
    assert_eq!(demand("ubuntu", "aws"), Ok(()));
    assert_eq!(demand("ubuntu", "vmware-cloud-director"), Ok(()));
    for (operating_system, cloud_provider, text) in [
        ("flatcar", "aws", "operating system \"flatcar\""),
        // The operating system is checked first.
        ("", "hetzner", "operating system \"\""),
        ("ubuntu", "hetzner", "cloud provider \"hetzner\""),
        ("ubuntu", "equinixmetal", "cloud provider \"equinixmetal\""),
    ] {
        let expected = format!("OperatingSystemProfile \"osp-mine\" does not support {text}");
        assert_eq!(demand(operating_system, cloud_provider), Err(expected));
    }
}

#[test]
fn a_profile_serves_the_provisioning_utility_that_it_names_or_any() {
    assert_eq!(check_utility(&plain(), "ignition"), Ok(()));
    let spec = with("/provisioningUtility", json!("cloud-init"));
    assert_eq!(check_utility(&spec, "cloud-init"), Ok(()));
    assert_eq!(
        check_utility(&spec, "ignition").unwrap_err().to_string(),
        "specified provisioning utility \"cloud-init\" is not supported by the \
         OperatingSystemProfile"
    );
}

#[test]
fn each_probable_mistake_has_a_warning() {
    let mode = |mode: i32| json!({ "path": "/m", "permissions": mode, "content": { "inline": { "data": "" } } });
    let runtime_file = "/provisioningConfig/supportedContainerRuntimes/1/files/-";
    for (pointer, value, expected) in [
        (
            runtime_file,
            a_file("/opt/bin/setup"),
            "spec.provisioningConfig.supportedContainerRuntimes[1].files[1].path: an earlier file \
             has the path /opt/bin/setup, too",
        ),
        (
            "/bootstrapConfig/files/-",
            a_file("etc/x"),
            "spec.bootstrapConfig.files[1].path: the path is not absolute",
        ),
        (
            "/bootstrapConfig/files/-",
            mode(688),
            "spec.bootstrapConfig.files[1].permissions: 688 is not a mode such as 644 or 4755",
        ),
        (
            "/bootstrapConfig/files/-",
            mode(-1),
            "spec.bootstrapConfig.files[1].permissions: -1 is not a mode such as 644 or 4755",
        ),
        (
            "/supportedCloudProviders",
            json!([]),
            "spec.supportedCloudProviders: it is empty; nobody can use the profile",
        ),
        (
            "/version",
            json!("foov1.2.3"),
            "spec.version: `foo` precedes the version",
        ),
        (
            "/templateLanguage",
            json!("Jinja"),
            "spec.version: it lacks `+jinja`; where an older schema drops spec.templateLanguage, \
             the templates would be read as Go templates",
        ),
    ] {
        let texts: Vec<String> = warnings(&with(pointer, value))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(texts, [expected], "{pointer}");
    }
}

#[test]
fn every_refusal_has_a_unique_category() {
    let version = String::new();
    let field = String::new();
    let refusals = [
        ProfileRefused::Units(OperatingSystem::Rhel).category(),
        ProfileRefused::NoContent { field }.category(),
        ProfileRefused::Version { version }.category(),
        ProfileRefused::SameVersion.category(),
    ];
    assert_eq!(HashSet::from(refusals).len(), refusals.len());
    let (profile, name) = (String::new, String::new);
    let unsupported = [
        Unsupported::OperatingSystem {
            profile: profile(),
            name: name(),
        }
        .category(),
        Unsupported::CloudProvider {
            profile: profile(),
            name: name(),
        }
        .category(),
        Unsupported::ProvisioningUtility { name: name() }.category(),
    ];
    assert_eq!(HashSet::from(unsupported).len(), unsupported.len());
}

#[test]
fn an_overlay_without_cloud_providers_has_no_warning() {
    let overlay = OperatingSystemProfileSpec {
        extends: Some("base".to_owned()),
        supported_cloud_providers: Vec::new(),
        ..plain()
    };
    assert_eq!(warnings(&overlay), []);
}
