//! Sample machine deployments to render both forms of a profile with. They are generated from a
//! number, so that the same number gives the same sample on any machine.
//!
//! Every value is drawn independently, including values that are rarely set, empty, or contain
//! characters that a shell or a template could misread. No value contains `{{`: the output of a
//! named template of a Go profile is parsed again, so such a value would be a template.

use std::collections::BTreeMap;

use crate::{
    input::{
        ClusterInput, FlatcarSpec, MachineDeploymentInput, Network, OperatingSystemSpec,
        ProviderConfig, RegistryCredential, RenderInput, RhelSpec,
    },
    template::CompiledProfile,
};
use osm_api::profile::{OperatingSystem, OperatingSystemProfileSpec, ProvisioningUtility};
use osm_tenant::{secret_text::SecretText, settings::TenantSettings};

const SYSTEMS: [OperatingSystem; 5] = [
    OperatingSystem::Ubuntu,
    OperatingSystem::Flatcar,
    OperatingSystem::Rhel,
    OperatingSystem::Amzn2,
    OperatingSystem::RockyLinux,
];
const PROVIDERS: [&str; 10] = [
    "aws",
    "azure",
    "digitalocean",
    "gce",
    "hetzner",
    "kubevirt",
    "nutanix",
    "openstack",
    "vsphere",
    "edge",
];
const VERSIONS: [&str; 10] = [
    "1.28.15",
    "1.29.3",
    "1.30",
    "v1.31.0",
    "1.32.5",
    "1.33.0",
    "1.33.0-rc.1",
    "1.34.1",
    "1.35.2",
    "1.36.0+build.1",
];
const TEXTS: [&str; 8] = [
    "",
    "plain",
    "two words ",
    "line\nline\n",
    "\n  \n",
    "'\"$`\\{%#}",
    "ä\u{a0}",
    "http://proxy.example.com:3128",
];
/// The values for the subscription of Red Hat, which is written outside of any template. Only
/// profiles in Jinja omit empty values.
const PLAIN_TEXTS: [&str; 2] = ["plain", "a-b.c"];
const FAMILIES: [&str; 5] = ["", "IPv4", "IPv6", "IPv4+IPv6", "IPv6+IPv4"];
const ADDRESSES: [&str; 3] = ["10.10.10.10", "fd00::a", "192.168.0.1"];
const GATES: [&str; 4] = [
    "RotateKubeletServerCertificate",
    "ContextualLogging",
    "APIServerIdentity",
    "WatchList",
];
/// The annotations for the kubelet, with values that kubelets accept.
const ANNOTATIONS: [(&str, &[&str]); 10] = [
    ("KubeReserved", &["cpu=200m,memory=1Gi", "pid=1000", ""]),
    (
        "SystemReserved",
        &["memory=1Gi,cpu=100m,ephemeral-storage=1Gi", ""],
    ),
    (
        "EvictionHard",
        &["memory.available<100Mi", "nodefs.available<10%", ""],
    ),
    ("MaxPods", &["110", "0"]),
    ("ContainerLogMaxSize", &["100Mi", ""]),
    ("ContainerLogMaxFiles", &["5", ""]),
    ("ImageGCHighThresholdPercent", &["85"]),
    ("ImageGCLowThresholdPercent", &["80", "0"]),
    ("ImageMinimumGCAge", &["90s", "0s"]),
    ("ImageMaximumGCAge", &["24h"]),
];
const ANNOTATION_PREFIX: &str = "v1.kubelet-config.machine-controller.kubermatic.io/";

/// A machine deployment with its cluster and settings.
pub(super) struct Sample {
    annotations: BTreeMap<String, String>,
    kubelet_version: &'static str,
    provider: ProviderConfig,
    settings: TenantSettings,
    api_server: &'static str,
    certificate: &'static str,
    fetch_token: SecretText,
    bootstrap_kubeconfig: SecretText,
    registry_credentials: BTreeMap<String, RegistryCredential>,
}

impl Sample {
    /// Generates a sample. Most samples suit the profile.
    pub(super) fn draw(seed: u64, profile: &OperatingSystemProfileSpec) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        Self {
            annotations: annotations(&mut dice),
            kubelet_version: dice.pick(&VERSIONS),
            provider: provider(&mut dice, profile),
            settings: settings(&mut dice),
            api_server: "https://api.example.com:6443",
            certificate: dice.pick(&TEXTS),
            fetch_token: SecretText::new(dice.pick(&["token", "token.token"])),
            bootstrap_kubeconfig: SecretText::new(dice.pick(&TEXTS)),
            registry_credentials: credentials(&mut dice),
        }
    }

    pub(super) fn input<'a>(&'a self, profile: &'a CompiledProfile) -> RenderInput<'a> {
        RenderInput {
            machine_deployment: MachineDeploymentInput {
                name: "workers",
                namespace: "kube-system",
                annotations: &self.annotations,
                kubelet_version: self.kubelet_version,
                provider: &self.provider,
            },
            profile,
            settings: &self.settings,
            cluster: ClusterInput {
                api_server: self.api_server,
                kubernetes_ca_certificate: self.certificate,
                fetch_token: &self.fetch_token,
                own_fetch_token: None,
                bootstrap_kubeconfig: &self.bootstrap_kubeconfig,
            },
            registry_credentials: &self.registry_credentials,
        }
    }
}

