//! The data that templates can read: one variable per fact, with the names that existing profiles
//! use.
//!
//! | variable | value |
//! |---|---|
//! | `KubeVersion`, `KubernetesCACert`, `HostCACert`, `ServerURL`, `SecretName`, … | text |
//! | `HTTPProxy`, `NoProxy`, `NetworkConfig`, `MaxPods`, `KubeReserved`, … | a value, or `none` |
//! | `ClusterDNSIPs`, `NetworkConfig.DNS.Servers` | lists of text |
//! | `KubeletFeatureGates`, `KubeReserved`, `variables`, … | maps, in the order of their keys |
//!
//! There are two views of the data. Documents are rendered from the first. The second has a marker
//! in place of each secret, for the stored config. There is a marker only where there is a secret,
//! so that templates take the same branches in both.

use std::collections::BTreeMap;

use minijinja::Value;

use super::{
    cloud_config, containerd,
    duration::GoDuration,
    error::RenderError,
    input::{Network, OperatingSystemSpec, RegistryCredential, RenderInput, RhelSpec},
    kubelet::{
        KubeletSettings, credential_providers, drop_in::drop_ins, feature_gates, kubelet_version,
    },
    no_proxy::is_direct,
    template::BOOTSTRAP_KUBECONFIG,
};
use osm_api::{
    names::DerivedNames,
    profile::{CloudProvider, OperatingSystem},
};
use osm_tenant::{certificates::separated, secret_text::SecretText, settings::TenantSettings};

/// The variable with the token to fetch documents with: the machine deployment's own, or the
/// fetcher's.
pub(super) const FETCH_TOKEN: &str = "fetch_token";
const SERVER_IS_DIRECT: &str = "server_is_direct";
const KUBELET_DROP_INS: &str = "kubelet_drop_ins";
const IMAGE_CREDENTIAL_PROVIDERS: &str = "image_credential_providers";

/// Variables that exist for old profiles, and are always empty.
const ALWAYS_EMPTY: [&str; 5] = [
    "ContainerRuntimeAuthConfig",
    "KubeletConfiguration",
    "KubeletSystemdUnit",
    "CNIVersion",
    "ServerAddress",
];

/// The validated input, with everything that is derived from it.
pub(super) struct ValidInput<'a> {
    pub(super) input: RenderInput<'a>,
    pub(super) operating_system: OperatingSystem,
    pub(super) cloud_provider: CloudProvider,
    kubelet: KubeletSettings,
    feature_gates: BTreeMap<String, bool>,
    /// The drop-ins of the kubelet's configuration, by path.
    pub(super) drop_ins: BTreeMap<String, String>,
    /// The path and the text of what tells the kubelet its image credential providers.
    pub(super) image_credential_providers: Option<(String, String)>,
    kube_version: String,
    /// The cloud provider's configuration file, if the machine deployment does not contain one.
    legacy_cloud_config: String,
    pub(super) names: DerivedNames,
}

/// The variables, and those that differ in the stored config.
pub(super) struct TemplateData {
    /// The variables from which documents are rendered.
    pub(super) inline: BTreeMap<&'static str, Value>,
    /// The variables with a secret, with a marker in its place.
    pub(super) marked: BTreeMap<&'static str, Value>,
}

impl<'a> ValidInput<'a> {
    /// Validates the input, in the order in which users know the errors.
    pub(super) fn new(input: RenderInput<'a>) -> Result<Self, RenderError> {
        let machine_deployment = input.machine_deployment;
        let provider = machine_deployment.provider;
        let kubelet = KubeletSettings::parse(machine_deployment.annotations)?;
        let version = machine_deployment.kubelet_version;
        let feature_gates = feature_gates(machine_deployment.annotations, input.settings, version)?;
        let kube_version = kubelet_version(version)?;
        let drop_ins = drop_ins(
            machine_deployment.annotations,
            input.settings,
            &kube_version,
        )?;
        let image_credential_providers =
            credential_providers::config(input.settings, &feature_gates, &kube_version)?;
        let is_static = provider.network.as_ref().is_some_and(Network::is_static);
        if is_static && provider.operating_system != OperatingSystem::Flatcar.as_str() {
            return Err(RenderError::StaticNetwork {
                operating_system: provider.operating_system.clone(),
            });
        }
        let cloud_provider = provider.known_cloud_provider()?;
        let is_given = provider.overwrite_cloud_config.is_some();
        let legacy_cloud_config = if is_given || input.settings.external_cloud_provider {
            String::new()
        } else {
            cloud_config::legacy(provider, &cloud_provider, &kube_version)?
        };
        Ok(Self {
            input,
            operating_system: provider.known_operating_system()?,
            cloud_provider,
            legacy_cloud_config,
            kubelet,
            feature_gates,
            drop_ins,
            image_credential_providers,
            kube_version,
            names: DerivedNames::new(machine_deployment.namespace, machine_deployment.name),
        })
    }

