//! Values to start from, to be changed by field.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::ResourceExt;
use kube::api::ObjectMeta;
use osm::api::config::OperatingSystemConfig;
use osm::api::machine_deployment::MachineDeployment;
use osm::api::names::{FLEET_LABEL, PROFILE, REVISION, VIEW};
use osm::api::profile::OperatingSystemProfile;
use osm::fleet::sharding::observed_leases::LAST;
use serde_json::{Value, json};

/// The profile of [`a_profile`].
pub const PROFILE_NAME: &str = "little";

/// A value that is written as JSON.
fn of_json<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("the fixture is well formed")
}

/// A namespace.
pub fn a_namespace(name: &str) -> Namespace {
    of_json(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }))
}

/// What the last replica of a fleet leaves behind.
pub fn the_last_lease(fleet: &str) -> Lease {
    of_json(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": format!("{fleet}-last"), "labels": { FLEET_LABEL: fleet },
            "annotations": { VIEW: LAST },
        },
        "spec": { "holderIdentity": "", "leaseDurationSeconds": 15 },
    }))
}

/// A machine deployment in `kube-system` on Ubuntu and AWS that machine-controller has seen, with
/// the default profile.
pub fn a_machine_deployment(name: &str) -> MachineDeployment {
    of_json(json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {
            "name": name, "namespace": "kube-system",
            "annotations": { REVISION: "1" },
        },
        "spec": { "template": { "spec": {
            "providerSpec": { "value": {
                "sshPublicKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKm0 ops@example.com"],
                "cloudProvider": "aws",
                "cloudProviderSpec": { "region": "eu-central-1", "accessKeyId": CLOUD_CANARY },
                "operatingSystem": "ubuntu",
                "operatingSystemSpec": { "distUpgradeOnBoot": false },
            }},
            "versions": { "kubelet": "1.35.2" },
        }}},
    }))
}

/// A credential of the cloud in a machine deployment's provider spec.
pub const CLOUD_CANARY: &str = "c4n4ry-cloud-access-key";

/// As [`a_machine_deployment`], with the profile of [`a_profile`].
pub fn a_little_machine_deployment(name: &str) -> MachineDeployment {
    with_annotation(a_machine_deployment(name), (PROFILE, PROFILE_NAME))
}

/// With one more annotation.
pub fn with_annotation(
    mut machine_deployment: MachineDeployment,
    (key, value): (&str, &str),
) -> MachineDeployment {
    let annotations = machine_deployment.annotations_mut();
    annotations.insert(key.to_owned(), value.to_owned());
    machine_deployment
}

/// The cloud provider's name in its provider spec.
pub fn on_cloud(mut machine_deployment: MachineDeployment, name: &str) -> MachineDeployment {
    let provider_spec = &mut machine_deployment.spec.template.spec.provider_spec;
    let mut spec = provider_spec.json();
    if let Value::Object(spec) = &mut spec {
        spec.insert("cloudProvider".to_owned(), json!(name));
    }
    provider_spec.value = Some(spec.into());
    machine_deployment
}

/// A profile of few words, with every secret input in it.
pub fn a_profile(version: &str, text: &str) -> OperatingSystemProfile {
    let file = |path: &str, data: &str| {
        let content = json!({ "inline": { "data": data } });
        json!({ "path": path, "permissions": 600, "content": content })
    };
    of_json(json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemProfile",
        "metadata": { "name": PROFILE_NAME },
        "spec": {
            "osName": "ubuntu", "osVersion": "24.04", "version": version,
            "templateLanguage": "Jinja", "provisioningUtility": "cloud-init",
            "supportedCloudProviders": [{ "name": "aws" }, { "name": "openstack" }],
            "bootstrapConfig": { "files": [
                file("/opt/bin/bootstrap", "curl {{ ServerURL }} {{ Token }} {{ SecretName }}"),
            ]},
            "provisioningConfig": { "files": [
                file("/etc/text", text),
                file("/etc/kubeconfig", "{{ BootstrapKubeconfig }}"),
                file("/etc/containerd/config.toml", "{{ ContainerRuntimeConfig }}"),
            ]},
        },
    }))
}

/// A Secret that the token controller fills.
pub fn a_token_secret(name: &str, account: &str) -> Secret {
    of_json(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {
            "name": name,
            "annotations": { "kubernetes.io/service-account.name": account },
        },
    }))
}

/// A Secret with one value.
pub fn a_secret(name: &str, (key, value): (&str, &str)) -> Secret {
    of_json(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": name }, "stringData": { key: value },
    }))
}

/// A kubeconfig as our documentation shows it.
pub fn a_kubeconfig(server: &str, authority: &str, token: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: worker\nclusters:\n- name: worker\n  \
         cluster:\n    server: {server}\n    certificate-authority-data: {authority}\nusers:\n- \
         name: operating-system-manager\n  user:\n    token: {token}\ncontexts:\n- name: worker\n  \
         context:\n    cluster: worker\n    user: operating-system-manager\n"
    )
}

/// A metadata with a name only.
pub fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

/// Whether an object has an annotation with this value.
pub fn has_annotation(object: &impl ResourceExt, (key, value): (&str, &str)) -> bool {
    object.annotations().get(key).is_some_and(|it| it == value)
}

/// Whether a Secret has a value under the key.
pub fn has_data(secret: &Secret, key: &str) -> bool {
    let data = secret.data.as_ref();
    data.and_then(|data| data.get(key))
        .is_some_and(|value| !value.0.is_empty())
}

/// A value of a Secret, as text.
pub fn text(secret: &Secret, key: &str) -> String {
    let data = secret.data.as_ref();
    let value = data
        .and_then(|data| data.get(key))
        .map(|value| value.0.clone());
    String::from_utf8(value.unwrap_or_default()).expect("the value is text")
}

/// The annotations of an object that are contract with others.
pub fn stamp(annotations: &BTreeMap<String, String>) -> [String; 3] {
    [
        osm::api::names::MADE_FOR_REVISION,
        osm::api::names::MADE_FOR_ANNOTATIONS,
        osm::api::names::MADE_FOR_PROFILE_VERSION,
    ]
    .map(|key| annotations.get(key).cloned().unwrap_or_default())
}

/// A config as JSON, to be searched.
pub fn config_text(config: &OperatingSystemConfig) -> String {
    serde_json::to_string(config).expect("a config is plain values")
}
