//! The machines that profiles are rendered for here: every default profile with every provider that
//! it supports, every Kubernetes version, and the settings that these consumers read.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use osm::{
    api::{
        config::{ConfigHalf, OperatingSystemConfigSpec},
        profile::{
            IgnitionVersion, OperatingSystem, OperatingSystemProfile, OperatingSystemProfileSpec,
            ProvisioningUtility,
        },
    },
    render::{
        Rendered, default_profiles::default_profiles, input::RegistryCredential,
        template::CompiledProfile,
    },
    tenant::{secret_text::SecretText, settings::TenantSettings},
};
use serde_json::json;

use crate::{
    readers::{KUBELETS, providers},
    subject::Subject,
};

/// A profile and its name.
pub struct Profile {
    pub name: String,
    pub spec: OperatingSystemProfileSpec,
    compiled: CompiledProfile,
}

/// What differs from machine to machine.
#[derive(Clone)]
pub struct Machine {
    pub provider: String,
    pub kubelet: &'static str,
    pub network: serde_json::Value,
    pub annotations: BTreeMap<String, String>,
    pub settings: TenantSettings,
    pub credentials: BTreeMap<String, RegistryCredential>,
}

/// What makes a machine another one.
pub type Change = fn(&mut Machine);

/// What a profile gave for a machine.
pub struct Rendering {
    pub name: String,
    pub rendered: Rendered,
}

static PROFILES: LazyLock<Vec<Profile>> = LazyLock::new(|| {
    let parsed = default_profiles().iter().map(|profile| profile.yaml);
    parsed.map(Profile::parse).collect()
});

static RENDERINGS: LazyLock<Vec<Rendering>> = LazyLock::new(|| {
    let of_profile = |profile: &'static Profile| {
        let machines = profile.machines().into_iter();
        machines.map(|(name, machine)| profile.render(&name, &machine))
    };
    every_profile().iter().flat_map(of_profile).collect()
});

/// The default profiles.
pub fn every_profile() -> &'static [Profile] {
    &PROFILES
}

/// The default profiles for all machines; each is rendered once.
pub fn every_rendering() -> &'static [Rendering] {
    &RENDERINGS
}

impl Profile {
    pub fn parse(yaml: &str) -> Self {
        let profile: OperatingSystemProfile =
            serde_saphyr::from_str(yaml).expect("a profile is one");
        let name = profile.metadata.name.expect("a profile has a name");
        Self::new(&name, profile.spec)
    }

    fn new(name: &str, spec: OperatingSystemProfileSpec) -> Self {
        Self {
            name: name.to_owned(),
            compiled: CompiledProfile::compile(&spec).expect("a profile compiles"),
            spec,
        }
    }

    /// The profile, with documents in another version of Ignition.
    pub fn with(&self, version: IgnitionVersion) -> Self {
        let mut spec = self.spec.clone();
        spec.ignition_version = Some(version);
        Self::new(&self.name, spec)
    }

    /// A machine of the first provider that the profile supports.
    pub fn machine(&self) -> Machine {
        let first = providers(&self.spec).next();
        Machine {
            provider: first.expect("there is a provider").to_owned(),
            kubelet: "1.34.1",
            network: serde_json::Value::Null,
            annotations: BTreeMap::new(),
            settings: TenantSettings::default(),
            credentials: BTreeMap::new(),
        }
    }

    pub fn machines(&self) -> Vec<(String, Machine)> {
        let plain = self.machine();
        let mut machines = Vec::new();
        for provider in providers(&self.spec) {
            let mut machine = plain.clone();
            provider.clone_into(&mut machine.provider);
            machines.push((machine.provider.clone(), machine));
        }
        for kubelet in KUBELETS {
            for (name, annotations) in [("plain", BTreeMap::new()), ("annotated", annotations())] {
                let mut machine = plain.clone();
                machine.kubelet = kubelet;
                machine.annotations = annotations;
                machines.push((format!("{kubelet}-{name}"), machine));
            }
        }
        let changes: [(&str, Change); 4] = [
            ("dual", |machine| {
                machine.network = json!({ "ipFamily": "IPv4+IPv6" });
                let second = "fd00::10".parse().expect("an address is one");
                machine.settings.cluster_dns.push(second);
            }),
            ("static", |machine| {
                machine.network = json!({
                    "cidr": "192.0.2.10/24",
                    "gateway": "192.0.2.1",
                    "dns": { "servers": ["192.0.2.53"] },
                });
            }),
            ("proxy", |machine| {
                machine.settings.http_proxy = Some("http://user:word@proxy:3128".to_owned());
                machine.settings.host_ca_bundle.push_str("certificates\n");
            }),
            ("gates", |machine| {
                machine.settings.external_cloud_provider = true;
                let gates = &mut machine.settings.kubelet_feature_gates;
                gates.insert("UserNamespacesSupport".to_owned(), false);
            }),
        ];
        for (name, change) in changes {
            // The other systems refuse it.
            if name == "static" && self.spec.os_name != OperatingSystem::Flatcar {
                continue;
            }
            let mut machine = plain.clone();
            change(&mut machine);
            machines.push((name.to_owned(), machine));
        }
        machines
    }

