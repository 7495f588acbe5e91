//! Tests of whole renders.

use std::collections::BTreeMap;

use serde_json::json;

use super::{
    fixtures::{a_file, a_profile, a_runtime, a_world, data},
    input::RegistryCredential,
    *,
};
use osm_api::profile::{
    CloudInitModules, FileContent, OperatingSystem, ProvisioningUtility, TemplateLanguage,
};
use osm_tenant::secret_text::SecretText;

mod accounting;
mod containerd;
mod convert;
mod documents;
mod encodings;
mod errors;
mod go_fields;
mod go_templates;
mod hostile;
mod hostile_go;
mod injection;
mod inputs;
mod templates;

fn debug(rendered: &Rendered) -> String {
    serde_json::to_string(&rendered.stored_config).unwrap()
}

#[test]
fn two_renders_of_one_input_are_equal_to_the_byte() {
    let mut world = a_world();
    world.profile.bootstrap_config.files = vec![
        a_file(
            "/a",
            "{{ variables|tojson }}{% for k, v in KubeletFeatureGates|items %}{{ k }}={{ v }},{% endfor %}",
        ),
        a_file("/b", "{{ ContainerRuntimeConfig }}{{ Token }}"),
    ];
    for (key, value) in [("z", "1"), ("a", "2"), ("m", "3")] {
        world
            .settings
            .variables
            .insert(key.to_owned(), value.to_owned());
        world
            .settings
            .registry_mirrors
            .insert(key.to_owned(), vec![value.to_owned()]);
    }
    for gate in ["NodeSwap", "ContextualLogging"] {
        let gates = &mut world.settings.kubelet_feature_gates;
        gates.insert(gate.to_owned(), true);
    }
    let first = world.render().unwrap();
    let second = world.render().unwrap();
    assert_eq!(first, second);
    assert_eq!(first.bootstrap.as_bytes(), second.bootstrap.as_bytes());
    assert_eq!(
        data(&first.config.bootstrap_config.files[0]),
        r#"{"a":"2","m":"3","z":"1"}ContextualLogging=true,NodeSwap=true,RotateKubeletServerCertificate=true,"#
    );
}

