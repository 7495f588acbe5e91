//! Tests every rule of a merge, and every reason to refuse one.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::default_profiles::{DefaultProfile, default_profiles};
use osm_api::profile::TemplateLanguage;

type Spec = OperatingSystemProfileSpec;

fn spec(value: Value) -> Spec {
    serde_json::from_value(value).unwrap()
}

fn spec_of(profile: &DefaultProfile) -> Spec {
    let object: Value = serde_saphyr::from_str(profile.yaml).unwrap();
    spec(object["spec"].clone())
}

/// Creates a profile with these two halves.
fn a_base(halves: Value) -> Spec {
    let mut profile = json!({
        "osName": "flatcar", "osVersion": "1", "version": "v1.0.0+jinja",
        "supportedCloudProviders": [{ "name": "aws" }], "provisioningUtility": "ignition",
    });
    merge(&mut profile, halves);
    spec(profile)
}

/// Creates an overlay of the profile `base`.
fn an_overlay(says: Value) -> Spec {
    let mut profile = json!({
        "extends": "base", "osName": "flatcar", "osVersion": "2", "version": "v2.0.0",
    });
    merge(&mut profile, says);
    spec(profile)
}

fn merge(into: &mut Value, from: Value) {
    let Value::Object(from) = from else { return };
    into.as_object_mut().unwrap().extend(from);
}

/// Returns the overlay `site`, merged among these profiles.
fn among(profiles: &[(&str, Spec)], overlay: &Spec) -> Result<Spec, OverlayError> {
    let known: BTreeMap<_, _> = profiles
        .iter()
        .map(|(name, spec)| (*name, Arc::new(spec.clone())))
        .collect();
    resolve("site", overlay, |name| known.get(name).cloned())
}

fn over(base: Value, overlay: Value) -> Spec {
    among(&[("base", a_base(base))], &an_overlay(overlay)).unwrap()
}

/// Returns the merged provisioning half as JSON.
fn half(base: &Value, overlay: &Value) -> Value {
    let merged = over(
        json!({ "provisioningConfig": base }),
        json!({ "provisioningConfig": overlay }),
    );
    serde_json::to_value(merged.provisioning_config).unwrap()
}

#[test]
fn effects_are_merged_by_path() {
    let effect = |path: &str, class: &str| json!({ "path": path, "class": class });
    let merged = over(
        json!({ "effects": [effect("/a", "Reload"), effect("/b", "Drain")] }),
        json!({ "effects": [effect("/a", "Reboot"), effect("/c", "None")] }),
    );
    let expected = [
        effect("/b", "Drain"),
        effect("/a", "Reboot"),
        effect("/c", "None"),
    ];
    assert_eq!(
        serde_json::to_value(merged.effects).unwrap(),
        json!(expected)
    );
}

fn file(path: &str, data: &str) -> Value {
    json!({ "path": path, "permissions": 644, "content": { "inline": { "data": data } } })
}

fn refused(overlay: Value) -> OverlayError {
    among(&[("base", a_base(json!({})))], &an_overlay(overlay)).unwrap_err()
}

#[test]
fn a_profile_that_extends_none_stays_as_it_is() {
    let mut profiles: Vec<_> = default_profiles().iter().map(spec_of).collect();
    profiles.push(a_base(json!({})));
    profiles.push(a_base(json!({ "provisioningConfig": {
        "files": [file("/a", "1"), file("/a", "2")],
        "supportedContainerRuntimes": [{ "name": "docker", "files": [file("/a", "3")] }],
    }})));
    for profile in profiles {
        let resolved = resolve("any", &profile, |_| panic!("nothing is asked for"));
        assert_eq!(resolved, Ok(profile));
    }
}

