//! The settings of a tenant that affect its rendered configuration: the fleet's defaults,
//! overridden by a WorkerCluster's spec. They are validated once, and passed by value.

mod credential_providers;
pub mod in_use;
mod taints;

use std::{borrow::Cow, collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use osm_api::worker_cluster::{
    DefaultProfileContent, ImageCredentialProvider, MachineRollout, MachineUpdates,
    NodeCredentials, ProfileRollout, StoredConfig, WorkerClusterSpec,
};

pub use self::in_use::{Input, masked};
use super::certificates;

/// The feature gate that every kubelet gets unless a setting says otherwise.
const ROTATE_SERVER_CERTIFICATE: &str = "RotateKubeletServerCertificate";

/// The settings of one tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantSettings {
    /// The cluster's DNS servers.
    pub cluster_dns: Vec<IpAddr>,
    /// True if the cloud provider's controllers run outside of Kubernetes' own.
    pub external_cloud_provider: bool,
    /// The HTTP proxy of the nodes.
    pub http_proxy: Option<String>,
    /// The hosts that nodes reach without a proxy.
    pub no_proxy: Option<String>,
    /// Certificates that the nodes trust in addition to those of their distribution, in PEM; may be
    /// empty.
    pub host_ca_bundle: String,
    /// The API server's certificate authority instead of the kubeconfig's, in PEM.
    pub kubernetes_ca_bundle: Option<String>,
    /// The sandbox image; may be empty.
    pub pause_image: String,
    /// The taints with which a kubelet registers its node; may be empty.
    pub initial_taints: String,
    /// The kubelet's feature gates.
    pub kubelet_feature_gates: BTreeMap<String, bool>,
    /// True if annotations of a machine deployment override the feature gates.
    pub kubelet_feature_gates_from_annotations: bool,
    /// Fields of the kubelet's configuration.
    #[serde(flatten)]
    pub kubelet: KubeletConfiguration,
    /// True if devices belong to the user of the container's security context.
    pub device_ownership_from_security_context: bool,
    /// Registries whose certificates are not verified.
    pub insecure_registries: Vec<String>,
    /// Mirrors by registry, in the order in which they are tried.
    pub registry_mirrors: BTreeMap<String, Vec<String>>,
    /// The order in which a registry's mirrors are written.
    pub mirror_order: MirrorOrder,
    /// Programs that a kubelet asks for credentials as it pulls images. Without any, they are not
    /// serialized, so that objects from before this setting existed stay current.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_credential_providers: Vec<ImageCredentialProvider>,
    /// The API server's URL for nodes, instead of the one that was found.
    pub api_server_override: Option<String>,
    /// Custom variables for templates.
    pub variables: BTreeMap<String, String>,
    /// The token with which machines fetch their documents. The token itself is an input of a
    /// render, but not this setting.
    #[serde(skip)]
    pub node_credentials: NodeCredentials,
    /// What machines do by themselves when they or their document change. The default is not
    /// serialized, so that objects from before this setting existed stay current.
    #[serde(default, skip_serializing_if = "is_default")]
    pub machine_updates: MachineUpdates,
    /// How secrets appear in a stored config. The default is not serialized, so that objects from
    /// before this setting existed stay current.
    #[serde(default, skip_serializing_if = "is_default")]
    pub stored_config: StoredConfig,
    /// The names of the default profiles to install; `None` for all. Not an input of a render.
    #[serde(skip)]
    pub default_profile_names: Option<Vec<String>>,
    /// What installed default profiles contain. Not an input of a render.
    #[serde(skip)]
    pub default_profile_content: DefaultProfileContent,
    /// When newer default profiles are installed. Not an input of a render.
    #[serde(skip)]
    pub profile_rollout: ProfileRollout,
    /// How outdated machines are replaced. Not an input of a render.
    #[serde(skip)]
    pub machine_rollout: MachineRollout,
}

impl TenantSettings {
    /// Returns the defaults of a tenant whose configs are in its worker cluster. They and the
    /// documents are as the program that osm replaces makes them there, and its profiles take no
    /// part in the fleet's rollouts.
    #[must_use]
    pub fn with_home_in_worker(&self) -> Self {
        Self {
            stored_config: StoredConfig::Inline,
            profile_rollout: ProfileRollout::Immediate,
            mirror_order: MirrorOrder::ByUrl,
            ..self.clone()
        }
    }

    /// Returns the settings with certificates compared by their content.
    pub fn by_meaning(&self) -> Cow<'_, Self> {
        let host = certificates::meaning(&self.host_ca_bundle);
        let kubernetes = self.kubernetes_ca_bundle.as_deref();
        let kubernetes = kubernetes.map(certificates::meaning);
        if matches!(
            (&host, &kubernetes),
            (Cow::Borrowed(_), None | Some(Cow::Borrowed(_)))
        ) {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self {
            host_ca_bundle: host.into_owned(),
            kubernetes_ca_bundle: kubernetes.map(Cow::into_owned),
            ..self.clone()
        })
    }
}

