//! The machines that the profile is rendered for: two providers, every Kubernetes version that is
//! supported, and the settings that change what is written.

use std::{collections::BTreeMap, sync::LazyLock};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use osm::{
    api::{config::ConfigHalf, profile::OperatingSystemProfile},
    render::{
        Limits, RenderInput, UserData,
        default_profiles::default_profiles,
        input::{ClusterInput, MachineDeploymentInput, ProviderConfig},
        render,
        template::CompiledProfile,
    },
    tenant::{secret_text::SecretText, settings::TenantSettings},
};
use serde::Deserialize;
use serde_json::json;

/// A word that only the token has; the token itself is as long as a ServiceAccount's.
pub const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9";

/// A value that would be a command, were it not quoted.
pub const HOSTILE: &str = "it's \"$(touch /tmp/x)\" `id`; '; echo {{ Token }} %h \\\nsecond line";

/// One machine deployment, rendered.
pub struct Case {
    pub name: String,
    pub bootstrap: Half,
    pub provisioning: Half,
    /// The config as it is stored, in JSON.
    pub stored: String,
}

/// One document, and the texts that it was made from.
pub struct Half {
    pub document: Vec<u8>,
    pub texts: BTreeMap<String, String>,
}

/// A file as a document carries it.
pub struct RenderedFile {
    pub path: String,
    pub mode: String,
    pub content: String,
}

/// What differs from case to case.
#[derive(Clone)]
struct Machine {
    name: String,
    provider: &'static str,
    kubelet: &'static str,
    ip_family: &'static str,
    annotations: BTreeMap<String, String>,
    settings: TenantSettings,
}

static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let profile = default_profiles()
        .first()
        .expect("there is a default profile");
    let profile: OperatingSystemProfile =
        serde_saphyr::from_str(profile.yaml).expect("a default profile is a profile");
    let profile = CompiledProfile::compile(&profile.spec).expect("a default profile compiles");
    machines()
        .iter()
        .map(|machine| rendered(machine, &profile))
        .collect()
});

/// All cases; each is rendered once.
pub fn every_case() -> &'static [Case] {
    &CASES
}

/// The case of this name.
pub fn case(name: &str) -> &'static Case {
    CASES
        .iter()
        .find(|case| case.name == name)
        .expect("there is a case of this name")
}

fn machines() -> Vec<Machine> {
    let mut machines = Vec::new();
    for provider in ["aws", "openstack"] {
        for kubelet in ["1.33.5", "1.34.1", "1.35.0", "1.36.0"] {
            machines.push(Machine::new(provider, kubelet, kubelet));
        }
        let with = |name, change: fn(&mut Machine)| {
            let mut machine = Machine::new(provider, name, "1.34.1");
            change(&mut machine);
            machine
        };
        machines.extend([
            with("external", |machine| {
                machine.settings.external_cloud_provider = true;
            }),
            with("dual", |machine| machine.ip_family = "IPv4+IPv6"),
            with("dual-external", |machine| {
                machine.ip_family = "IPv6+IPv4";
                machine.settings.external_cloud_provider = true;
            }),
            with("ipv6", |machine| machine.ip_family = "IPv6"),
            with("proxy", |machine| {
                machine.settings.http_proxy = Some("http://user:word@proxy:3128".to_owned());
                machine.settings.host_ca_bundle = certificate();
            }),
            with("annotated", annotate),
            with("hostile", make_hostile),
        ]);
    }
    machines
}

impl Machine {
    fn new(provider: &'static str, name: &str, kubelet: &'static str) -> Self {
        Self {
            name: format!("{provider}-{name}"),
            provider,
            kubelet,
            ip_family: "",
            annotations: BTreeMap::new(),
            settings: TenantSettings::default(),
        }
    }
}

fn annotate(machine: &mut Machine) {
    let prefix = "v1.kubelet-config.machine-controller.kubermatic.io";
    machine.annotations = [
        ("KubeReserved", "cpu=300m,memory=1Gi"),
        ("SystemReserved", "cpu=100m"),
        ("EvictionHard", "memory.available<5%"),
        ("MaxPods", "222"),
        ("ContainerLogMaxSize", "50Mi"),
        ("ContainerLogMaxFiles", "7"),
        ("ImageGCHighThresholdPercent", "80"),
        ("ImageGCLowThresholdPercent", "0"),
        ("ImageMinimumGCAge", "2m"),
        ("ImageMaximumGCAge", "24h"),
    ]
    .map(|(name, value)| (format!("{prefix}/{name}"), value.to_owned()))
    .into();
    machine
        .settings
        .initial_taints
        .push_str("dedicated=gpu:NoSchedule");
    machine
        .settings
        .kubelet_feature_gates
        .insert("UserNamespacesSupport".to_owned(), false);
}