#[test]
fn an_empty_overlay_is_its_base_under_its_own_version() {
    let base = a_base(json!({
        "bootstrapConfig": { "files": [file("/b", "1")], "modules": { "runcmd": ["b"] } },
        "provisioningConfig": {
            "files": [file("/a", "1")], "templates": { "t": "1" },
            "units": [{ "name": "a.service", "content": "1" }],
            "supportedContainerRuntimes": [{ "name": "containerd", "files": [file("/c", "1")] }],
        },
    }));
    let merged = among(&[("base", base.clone())], &an_overlay(json!({}))).unwrap();
    let expected = Spec {
        os_version: "2".to_owned(),
        version: "v2.0.0".to_owned(),
        template_language: Some(TemplateLanguage::Jinja),
        ..base
    };
    assert_eq!(merged, expected);
}

#[test]
fn a_file_takes_the_place_of_the_one_with_its_path_and_a_new_one_comes_last() {
    let merged = half(
        &json!({ "files": [file("/a", "1"), file("/b", "1")] }),
        &json!({ "files": [file("/c", "2"), file("/a", "2")] }),
    );
    let expected = [file("/a", "2"), file("/b", "1"), file("/c", "2")];
    assert_eq!(merged, json!({ "files": expected }));
}

#[test]
fn a_file_takes_the_place_of_the_one_that_comes_with_containerd_and_the_reverse() {
    let runtime = |files: Value| json!([{ "name": "containerd", "files": files }]);
    let merged = half(
        &json!({ "supportedContainerRuntimes": runtime(json!([file("/c", "1")])) }),
        &json!({ "files": [file("/c", "2")] }),
    );
    let expected = json!({ "supportedContainerRuntimes": runtime(json!([file("/c", "2")])) });
    assert_eq!(merged, expected);

    let merged = half(
        &json!({ "files": [file("/c", "1")] }),
        &json!({ "supportedContainerRuntimes": runtime(json!([file("/c", "2"), file("/d", "2")])) }),
    );
    let expected = json!({
        "files": [file("/c", "2")],
        "supportedContainerRuntimes": runtime(json!([file("/d", "2")])),
    });
    assert_eq!(merged, expected);
}

#[test]
fn container_runtimes_are_merged_by_name_their_files_by_path_and_their_templates_by_name() {
    let runtime = |name: &str, files: Value, templates: Value| json!({ "name": name, "files": files, "templates": templates });
    let merged = half(
        &json!({
            "files": [file("/d", "1")],
            "supportedContainerRuntimes": [
                runtime("containerd", json!([file("/a", "1"), file("/b", "1")]),
                        json!({ "s": "1", "t": "1" })),
            ],
        }),
        &json!({ "supportedContainerRuntimes": [
            runtime("docker", json!([file("/d", "2")]), json!({ "u": "2" })),
            runtime("containerd", json!([file("/b", "2")]), json!({ "t": "2" })),
        ]}),
    );
    let expected = json!({
        "files": [file("/d", "1")],
        "supportedContainerRuntimes": [
            runtime("containerd", json!([file("/a", "1"), file("/b", "2")]),
                    json!({ "s": "1", "t": "2" })),
            runtime("docker", json!([file("/d", "2")]), json!({ "u": "2" })),
        ],
    });
    assert_eq!(merged, expected);
}

#[test]
fn templates_are_merged_by_name() {
    let merged = half(
        &json!({ "templates": { "before-packages": "", "t": "1" } }),
        &json!({ "templates": { "before-packages": "echo", "u": "2" } }),
    );
    let expected = json!({ "templates": { "before-packages": "echo", "t": "1", "u": "2" } });
    assert_eq!(merged, expected);
}