    /// Returns true if machines reach their API server without the proxy.
    pub(super) fn server_is_direct(&self) -> bool {
        let no_proxy = self.input.settings.no_proxy.as_deref();
        is_direct(self.input.cluster.api_server, no_proxy.unwrap_or_default())
    }

    pub(super) fn fetch_token(&self) -> &SecretText {
        let cluster = &self.input.cluster;
        cluster.own_fetch_token.unwrap_or(cluster.fetch_token)
    }

    /// Returns everything that a template can read.
    pub(super) fn template_data(&self) -> TemplateData {
        let mut inline = BTreeMap::new();
        self.add_cluster(&mut inline);
        self.add_container_runtime(&mut inline);
        self.add_kubelet(&mut inline);
        self.add_network(&mut inline);
        self.add_operating_systems(&mut inline);
        TemplateData {
            inline,
            marked: self.marked(),
        }
    }

    fn add_cluster(&self, data: &mut BTreeMap<&'static str, Value>) {
        let (input, settings) = (&self.input, self.input.settings);
        let cluster = &input.cluster;
        let is_external = settings.external_cloud_provider;
        let overwrite = input
            .machine_deployment
            .provider
            .overwrite_cloud_config
            .as_ref();
        data.extend([
            ("KubeVersion", text(&self.kube_version)),
            (
                "KubernetesCACert",
                text(&separated(cluster.kubernetes_ca_certificate)),
            ),
            ("HostCACert", text(&separated(&settings.host_ca_bundle))),
            ("CloudProviderName", text(self.cloud_provider.as_str())),
            (
                "CloudConfig",
                text(overwrite.map_or(&self.legacy_cloud_config, SecretText::expose)),
            ),
            (
                "InTreeCCMAvailable",
                has_in_tree_controller(&self.cloud_provider, settings),
            ),
            ("ExternalCloudProvider", Value::from(is_external)),
            ("InitialTaints", text(&settings.initial_taints)),
            ("HTTPProxy", optional(settings.http_proxy.as_deref())),
            ("NoProxy", optional(settings.no_proxy.as_deref())),
            (
                BOOTSTRAP_KUBECONFIG,
                text(cluster.bootstrap_kubeconfig.expose()),
            ),
            ("Token", text(cluster.fetch_token.expose())),
            (FETCH_TOKEN, text(self.fetch_token().expose())),
            ("ServerURL", text(cluster.api_server)),
            (SERVER_IS_DIRECT, Value::from(self.server_is_direct())),
            ("SecretName", text(&self.names.provisioning)),
            (
                "BootstrapKubeconfigSecretName",
                text(&self.names.kubelet_kubeconfig),
            ),
            ("variables", map(&settings.variables)),
            ("RHSubscription", map(&BTreeMap::new())),
        ]);
        data.extend(ALWAYS_EMPTY.map(|name| (name, text(""))));
    }

    fn add_container_runtime(&self, data: &mut BTreeMap<&'static str, Value>) {
        let settings = self.input.settings;
        data.extend([
            ("ContainerRuntime", text("containerd")),
            ("PauseImage", text(&settings.pause_image)),
        ]);
        data.extend(containerd_configs(
            settings,
            self.input.registry_credentials,
        ));
    }