/// A generator of pseudorandom numbers (xorshift).
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let sides = u64::try_from(sides.max(1)).unwrap_or(1);
        usize::try_from((self.0 >> 16) % sides).unwrap_or_default()
    }

    /// Returns true once in `sides` calls, on average.
    fn once_in(&mut self, sides: usize) -> bool {
        self.throw(sides) == 0
    }

    fn pick<T: Copy + Default>(&mut self, from: &[T]) -> T {
        from.get(self.throw(from.len()))
            .copied()
            .unwrap_or_default()
    }

    fn text(&mut self) -> String {
        self.pick(&TEXTS).to_owned()
    }

    fn plain_secret(&mut self) -> SecretText {
        SecretText::new(self.pick(&PLAIN_TEXTS))
    }

    fn secret(&mut self) -> SecretText {
        SecretText::new(self.text())
    }
}

fn annotations(dice: &mut Dice) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::new();
    for (name, values) in ANNOTATIONS {
        if dice.once_in(2) {
            let name = format!("{ANNOTATION_PREFIX}{name}");
            annotations.insert(name, dice.pick(values).to_owned());
        }
    }
    annotations
}

fn provider(dice: &mut Dice, profile: &OperatingSystemProfileSpec) -> ProviderConfig {
    let system = if dice.once_in(8) {
        SYSTEMS.get(dice.throw(SYSTEMS.len())).cloned()
    } else {
        None
    };
    let system = match (system, &profile.os_name) {
        (Some(system), _) => system,
        (None, OperatingSystem::Other(_)) => OperatingSystem::Ubuntu,
        (None, own) => own.clone(),
    };
    let utility = profile.provisioning_utility;
    let provisioning_utility = utility.unwrap_or(ProvisioningUtility::CloudInit).as_str();
    let supported: Vec<&str> = profile
        .supported_cloud_providers
        .iter()
        .map(|provider| provider.name.as_str())
        .collect();
    let providers = if supported.is_empty() || dice.once_in(8) {
        PROVIDERS.as_slice()
    } else {
        supported.as_slice()
    };
    ProviderConfig {
        operating_system: system.as_str().to_owned(),
        cloud_provider: dice.pick(providers).to_owned(),
        network: network(dice, &system),
        operating_system_spec: OperatingSystemSpec {
            dist_upgrade_on_boot: dice.once_in(2),
            flatcar: FlatcarSpec {
                disable_auto_update: dice.once_in(2),
                disable_locksmithd: dice.once_in(2),
                disable_update_engine: dice.once_in(2),
                provisioning_utility: provisioning_utility.to_owned(),
            },
            rhel: RhelSpec {
                subscription_manager_user: dice.plain_secret(),
                subscription_manager_password: dice.plain_secret(),
                rhsm_offline_token: dice.plain_secret(),
                attach_subscription: dice.once_in(2),
                use_satellite_server: dice.once_in(2),
                satellite_server: dice.pick(&PLAIN_TEXTS).to_owned(),
                organization_name: dice.plain_secret(),
                activation_key: dice.plain_secret(),
            },
        },
        overwrite_cloud_config: dice.once_in(2).then(|| dice.secret()),
        ..ProviderConfig::default()
    }
}

fn network(dice: &mut Dice, system: &OperatingSystem) -> Option<Network> {
    if dice.once_in(2) {
        return None;
    }
    let is_static = *system == OperatingSystem::Flatcar && dice.once_in(2);
    let ip_family = dice.pick(&FAMILIES).to_owned();
    let network = if is_static {
        let count = dice.throw(3);
        Network {
            cidr: dice.pick(&["192.168.0.10/24", ""]).to_owned(),
            gateway: dice.pick(&["192.168.0.1", ""]).to_owned(),
            dns_servers: (0..count)
                .map(|_| dice.pick(&ADDRESSES).to_owned())
                .collect(),
            ip_family,
        }
    } else {
        Network {
            ip_family,
            ..Network::default()
        }
    };
    Some(network)
}

fn settings(dice: &mut Dice) -> TenantSettings {
    let gates = dice.throw(GATES.len());
    let (addresses, mirrors) = (dice.throw(3), dice.throw(3));
    TenantSettings {
        cluster_dns: ADDRESSES
            .iter()
            .take(addresses)
            .filter_map(|address| address.parse().ok())
            .collect(),
        external_cloud_provider: dice.once_in(2),
        http_proxy: dice.once_in(2).then(|| dice.text()),
        no_proxy: dice.once_in(2).then(|| dice.text()),
        host_ca_bundle: dice.text(),
        pause_image: dice.text(),
        initial_taints: dice.text(),
        kubelet_feature_gates: (0..gates)
            .map(|_| (dice.pick(&GATES).to_owned(), dice.once_in(2)))
            .collect(),
        insecure_registries: vec!["registry.example.com:5000".to_owned()],
        registry_mirrors: ["docker.io", "quay.io"]
            .into_iter()
            .take(mirrors)
            .map(|registry| {
                (
                    registry.to_owned(),
                    vec!["https://mirror.example.com".to_owned()],
                )
            })
            .collect(),
        variables: ["site", "a.b", "items"]
            .into_iter()
            .filter(|_| dice.once_in(2))
            .map(|name| (name.to_owned(), TEXTS.concat()))
            .collect(),
        ..TenantSettings::default()
    }
}

fn credentials(dice: &mut Dice) -> BTreeMap<String, RegistryCredential> {
    let mut credentials = BTreeMap::new();
    if dice.once_in(3) {
        let credential = RegistryCredential {
            username: dice.secret(),
            password: dice.secret(),
            ..RegistryCredential::default()
        };
        credentials.insert("docker.io".to_owned(), credential);
    }
    credentials
}