#[test]
fn of_a_unit_what_the_overlay_sets_replaces_and_drop_ins_are_merged_by_name() {
    let merged = half(
        &json!({ "units": [
            { "name": "a.service", "enable": true, "mask": false, "content": "1",
              "dropIns": [{ "name": "x", "content": "1" }, { "name": "y", "content": "1" }] },
            { "name": "b.service", "content": "1" },
        ]}),
        &json!({ "units": [
            { "name": "c.service", "content": "2" },
            { "name": "a.service", "enable": false,
              "dropIns": [{ "name": "z", "content": "2" }, { "name": "x", "content": "2" }] },
            { "name": "b.service", "mask": true, "content": "2" },
        ]}),
    );
    let expected = json!({ "units": [
        { "name": "a.service", "enable": false, "mask": false, "content": "1",
          "dropIns": [{ "name": "x", "content": "2" }, { "name": "y", "content": "1" },
                      { "name": "z", "content": "2" }] },
        { "name": "b.service", "mask": true, "content": "2" },
        { "name": "c.service", "content": "2" },
    ]});
    assert_eq!(merged, expected);
}

#[test]
fn commands_come_after_those_of_the_base_and_maps_of_modules_are_merged_by_key() {
    let merged = half(
        &json!({ "modules": {
            "bootcmd": ["a"], "runcmd": ["b"], "rh_subscription": { "k": "1", "l": "1" },
            "yum_repos": { "r": { "baseurl": "1", "gpgcheck": "1" } }, "yum_repo_dir": "/1",
        }}),
        &json!({ "modules": {
            "bootcmd": ["c"], "runcmd": ["d"], "rh_subscription": { "l": "2" },
            "yum_repos": { "r": { "baseurl": "2" }, "s": { "baseurl": "2" } },
            "yum_repo_dir": "/2",
        }}),
    );
    let expected = json!({ "modules": {
        "bootcmd": ["a", "c"], "runcmd": ["b", "d"], "rh_subscription": { "k": "1", "l": "2" },
        "yum_repos": { "r": { "baseurl": "2", "gpgcheck": "1" }, "s": { "baseurl": "2" } },
        "yum_repo_dir": "/2",
    }});
    assert_eq!(merged, expected);
    let kept = half(
        &json!({ "modules": { "yum_repo_dir": "/1" } }),
        &json!({ "modules": {} }),
    );
    assert_eq!(kept, json!({ "modules": { "yum_repo_dir": "/1" } }));
}