fn make_hostile(machine: &mut Machine) {
    let settings = &mut machine.settings;
    settings.http_proxy = Some(HOSTILE.to_owned());
    settings.no_proxy = Some(HOSTILE.to_owned());
    settings.host_ca_bundle.push_str(HOSTILE);
    settings.initial_taints.push_str("a=\"b$c%d\\:NoSchedule");
    settings.variables = [
        "kubernetesDownloadURL",
        "cniPluginsDownloadURL",
        "criToolsDownloadURL",
        "containerdRepositoryURL",
        "ubuntuArchiveURL",
        "cniPluginsVersion",
        "crictlVersion",
        "containerdVersion",
        "extraPackages",
    ]
    .map(|name| (name.to_owned(), HOSTILE.to_owned()))
    .into();
}

fn rendered(machine: &Machine, profile: &CompiledProfile) -> Case {
    let provider = ProviderConfig::decode(&json!({
        "cloudProvider": machine.provider,
        "cloudProviderSpec": {},
        "operatingSystem": "ubuntu",
        "operatingSystemSpec": { "distUpgradeOnBoot": false },
        "network": { "ipFamily": machine.ip_family },
        "sshPublicKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDxGPcZzwmWfQzWQfzJz user@host"],
    }))
    .expect("the provider spec is one");
    let token = SecretText::new(format!("{TOKEN}.{}", "Abc4".repeat(230)));
    let input = RenderInput {
        machine_deployment: MachineDeploymentInput {
            name: "workers",
            namespace: "kube-system",
            annotations: &machine.annotations,
            kubelet_version: machine.kubelet,
            provider: &provider,
        },
        profile,
        settings: &machine.settings,
        cluster: ClusterInput {
            api_server: "https://cluster.example.com:6443",
            kubernetes_ca_certificate: &certificate(),
            fetch_token: &token,
            bootstrap_kubeconfig: &SecretText::new("clusters: []"),
        },
        registry_credentials: &BTreeMap::new(),
    };
    let rendered = render(&input, &Limits::default()).expect("the profile renders");
    Case {
        name: machine.name.clone(),
        bootstrap: Half::new(rendered.bootstrap, &rendered.config.bootstrap_config),
        provisioning: Half::new(rendered.provisioning, &rendered.config.provisioning_config),
        stored: serde_json::to_string(&rendered.stored_config).expect("a config is JSON"),
    }
}

impl Half {
    fn new(document: UserData, config: &ConfigHalf) -> Self {
        let text = |file: &osm::api::profile::File| {
            let inline = file
                .content
                .inline
                .as_ref()
                .expect("a rendered file has content");
            (file.path.clone(), inline.data.clone())
        };
        Self {
            document: document.into_bytes(),
            texts: config.files.iter().map(text).collect(),
        }
    }
}

/// A certificate authority's certificate by its size: nothing here verifies with it.
fn certificate() -> String {
    let line = "MIIDBTCCAe2gAwIBAgIIQ1cW2l0vS1owDQYJKoZIhvcNAQELBQAwFTETMBEGA1UE\n";
    format!(
        "-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n",
        line.repeat(17)
    )
}

/// The files of a document, decoded as cloud-init decodes them.
pub fn files_of(document: &[u8]) -> Vec<RenderedFile> {
    #[derive(Deserialize)]
    struct Document {
        write_files: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Entry {
        path: String,
        permissions: String,
        encoding: Option<String>,
        content: String,
    }
    let text = std::str::from_utf8(document).expect("a document is text");
    let document: Document = serde_saphyr::from_str(text).expect("a document is YAML");
    let decode = |entry: Entry| RenderedFile {
        content: match entry.encoding.as_deref() {
            None => entry.content,
            Some(encoding) => {
                assert_eq!(encoding, "b64", "{}", entry.path);
                let bytes = STANDARD
                    .decode(&entry.content)
                    .expect("the content is base64");
                String::from_utf8(bytes).expect("the content is text")
            }
        },
        mode: entry.permissions,
        path: entry.path,
    };
    document.write_files.into_iter().map(decode).collect()
}