impl Default for TenantSettings {
    fn default() -> Self {
        Self {
            cluster_dns: vec![IpAddr::from([10, 10, 10, 10])],
            external_cloud_provider: false,
            http_proxy: None,
            no_proxy: Some(".svc,.cluster.local,localhost,127.0.0.1".to_owned()),
            host_ca_bundle: String::new(),
            kubernetes_ca_bundle: None,
            pause_image: String::new(),
            initial_taints: String::new(),
            kubelet_feature_gates: BTreeMap::from([(ROTATE_SERVER_CERTIFICATE.to_owned(), true)]),
            kubelet_feature_gates_from_annotations: false,
            kubelet: KubeletConfiguration::default(),
            device_ownership_from_security_context: false,
            insecure_registries: Vec::new(),
            registry_mirrors: BTreeMap::new(),
            mirror_order: MirrorOrder::default(),
            image_credential_providers: Vec::new(),
            api_server_override: None,
            variables: BTreeMap::new(),
            node_credentials: NodeCredentials::default(),
            machine_updates: MachineUpdates::default(),
            stored_config: StoredConfig::default(),
            default_profile_names: None,
            default_profile_content: DefaultProfileContent::default(),
            profile_rollout: ProfileRollout::default(),
            machine_rollout: MachineRollout::default(),
        }
    }
}

/// Fields of the kubelet's configuration. What is not set is not serialized, so that objects from
/// before these settings existed stay current.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeletConfiguration {
    /// The fields, which the kubelet reads after those of the profile.
    #[serde(
        default,
        rename = "kubelet_configuration",
        skip_serializing_if = "Map::is_empty"
    )]
    pub fields: Map<String, Value>,
    /// True if an annotation of a machine deployment sets such fields, too.
    #[serde(
        default,
        rename = "kubelet_configuration_from_annotations",
        skip_serializing_if = "is_default"
    )]
    pub from_annotations: bool,
}

impl KubeletConfiguration {
    fn with(self, spec: &WorkerClusterSpec) -> Self {
        let from_annotations = spec.kubelet_configuration_from_annotations;
        let mut fields = spec.kubelet_configuration.clone().unwrap_or(self.fields);
        // Their order is no change of the settings.
        fields.sort_keys();
        fields.values_mut().for_each(Value::sort_all_objects);
        Self {
            fields,
            from_annotations: from_annotations.unwrap_or(self.from_annotations),
        }
    }
}

/// The order in which the mirrors of one registry are written, and therefore tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MirrorOrder {
    /// The order in the setting.
    #[default]
    AsListed,
    /// By URL, as the single-cluster program has always written them.
    ByUrl,
}

/// The error for an invalid setting.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum SettingsError {
    /// An entry of `spec.clusterDNS` is not an IP address.
    #[error("spec.clusterDNS: `{0}` is not an IP address")]
    ClusterDns(String),
    /// `spec.apiServerOverride` is not an https URL.
    #[error("spec.apiServerOverride: `{0}` must be a URL that starts with https://")]
    ApiServerOverride(String),
    /// No kubelet takes `spec.initialTaints`.
    #[error("spec.initialTaints: {0}")]
    InitialTaints(String),
    /// No kubelet takes an entry of `spec.imageCredentialProviders`.
    #[error("spec.imageCredentialProviders, {0}")]
    ImageCredentialProviders(String),
}