#[test]
fn cloud_providers_are_replaced_where_the_overlay_names_any() {
    let providers = |says: Value| {
        let named = over(json!({}), says).supported_cloud_providers;
        named
            .iter()
            .map(|provider| provider.name.as_str().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(providers(json!({})), ["aws"]);
    assert_eq!(providers(json!({ "supportedCloudProviders": [] })), ["aws"]);
    let azure = json!({ "supportedCloudProviders": [{ "name": "azure" }] });
    assert_eq!(providers(azure), ["azure"]);
}

#[test]
fn the_utility_that_the_api_server_fills_in_is_no_choice() {
    let utility = |base: &str, says: Value| {
        over(json!({ "provisioningUtility": base }), says)
            .provisioning_utility
            .map(ProvisioningUtility::as_str)
    };
    assert_eq!(utility("ignition", json!({})), Some("ignition"));
    let filled_in = json!({ "provisioningUtility": "cloud-init" });
    assert_eq!(utility("ignition", filled_in), Some("ignition"));
    let chosen = json!({ "provisioningUtility": "ignition" });
    assert_eq!(utility("cloud-init", chosen), Some("ignition"));
}

#[test]
fn the_language_is_the_base_s() {
    for (base, says, expected) in [
        (json!({}), json!({}), "Jinja"),
        (json!({}), json!({ "version": "v2.0.0+jinja" }), "Jinja"),
        (json!({}), json!({ "templateLanguage": "Jinja" }), "Jinja"),
        (json!({ "version": "v1.0.0" }), json!({}), "GoTemplate"),
        (
            json!({ "version": "v1.0.0" }),
            json!({ "templateLanguage": "GoTemplate" }),
            "GoTemplate",
        ),
    ] {
        assert_eq!(over(base, says).language().as_str(), expected);
    }
}

#[test]
fn another_operating_system_or_language_is_refused_with_profile_field_and_fix() {
    assert_eq!(
        refused(json!({ "osName": "ubuntu" })).to_string(),
        "OperatingSystemProfile \"site\", spec.osName: it is ubuntu, and that of \"base\", which \
         it extends, is flatcar; say flatcar, or extend another"
    );
    assert_eq!(
        refused(json!({ "templateLanguage": "GoTemplate" })).to_string(),
        "OperatingSystemProfile \"site\", spec.templateLanguage: it is GoTemplate, and that of \
         \"base\", which it extends, is Jinja; leave it out, and +jinja in spec.version, or \
         extend another"
    );
    let by_version = among(
        &[("base", a_base(json!({ "version": "v1.0.0" })))],
        &an_overlay(json!({ "version": "v2.0.0+jinja" })),
    );
    let by_version = by_version.unwrap_err();
    assert_eq!(by_version.category(), "overlay-language");
}

#[test]
fn a_missing_base_is_reported_with_the_profile_that_names_it() {
    let middle = an_overlay(json!({ "extends": "gone" }));
    let error = among(&[("base", middle)], &an_overlay(json!({}))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "OperatingSystemProfile \"base\", spec.extends: there is no OperatingSystemProfile \
         \"gone\" in its namespace; create it, or name another"
    );
}

#[test]
fn a_cycle_is_refused_wherever_it_closes() {
    let overlay = |base: &str| an_overlay(json!({ "extends": base }));
    for (profiles, closes) in [
        (vec![], ("site", "site")),
        (vec![("base", overlay("site"))], ("base", "site")),
        (vec![("base", overlay("base"))], ("base", "base")),
        (
            vec![("base", overlay("two")), ("two", overlay("base"))],
            ("two", "base"),
        ),
    ] {
        let top = overlay(if profiles.is_empty() { "site" } else { "base" });
        let error = among(&profiles, &top).unwrap_err();
        let (profile, base) = closes;
        let expected = OverlayError::Cycle {
            profile: profile.to_owned(),
            base: base.to_owned(),
        };
        assert_eq!(error, expected);
    }
}

#[test]
fn overlays_lie_upon_each_other_up_to_the_limit() {
    let chain_of = |overlays: usize| {
        let mut profiles = vec![("p0".to_owned(), a_base(json!({})))];
        for index in 1..=overlays {
            let says = json!({
                "extends": format!("p{}", index - 1), "version": format!("v{index}.0.0"),
                "provisioningConfig": {
                    "templates": { format!("t{index}"): "", "last": index.to_string() },
                },
            });
            profiles.push((format!("p{index}"), an_overlay(says)));
        }
        let (name, top) = profiles.pop().unwrap();
        let known: BTreeMap<_, _> = profiles.into_iter().collect();
        resolve(&name, &top, |name| known.get(name).cloned().map(Arc::new))
    };
    let merged = chain_of(OVERLAYS_MAX).unwrap();
    assert_eq!(merged.provisioning_config.templates.len(), OVERLAYS_MAX + 1);
    assert_eq!(
        merged.provisioning_config.templates["last"],
        OVERLAYS_MAX.to_string()
    );
    assert_eq!(merged.version, format!("v{OVERLAYS_MAX}.0.0"));
    let error = chain_of(OVERLAYS_MAX + 1).unwrap_err();
    let profile = format!("p{}", OVERLAYS_MAX + 1);
    assert_eq!(error, OverlayError::TooDeep { profile });
}

#[test]
fn an_overlay_of_the_default_profile_that_sets_one_template_renders() {
    use crate::template::CompiledProfile;
    let default = spec_of(&default_profiles()[0]);
    let overlay = spec(json!({
        "extends": "base", "osName": default.os_name, "osVersion": "24.04",
        "version": "v9.0.0",
        "provisioningConfig": { "templates": { "before-packages": "echo hello" } },
    }));
    let merged = among(&[("base", default)], &overlay).unwrap();
    assert!(CompiledProfile::compile(&merged).is_ok());
}