    fn add_kubelet(&self, data: &mut BTreeMap<&'static str, Value>) {
        let kubelet = &self.kubelet;
        let gates = &self.feature_gates;
        let optional_map = |map_: &Option<BTreeMap<String, String>>| match map_ {
            Some(pairs) => map(pairs),
            None => Value::from(()),
        };
        data.extend([
            (KUBELET_DROP_INS, Value::from(!self.drop_ins.is_empty())),
            (
                IMAGE_CREDENTIAL_PROVIDERS,
                credential_providers::variable(&self.input.settings.image_credential_providers),
            ),
            (
                "KubeletFeatureGates",
                Value::from_pairs(gates.iter().map(|(name, is_on)| (name.as_str(), *is_on))),
            ),
            ("KubeReserved", optional_map(&kubelet.kube_reserved)),
            ("SystemReserved", optional_map(&kubelet.system_reserved)),
            ("EvictionHard", optional_map(&kubelet.eviction_hard)),
            ("MaxPods", Value::from(kubelet.max_pods)),
            (
                "ImageGCHighThresholdPercent",
                Value::from(kubelet.image_gc_high_threshold_percent),
            ),
            (
                "ImageGCLowThresholdPercent",
                Value::from(kubelet.image_gc_low_threshold_percent),
            ),
            ("ImageMinimumGCAge", age(kubelet.image_minimum_gc_age)),
            ("ImageMaximumGCAge", age(kubelet.image_maximum_gc_age)),
            (
                "ContainerLogMaxSize",
                optional(kubelet.container_log_max_size.as_deref()),
            ),
            (
                "ContainerLogMaxFiles",
                optional(kubelet.container_log_max_files.as_deref()),
            ),
        ]);
    }

    fn add_network(&self, data: &mut BTreeMap<&'static str, Value>) {
        let network = self.input.machine_deployment.provider.network.as_ref();
        let addresses = self.input.settings.cluster_dns.iter();
        let family = network.map_or("", |network| network.ip_family.as_str());
        data.extend([
            (
                "ClusterDNSIPs",
                addresses
                    .map(|address| address.to_canonical().to_string())
                    .collect::<Value>(),
            ),
            ("NetworkIPFamily", text(family)),
            (
                "NetworkConfig",
                network.map_or(Value::from(()), |network| {
                    let servers: Value = network.dns_servers.iter().map(String::as_str).collect();
                    Value::from_pairs([
                        ("CIDR", text(&network.cidr)),
                        ("Gateway", text(&network.gateway)),
                        ("DNS", Value::from_pairs([("Servers", servers)])),
                        ("IPFamily", text(&network.ip_family)),
                        ("IsStaticIPConfig", Value::from(network.is_static())),
                        ("GetIPFamily", text(&network.ip_family)),
                    ])
                }),
            ),
        ]);
    }

    /// Adds the operating systems. Only that of the machine deployment is filled in; the others are
    /// all zero.
    fn add_operating_systems(&self, data: &mut BTreeMap<&'static str, Value>) {
        let given = &self.input.machine_deployment.provider.operating_system_spec;
        let zero = OperatingSystemSpec::default();
        let of = |system| {
            if self.operating_system == system {
                given
            } else {
                &zero
            }
        };
        let upgrade =
            |system| Value::from_pairs([("DistUpgradeOnBoot", of(system).dist_upgrade_on_boot)]);
        let flatcar = &of(OperatingSystem::Flatcar).flatcar;
        data.extend([
            ("AmazonLinuxConfig", upgrade(OperatingSystem::Amzn2)),
            ("UbuntuConfig", upgrade(OperatingSystem::Ubuntu)),
            ("RockyLinuxConfig", upgrade(OperatingSystem::RockyLinux)),
            (
                "FlatcarConfig",
                Value::from_pairs([
                    (
                        "DisableAutoUpdate",
                        Value::from(flatcar.disable_auto_update),
                    ),
                    ("DisableLocksmithD", Value::from(flatcar.disable_locksmithd)),
                    (
                        "DisableUpdateEngine",
                        Value::from(flatcar.disable_update_engine),
                    ),
                    ("ProvisioningUtility", text(&flatcar.provisioning_utility)),
                ]),
            ),
            (
                "RhelConfig",
                rhel_config(of(OperatingSystem::Rhel), &of(OperatingSystem::Rhel).rhel),
            ),
        ]);
    }