impl TenantSettings {
    /// Overrides the fleet's defaults with a WorkerCluster's spec.
    ///
    /// # Errors
    ///
    /// A setting is invalid.
    pub fn with(&self, spec: &WorkerClusterSpec) -> Result<Self, SettingsError> {
        let defaults = self.clone();
        Ok(Self {
            cluster_dns: match &spec.cluster_dns {
                Some(servers) => parse_addresses(servers)?,
                None => defaults.cluster_dns,
            },
            external_cloud_provider: spec
                .external_cloud_provider
                .unwrap_or(defaults.external_cloud_provider),
            http_proxy: chosen(spec.http_proxy.as_ref(), defaults.http_proxy),
            no_proxy: chosen(spec.no_proxy.as_ref(), defaults.no_proxy),
            host_ca_bundle: own(spec.host_ca_bundle.as_ref(), defaults.host_ca_bundle),
            kubernetes_ca_bundle: chosen(
                spec.kubernetes_ca_bundle.as_ref(),
                defaults.kubernetes_ca_bundle,
            ),
            pause_image: own(spec.pause_image.as_ref(), defaults.pause_image),
            initial_taints: checked_taints(spec)?.unwrap_or(defaults.initial_taints),
            kubelet_feature_gates: match &spec.kubelet_feature_gates {
                Some(gates) => with_server_certificates(gates),
                None => defaults.kubelet_feature_gates,
            },
            kubelet_feature_gates_from_annotations: spec
                .kubelet_feature_gates_from_annotations
                .unwrap_or(defaults.kubelet_feature_gates_from_annotations),
            kubelet: defaults.kubelet.with(spec),
            device_ownership_from_security_context: spec
                .device_ownership_from_security_context
                .unwrap_or(defaults.device_ownership_from_security_context),
            insecure_registries: own(
                spec.insecure_registries.as_ref(),
                defaults.insecure_registries,
            ),
            registry_mirrors: own(spec.registry_mirrors.as_ref(), defaults.registry_mirrors),
            mirror_order: defaults.mirror_order,
            image_credential_providers: credential_providers::checked(spec)?
                .unwrap_or(defaults.image_credential_providers),
            api_server_override: match &spec.api_server_override {
                Some(url) if !url.is_empty() && !url.starts_with("https://") => {
                    return Err(SettingsError::ApiServerOverride(url.clone()));
                }
                url => chosen(url.as_ref(), defaults.api_server_override),
            },
            variables: defaults
                .variables
                .into_iter()
                .chain(spec.variables.clone())
                .collect(),
            node_credentials: spec.node_credentials.unwrap_or(defaults.node_credentials),
            machine_updates: spec.machine_updates.unwrap_or(defaults.machine_updates),
            stored_config: spec.stored_config.unwrap_or(defaults.stored_config),
            default_profile_names: spec
                .default_profile_names
                .clone()
                .or(defaults.default_profile_names),
            default_profile_content: spec
                .default_profile_content
                .unwrap_or(defaults.default_profile_content),
            profile_rollout: spec
                .rollout
                .and_then(|rollout| rollout.default_profiles)
                .unwrap_or(defaults.profile_rollout),
            machine_rollout: spec
                .rollout
                .and_then(|rollout| rollout.machines)
                .map_or(defaults.machine_rollout, |own| {
                    own.or_classes_of(defaults.machine_rollout)
                }),
        })
    }
}

fn own<T: Clone>(own: Option<&T>, default: T) -> T {
    own.cloned().unwrap_or(default)
}

fn is_default<T: Default + PartialEq>(setting: &T) -> bool {
    *setting == T::default()
}

fn checked_taints(spec: &WorkerClusterSpec) -> Result<Option<String>, SettingsError> {
    let Some(given) = &spec.initial_taints else {
        return Ok(None);
    };
    taints::check(given).map_err(SettingsError::InitialTaints)?;
    Ok(Some(given.clone()))
}

/// Returns the operator's text, or else the default. An empty text removes the default.
fn chosen(text: Option<&String>, default: Option<String>) -> Option<String> {
    match text {
        Some(text) if text.is_empty() => None,
        Some(text) => Some(text.clone()),
        None => default,
    }
}

fn parse_addresses(servers: &[String]) -> Result<Vec<IpAddr>, SettingsError> {
    servers
        .iter()
        .map(|text| {
            text.parse()
                .map_err(|_| SettingsError::ClusterDns(text.clone()))
        })
        .collect()
}

fn with_server_certificates(gates: &BTreeMap<String, bool>) -> BTreeMap<String, bool> {
    let mut gates = gates.clone();
    gates
        .entry(ROTATE_SERVER_CERTIFICATE.to_owned())
        .or_insert(true);
    gates
}

#[cfg(test)]
mod tests {
    use super::*;
    use osm_api::worker_cluster::{MachineReplacement, Rollout};

    /// Objects of tenants that opt in to nothing must not be rendered again when a release adds an
    /// option.
    #[test]
    fn taints_that_no_kubelet_takes_are_refused_whichever_way_settings_come() {
        let spec = r#"{"kubeconfigSecretRef": {"name": "a"}, "initialTaints": "a:NoSchedule-"}"#;
        let spec = serde_json::from_str(spec).unwrap();
        let refused = TenantSettings::default().with(&spec).unwrap_err();
        assert!(
            matches!(refused, SettingsError::InitialTaints(_)),
            "{refused}"
        );
    }

