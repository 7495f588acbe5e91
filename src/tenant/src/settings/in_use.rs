//! The settings that are in use for a tenant, without secrets, and where each comes from.

use serde::Serialize;
use serde_json::{Value, json};

use super::TenantSettings;
use osm_api::worker_cluster::WorkerClusterSpec;

/// An input of documents, as it is shown to operators.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Input {
    /// Its name; of a setting, the field in a WorkerCluster's spec.
    pub name: &'static str,
    /// The value, without secrets.
    pub value: Value,
    /// Where it comes from.
    pub from: &'static str,
}

/// Settings by their names in a WorkerCluster's spec and in the tenant's settings.
pub const SETTINGS: [(&str, &str); 19] = [
    ("clusterDNS", "cluster_dns"),
    ("externalCloudProvider", "external_cloud_provider"),
    ("httpProxy", "http_proxy"),
    ("noProxy", "no_proxy"),
    ("hostCABundle", "host_ca_bundle"),
    ("kubernetesCABundle", "kubernetes_ca_bundle"),
    ("pauseImage", "pause_image"),
    ("initialTaints", "initial_taints"),
    ("kubeletFeatureGates", "kubelet_feature_gates"),
    (
        "kubeletFeatureGatesFromAnnotations",
        "kubelet_feature_gates_from_annotations",
    ),
    ("kubeletConfiguration", "kubelet_configuration"),
    (
        "kubeletConfigurationFromAnnotations",
        "kubelet_configuration_from_annotations",
    ),
    (
        "deviceOwnershipFromSecurityContext",
        "device_ownership_from_security_context",
    ),
    ("insecureRegistries", "insecure_registries"),
    ("registryMirrors", "registry_mirrors"),
    ("imageCredentialProviders", "image_credential_providers"),
    ("machineUpdates", "machine_updates"),
    ("apiServerOverride", "api_server_override"),
    ("variables", "variables"),
];

impl TenantSettings {
    /// Returns these settings of a tenant with the place where each was set: its WorkerCluster, the
    /// fleet's defaults or this program.
    pub fn in_use(&self, spec: Option<&WorkerClusterSpec>, defaults: &Self) -> Vec<Input> {
        let as_json = |settings: &Self| serde_json::to_value(settings).unwrap_or_default();
        let (effective, fleet) = (as_json(self), as_json(defaults));
        let built_in = as_json(&Self::default());
        let spec = spec.and_then(|spec| serde_json::to_value(spec).ok());
        let spec = spec.unwrap_or_default();
        let setting = |(name, key): (&'static str, &'static str)| Input {
            name,
            value: shown(name, effective.get(key).unwrap_or(&Value::Null)),
            from: if spec.get(name).is_some() {
                "the WorkerCluster"
            } else if fleet.get(key) == built_in.get(key) {
                "built in"
            } else {
                "--tenant-defaults"
            },
        };
        SETTINGS.into_iter().map(setting).collect()
    }
}

/// Returns a value without secrets: only the names of variables, fields and programs, the size of
/// certificates, and no passwords of proxies.
fn shown(name: &str, value: &Value) -> Value {
    match (name, value) {
        ("variables" | "kubeletConfiguration", Value::Object(entries)) => {
            json!(entries.keys().collect::<Vec<_>>())
        }
        ("imageCredentialProviders", Value::Array(providers)) => {
            let names = providers.iter().filter_map(|it| it.get("name"));
            names.cloned().collect()
        }
        ("hostCABundle" | "kubernetesCABundle", Value::String(pem)) if !pem.is_empty() => {
            json!(format!("{} bytes", pem.len()))
        }
        (_, value) => masked(value),
    }
}

/// Removes `user:password@` from every URL.
pub fn masked(value: &Value) -> Value {
    match value {
        Value::String(text) => json!(without_user(text)),
        Value::Array(all) => all.iter().map(masked).collect(),
        Value::Object(all) => {
            let masked = all
                .iter()
                .map(|(key, value)| (without_user(key), masked(value)));
            Value::Object(masked.collect())
        }
        other => other.clone(),
    }
}

fn without_user(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), text),
    };
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}…@{host}{path}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::KubeletConfiguration, *};
    use osm_api::worker_cluster::{ImageCredentialProvider, MachineUpdates};

    #[test]
    fn what_may_be_secret_is_not_shown() {
        let proxy = json!("http://user:hunter2@proxy.example:3128");
        assert_eq!(
            shown("httpProxy", &proxy),
            json!("http://…@proxy.example:3128")
        );
        let bare = json!("user:hunter2@proxy.example");
        assert_eq!(shown("httpProxy", &bare), json!("…@proxy.example"));
        let mirrors = json!({ "docker.io": ["https://robot:key@mirror.example/a@b"] });
        let reported = json!({ "docker.io": ["https://…@mirror.example/a@b"] });
        assert_eq!(shown("registryMirrors", &mirrors), reported);
        assert_eq!(shown("variables", &json!({ "site": "x" })), json!(["site"]));
        let program = json!([{ "name": "ecr", "env": [{ "name": "KEY", "value": "hunter2" }] }]);
        assert_eq!(shown("imageCredentialProviders", &program), json!(["ecr"]));
        assert_eq!(shown("hostCABundle", &json!("PEM")), json!("3 bytes"));
    }

    #[test]
    fn every_setting_of_a_tenant_has_its_name_in_the_spec() {
        let settings = TenantSettings {
            // Without a value, these are not there.
            kubelet: KubeletConfiguration {
                fields: [("a".to_owned(), json!(1))].into_iter().collect(),
                from_annotations: true,
            },
            image_credential_providers: vec![ImageCredentialProvider::default()],
            machine_updates: MachineUpdates::Reload,
            ..TenantSettings::default()
        };
        let settings = serde_json::to_value(settings).unwrap();
        let known: Vec<&str> = SETTINGS.iter().map(|(_, key)| *key).collect();
        for key in settings.as_object().unwrap().keys() {
            // A WorkerCluster cannot set the order.
            assert!(
                known.contains(&key.as_str()) || key == "mirror_order",
                "{key}"
            );
        }
        for key in known {
            assert!(settings.get(key).is_some(), "{key}");
        }
    }
}