    fn marked(&self) -> BTreeMap<&'static str, Value> {
        let (cluster, provider) = (&self.input.cluster, self.input.machine_deployment.provider);
        let credentials = self.input.registry_credentials;
        let mut marked = BTreeMap::new();
        let mut mark = |name: &'static str, secret: &SecretText| {
            if !secret.expose().is_empty() {
                marked.insert(name, text(marker(secret, name).expose()));
            }
        };
        mark("Token", cluster.fetch_token);
        mark(FETCH_TOKEN, self.fetch_token());
        mark(BOOTSTRAP_KUBECONFIG, cluster.bootstrap_kubeconfig);
        if let Some(secret) = &provider.overwrite_cloud_config {
            mark("CloudConfig", secret);
        }
        if !credentials.is_empty() {
            marked.extend(containerd_configs(
                self.input.settings,
                &mark_all(credentials),
            ));
        }
        let spec = &provider.operating_system_spec;
        if self.operating_system == OperatingSystem::Rhel {
            marked.insert("RhelConfig", rhel_config(spec, &mark_rhel(&spec.rhel)));
        }
        marked
    }
}

/// Returns containerd's configuration in both supported versions.
fn containerd_configs(
    settings: &TenantSettings,
    credentials: &BTreeMap<String, RegistryCredential>,
) -> [(&'static str, Value); 2] {
    [
        (
            "ContainerRuntimeConfig",
            Value::from(containerd::config_toml(settings, credentials)),
        ),
        (
            "ContainerRuntimeConfigV2",
            Value::from(containerd::config_toml_v2(settings, credentials)),
        ),
    ]
}

/// Returns a marker in place of a secret. An empty secret stays empty.
pub(super) fn marker(secret: &SecretText, name: &str) -> SecretText {
    if secret.expose().is_empty() {
        SecretText::default()
    } else {
        SecretText::new(format!("<redacted: {name}>"))
    }
}

fn mark_all(
    credentials: &BTreeMap<String, RegistryCredential>,
) -> BTreeMap<String, RegistryCredential> {
    credentials
        .iter()
        .map(|(registry, credential)| {
            let marked = RegistryCredential {
                username: marker(&credential.username, "username"),
                password: marker(&credential.password, "password"),
                auth: marker(&credential.auth, "auth"),
                identity_token: marker(&credential.identity_token, "identitytoken"),
            };
            (registry.clone(), marked)
        })
        .collect()
}

/// Returns the subscription with markers in place of everything that is needed to use it.
pub(super) fn mark_rhel(rhel: &RhelSpec) -> RhelSpec {
    RhelSpec {
        subscription_manager_user: marker(&rhel.subscription_manager_user, "user"),
        subscription_manager_password: marker(&rhel.subscription_manager_password, "password"),
        rhsm_offline_token: marker(&rhel.rhsm_offline_token, "offline token"),
        organization_name: marker(&rhel.organization_name, "organization"),
        activation_key: marker(&rhel.activation_key, "activation key"),
        ..rhel.clone()
    }
}

fn rhel_config(spec: &OperatingSystemSpec, rhel: &RhelSpec) -> Value {
    let secret = |secret: &SecretText| text(secret.expose());
    Value::from_pairs([
        ("DistUpgradeOnBoot", Value::from(spec.dist_upgrade_on_boot)),
        (
            "RHELSubscriptionManagerUser",
            secret(&rhel.subscription_manager_user),
        ),
        (
            "RHELSubscriptionManagerPassword",
            secret(&rhel.subscription_manager_password),
        ),
        ("RHSMOfflineToken", secret(&rhel.rhsm_offline_token)),
        ("AttachSubscription", Value::from(rhel.attach_subscription)),
        (
            "RHELUseSatelliteServer",
            Value::from(rhel.use_satellite_server),
        ),
        ("RHELSatelliteServer", text(&rhel.satellite_server)),
        ("RHELOrganizationName", secret(&rhel.organization_name)),
        ("RHELActivationKey", secret(&rhel.activation_key)),
    ])
}

fn has_in_tree_controller(provider: &CloudProvider, settings: &TenantSettings) -> Value {
    let has_one = matches!(
        provider,
        CloudProvider::Aws | CloudProvider::Azure | CloudProvider::Gce | CloudProvider::VSphere
    );
    Value::from(has_one && !settings.external_cloud_provider)
}

fn text(text: &str) -> Value {
    Value::from(text)
}

fn optional(text: Option<&str>) -> Value {
    text.map_or(Value::from(()), Value::from)
}

fn age(age: Option<GoDuration>) -> Value {
    optional(age.map(|age| age.to_string()).as_deref())
}

fn map(pairs: &BTreeMap<String, String>) -> Value {
    Value::from_pairs(
        pairs
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str())),
    )
}