    pub fn render(&self, name: &str, machine: &Machine) -> Rendering {
        let utility = self.spec.provisioning_utility;
        let utility = utility.unwrap_or(ProvisioningUtility::CloudInit);
        // Only Flatcar's machines can choose.
        let operating_system_spec = match self.spec.os_name {
            OperatingSystem::Flatcar => json!({ "provisioningUtility": utility.as_str() }),
            _ => json!({}),
        };
        let provider_spec = json!({
            "cloudProvider": machine.provider,
            "cloudProviderSpec": {},
            "operatingSystem": self.spec.os_name,
            "operatingSystemSpec": operating_system_spec,
            "network": machine.network,
            "sshPublicKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDxGPcZzwmWfQzWQfzJz user@host"],
        });
        let name = format!("{}-{name}", self.name);
        let subject = Subject {
            annotations: machine.annotations.clone(),
            kubelet_version: machine.kubelet.to_owned(),
            provider_spec,
            settings: machine.settings.clone(),
            api_server: "https://cluster.example.com:6443".to_owned(),
            authority: "certificate of the cluster\n".to_owned(),
            fetch_token: SecretText::new("token"),
            bootstrap_kubeconfig: SecretText::new("clusters: []"),
            registry_credentials: machine.credentials.clone(),
            ..Subject::new()
        };
        let rendered = subject.render(&self.compiled);
        assert!(rendered.is_ok(), "{name}: {:?}", rendered.err());
        Rendering {
            rendered: rendered.expect("the line above"),
            name,
        }
    }
}

/// Everything that a machine deployment may tell its kubelets.
fn annotations() -> BTreeMap<String, String> {
    let prefix = "v1.kubelet-config.machine-controller.kubermatic.io";
    [
        ("KubeReserved", "cpu=300m,memory=1Gi,ephemeral-storage=2Gi"),
        ("SystemReserved", "cpu=100m"),
        ("EvictionHard", "memory.available<5%,nodefs.available<1Gi"),
        ("MaxPods", "222"),
        ("ContainerLogMaxSize", "50Mi"),
        ("ContainerLogMaxFiles", "7"),
        ("ImageGCHighThresholdPercent", "80"),
        ("ImageGCLowThresholdPercent", "0"),
        ("ImageMinimumGCAge", "2m"),
        ("ImageMaximumGCAge", "24h"),
    ]
    .map(|(name, value)| (format!("{prefix}/{name}"), value.to_owned()))
    .into()
}

impl Rendering {
    /// Both documents, with their names.
    pub fn documents(&self) -> [(String, Vec<u8>); 2] {
        [
            ("bootstrap", &self.rendered.bootstrap),
            ("provisioning", &self.rendered.provisioning),
        ]
        .map(|(half, document)| {
            (
                format!("{}-{half}", self.name),
                document.as_bytes().to_vec(),
            )
        })
    }

    /// The text of a file, if the profile writes it.
    pub fn file(&self, path: &str) -> Option<&str> {
        files(&self.rendered.config)
            .find(|(at, _)| *at == path)
            .map(|(_, data)| data)
    }

    /// The files below a folder, by what follows it.
    pub fn files_below(&self, folder: &str) -> BTreeMap<&str, &str> {
        files(&self.rendered.config)
            .filter_map(|(path, data)| Some((path.strip_prefix(folder)?, data)))
            .collect()
    }
}

fn files(config: &OperatingSystemConfigSpec) -> impl Iterator<Item = (&str, &str)> {
    fn of_half(half: &ConfigHalf) -> impl Iterator<Item = (&str, &str)> {
        half.files.iter().filter_map(|file| {
            let inline = file.content.inline.as_ref()?;
            Some((file.path.as_str(), inline.data.as_str()))
        })
    }
    of_half(&config.bootstrap_config).chain(of_half(&config.provisioning_config))
}

/// Each content once, by the name of what had it first.
pub fn distinct<T: Ord + Clone>(named: impl Iterator<Item = (String, T)>) -> Vec<(String, T)> {
    let mut seen = BTreeSet::new();
    named
        .filter(|(_, content)| seen.insert(content.clone()))
        .collect()
}