#[test]
fn the_stored_config_has_markers_in_place_of_secrets() {
    let mut world = a_world();
    world.profile.bootstrap_config.files = vec![
        a_file("/token", "{% if Token %}Bearer {{ Token }}{% endif %}"),
        a_file("/kubeconfig", "{{ BootstrapKubeconfig }}"),
        a_file("/containerd", "{{ ContainerRuntimeConfig }}"),
        a_file("/containerd2", "{{ ContainerRuntimeConfigV2 }}"),
        a_file("/cloud", "{{ CloudConfig }}"),
        a_file("/included", "{% include 'secret' %}"),
    ];
    world
        .profile
        .bootstrap_config
        .templates
        .insert("secret".to_owned(), "{{ Token|b64encode }}".to_owned());
    world.registry_credentials.insert(
        "gcr.io".to_owned(),
        RegistryCredential {
            username: SecretText::new("registry-user"),
            password: SecretText::new("registry-secret"),
            ..RegistryCredential::default()
        },
    );
    world.provider_spec["overwriteCloudConfig"] = json!("cloud-config-secret");
    let rendered = world.render().unwrap();

    let inline = serde_json::to_string(&rendered.config).unwrap();
    let stored = debug(&rendered);
    for secret in [
        "fetch-secret",
        "kubeconfig-secret",
        "registry-secret",
        "cloud-config-secret",
        "cloud-secret",
        "ZmV0Y2gtc2VjcmV0",
    ] {
        assert!(inline.contains(secret), "{secret} is missing in the config");
        assert!(!stored.contains(secret), "{secret} is stored");
    }
    assert!(stored.contains("Bearer <redacted: Token>"));
    assert!(stored.contains(r#"password = \"<redacted: password>\""#));
    assert_eq!(rendered.stored_config.cloud_provider.spec, None);
}

#[test]
fn the_stored_config_takes_the_branches_of_the_inline_one() {
    let mut world = a_world();
    world.fetch_token = SecretText::default();
    world.profile.bootstrap_config.files =
        vec![a_file("/f", "{% if Token %}a{% else %}b{% endif %}")];
    let rendered = world.render().unwrap();
    assert_eq!(data(&rendered.config.bootstrap_config.files[0]), "b");
    assert_eq!(data(&rendered.stored_config.bootstrap_config.files[0]), "b");
}

#[test]
fn a_red_hat_subscription_replaces_the_profiles_in_both_halves() {
    let mut world = a_world();
    world.profile.os_name = OperatingSystem::Rhel;
    world.profile.bootstrap_config.modules = Some(CloudInitModules {
        rh_subscription: BTreeMap::from([("username".to_owned(), "theirs".to_owned())]),
        ..CloudInitModules::default()
    });
    world.provider_spec = json!({
        "operatingSystem": "rhel",
        "cloudProvider": "openstack",
        "operatingSystemSpec": {
            "rhelSubscriptionManagerUser": "redhat-user",
            "rhelSubscriptionManagerPassword": "redhat-secret",
            "attachSubscription": true,
        },
    });
    world.profile.bootstrap_config.files = vec![a_file(
        "/f",
        "{{ RhelConfig.RHELSubscriptionManagerPassword }}",
    )];
    let rendered = world.render().unwrap();
    for half in [
        &rendered.config.bootstrap_config,
        &rendered.config.provisioning_config,
    ] {
        let subscription = &half.modules.as_ref().unwrap().rh_subscription;
        assert_eq!(
            serde_json::to_value(subscription).unwrap(),
            json!({"auto-attach": "true", "password": "redhat-secret", "username": "redhat-user"})
        );
    }
    let stored = debug(&rendered);
    assert!(
        !stored.contains("redhat-secret") && !stored.contains("redhat-user"),
        "{stored}"
    );
}

#[test]
fn a_subscriptions_key_without_a_value_is_written_for_go_templates_alone() {
    let mut world = a_world();
    world.profile.os_name = OperatingSystem::Rhel;
    let mut subscription = |language, spec: &str| {
        world.profile.template_language = Some(language);
        let spec: serde_json::Value = serde_json::from_str(spec).unwrap();
        world.provider_spec = json!({
            "operatingSystem": "rhel",
            "cloudProvider": "openstack",
            "operatingSystemSpec": spec,
        });
        let config = world.render().unwrap().config;
        let modules = config.bootstrap_config.modules.unwrap();
        serde_json::to_value(modules.rh_subscription).unwrap()
    };
    let satellite = r#"{"rhelUseSatelliteServer": true, "rhelSatelliteServer": "sat.example.com"}"#;
    assert_eq!(
        subscription(TemplateLanguage::GoTemplate, satellite),
        json!({
            "activation-key": "",
            "org": "",
            "rhsm-baseurl": "https://sat.example.com/pulp/repos",
            "server-hostname": "sat.example.com",
        })
    );
    assert_eq!(subscription(TemplateLanguage::Jinja, satellite), json!({}));
    assert_eq!(subscription(TemplateLanguage::Jinja, "{}"), json!({}));
    let user = r#"{"rhelSubscriptionManagerUser": "user"}"#;
    assert_eq!(
        subscription(TemplateLanguage::Jinja, user),
        json!({"auto-attach": "false", "username": "user"})
    );
    let organization = r#"{
        "rhelUseSatelliteServer": true, "rhelSatelliteServer": "sat.example.com",
        "rhelOrganizationName": "org", "rhelActivationKey": "key"
    }"#;
    assert_eq!(
        subscription(TemplateLanguage::Jinja, organization),
        json!({
            "activation-key": "key",
            "org": "org",
            "rhsm-baseurl": "https://sat.example.com/pulp/repos",
            "server-hostname": "sat.example.com",
        })
    );
}

#[test]
fn files_stand_in_order_and_hosts_files_follow_in_the_provisioning_half() {
    let mut world = a_world();
    world.profile.provisioning_config.files = vec![a_file("/own", "1")];
    world
        .profile
        .provisioning_config
        .supported_container_runtimes = vec![a_runtime(vec![a_file("/runtime", "2")])];
    world.profile.provisioning_config.files[0].permissions = 0;
    world
        .settings
        .registry_mirrors
        .insert("a.io".to_owned(), vec!["https://m".to_owned()]);
    let rendered = world.render().unwrap();
    let files: Vec<(&str, i32)> = rendered
        .config
        .provisioning_config
        .files
        .iter()
        .map(|file| (file.path.as_str(), file.permissions))
        .collect();
    assert_eq!(
        files,
        [
            ("/own", 644),
            ("/runtime", 644),
            ("/etc/containerd/certs.d/a.io/hosts.toml", 600),
            ("/etc/containerd/certs.d/docker.io/hosts.toml", 600),
        ]
    );
    assert!(rendered.config.bootstrap_config.files.is_empty());
}

#[test]
fn nothing_secret_is_printed_for_debugging() {
    let mut world = a_world();
    world.profile.bootstrap_config.files = vec![a_file("/f", "{{ Token }}")];
    let rendered = world.render().unwrap();
    assert!(format!("{:?}", rendered.bootstrap).starts_with("[redacted, "));
    let provider = input::ProviderConfig::decode(&world.provider_spec).unwrap();
    assert!(!format!("{provider:?}").contains("cloud-secret"));
}