    #[test]
    fn programs_for_credentials_that_no_kubelet_takes_are_refused_whichever_way_settings_come() {
        let refused = |providers: serde_json::Value| {
            let spec = serde_json::json!({
                "kubeconfigSecretRef": {"name": "a"}, "imageCredentialProviders": providers,
            });
            let spec = serde_json::from_value(spec).unwrap();
            let refused = TenantSettings::default().with(&spec).err();
            refused.map(|why| why.to_string()).unwrap_or_default()
        };
        let provider = |required: &[&str], optional: &[&str], needs_account: bool| {
            let binary = serde_json::json!({"url": "https://a", "sha256": ""});
            serde_json::json!({
                "name": "ecr", "binaries": {"arm64": binary}, "matchImages": [], "defaultCacheDuration": "0",
                "tokenAttributes": {
                    "serviceAccountTokenAudience": "a", "cacheType": "Token",
                    "requireServiceAccount": needs_account,
                    "requiredServiceAccountAnnotationKeys": required,
                    "optionalServiceAccountAnnotationKeys": optional,
                },
            })
        };
        let sound = provider(&["a"], &["b"], true);
        assert_eq!(refused([&sound].into_iter().cloned().collect()), "");
        assert_eq!(
            refused([&sound, &sound].into_iter().cloned().collect()),
            "spec.imageCredentialProviders, `ecr`: another one has its name"
        );
        let mut without = sound.clone();
        without["binaries"] = serde_json::json!({"amd64": null});
        assert!(refused([without].into_iter().collect()).ends_with("it has no binary"));
        for wrong in [
            provider(&["a", "a"], &[], true),
            provider(&[&format!("{}/a", "b".repeat(254))], &[], true),
        ] {
            let why = refused([wrong].into_iter().collect());
            assert!(why.contains("a key of annotations"), "{why}");
        }
        for wrong in [
            provider(&["a"], &["a"], true),
            provider(&["a"], &["b"], false),
        ] {
            let why = refused([wrong].into_iter().collect());
            assert!(why.contains("need requireServiceAccount"), "{why}");
        }
        assert_eq!(
            refused([provider(&[], &["b"], false)].into_iter().collect()),
            ""
        );
    }

    #[test]
    fn the_order_of_the_kubelets_fields_is_no_change_of_the_settings() {
        let settings = |fields: &str| {
            let spec = format!(
                r#"{{"kubeconfigSecretRef": {{"name": "a"}}, "kubeletConfiguration": {fields}}}"#
            );
            let spec = serde_json::from_str(&spec).unwrap();
            serde_json::to_string(&TenantSettings::default().with(&spec).unwrap()).unwrap()
        };
        let one = settings(r#"{"logging": {"format": "json", "verbosity": 1}, "a": 1}"#);
        let other = settings(r#"{"a": 1, "logging": {"verbosity": 1, "format": "json"}}"#);
        assert_eq!(one, other);
    }

    #[test]
    fn what_a_tenant_does_not_ask_for_is_no_input_of_its_render() {
        let written = serde_json::to_string(&TenantSettings::default()).unwrap();
        assert_eq!(
            written,
            r#"{"cluster_dns":["10.10.10.10"],"external_cloud_provider":false,"http_proxy":null,"no_proxy":".svc,.cluster.local,localhost,127.0.0.1","host_ca_bundle":"","kubernetes_ca_bundle":null,"pause_image":"","initial_taints":"","kubelet_feature_gates":{"RotateKubeletServerCertificate":true},"kubelet_feature_gates_from_annotations":false,"device_ownership_from_security_context":false,"insecure_registries":[],"registry_mirrors":{},"mirror_order":"AsListed","api_server_override":null,"variables":{}}"#
        );
        let spec = |json: &str| serde_json::from_str::<WorkerClusterSpec>(json).unwrap();
        let inline = spec(r#"{"kubeconfigSecretRef":{"name":"a"},"storedConfig":"Inline"}"#);
        let inline = TenantSettings::default().with(&inline).unwrap();
        assert!(serde_json::to_string(&inline).unwrap().contains("Inline"));
        let own =
            r#"{"kubeconfigSecretRef":{"name":"a"},"nodeCredentials":"PerMachineDeployment"}"#;
        let own = TenantSettings::default().with(&spec(own)).unwrap();
        assert_eq!(own.node_credentials, NodeCredentials::PerMachineDeployment);
        // The token is an input, but not the setting.
        assert_eq!(serde_json::to_string(&own).unwrap(), written);
    }

    #[test]
    fn how_profiles_are_installed_is_no_input_of_a_render() {
        let before = TenantSettings::default();
        let spec = WorkerClusterSpec {
            default_profile_names: Some(vec!["osp-ubuntu".to_owned()]),
            default_profile_content: Some(DefaultProfileContent::Whole),
            rollout: Some(Rollout {
                default_profiles: Some(ProfileRollout::Manual),
                machines: Some(MachineRollout {
                    replace: MachineReplacement::WhenOutdated,
                    max_concurrent: 2,
                    ..MachineRollout::default()
                }),
            }),
            ..WorkerClusterSpec::default()
        };
        let after = before.with(&spec).unwrap();
        assert_ne!(before.profile_rollout, after.profile_rollout);
        assert_ne!(before.machine_rollout, after.machine_rollout);
        let inputs = [&before, &after].map(|it| serde_json::to_value(it).unwrap());
        assert_eq!(inputs[0], inputs[1]);
    }
}
