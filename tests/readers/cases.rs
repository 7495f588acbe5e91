//! The machines that the default profiles are rendered for: every provider of each, every
//! Kubernetes version that is supported, and the settings that change what is written.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::LazyLock,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use osm::{
    api::{
        config::ConfigHalf,
        profile::{OperatingSystem, OperatingSystemProfile, OperatingSystemProfileSpec},
    },
    render::{Rendered, UserData, template::CompiledProfile},
    tenant::{secret_text::SecretText, settings::TenantSettings},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{
    readers::{KUBELETS, Reader, providers},
    subject::Subject,
};

/// A word that only the token has; the token itself is as long as a ServiceAccount's.
pub const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9";

/// The variables that say where a machine fetches from.
const URL_VARIABLES: [&str; 9] = [
    "kubernetesDownloadURL",
    "cniPluginsDownloadURL",
    "criToolsDownloadURL",
    "containerdRepositoryURL",
    "ubuntuArchiveURL",
    "debianArchiveURL",
    "debianSecurityArchiveURL",
    "rockylinuxArchiveURL",
    "centosStreamArchiveURL",
];

/// A value that would be a command, were it not quoted.
pub const HOSTILE: &str = "it's \"$(touch /tmp/x)\" `id`; '; echo {{ Token }} %h \\\nsecond line";

/// One machine deployment, rendered. Its name is `profile/provider/what is special`.
pub struct Case {
    pub name: String,
    pub profile: String,
    pub reader: Reader,
    pub bootstrap: Half,
    pub provisioning: Half,
    /// The config as it is stored, in JSON.
    pub stored: String,
    /// What the profile says that each half will fetch.
    pub artefacts: [String; 2],
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
    provider: String,
    kubelet: &'static str,
    ip_family: &'static str,
    network: Map<String, Value>,
    operating_system_spec: Map<String, Value>,
    annotations: BTreeMap<String, String>,
    settings: TenantSettings,
}

static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let mut cases = Vec::new();
    for (name, spec) in profiles() {
        let profile = Profile::new(&spec);
        let machines = machines(&spec);
        cases.extend(
            machines
                .iter()
                .map(|machine| rendered(machine, &name, &profile)),
        );
    }
    cases
});

/// All cases; each is rendered once.
pub fn every_case() -> &'static [Case] {
    &CASES
}

/// The cases whose documents cloud-init reads.
pub fn cloud_init_cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter().filter(|case| case.reader == Reader::CloudInit)
}

/// The cases whose documents Ignition or coreos-cloudinit reads: those of Flatcar.
pub fn flatcar_cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter().filter(|case| case.reader != Reader::CloudInit)
}

/// The names of the profiles of cases, in order.
pub fn profile_names(cases: impl Iterator<Item = &'static Case>) -> BTreeSet<&'static str> {
    cases.map(|case| case.profile.as_str()).collect()
}

/// The case of this name.
pub fn case(name: &str) -> &'static Case {
    CASES
        .iter()
        .find(|case| case.name == name)
        .expect("there is a case of this name")
}

/// The committed profiles, by name.
fn profiles() -> BTreeMap<String, OperatingSystemProfileSpec> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/profiles");
    let entries = fs::read_dir(folder).expect("the profiles' folder is readable");
    let paths = entries.map(|entry| entry.expect("a folder entry is readable").path());
    paths
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .map(|path| {
            let text = fs::read_to_string(path).expect("a profile is readable");
            let profile: OperatingSystemProfile =
                serde_saphyr::from_str(&text).expect("a default profile is a profile");
            (profile.metadata.name.expect("it has a name"), profile.spec)
        })
        .collect()
}

/// Every provider with every version; the settings vary for two of the providers.
fn machines(profile: &OperatingSystemProfileSpec) -> Vec<Machine> {
    let mut machines = Vec::new();
    for provider in providers(profile) {
        for kubelet in KUBELETS {
            machines.push(Machine::new(provider, kubelet, kubelet));
        }
        let with = |name, change: fn(&mut Machine)| {
            let mut machine = Machine::new(provider, name, "1.34.1");
            change(&mut machine);
            machine
        };
        machines.push(with("proxy", set_proxy));
        if profile.os_name == OperatingSystem::Flatcar {
            machines.extend(flatcar_machines(provider));
        }
        machines.push(with("large", |machine| {
            set_proxy(machine);
            machine.settings.host_ca_bundle = certificate().repeat(3);
        }));
        if !["aws", "openstack"].contains(&provider) {
            continue;
        }
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
            with("annotated", annotate),
            with("mirrored", set_mirrors),
            with("hostile", make_hostile),
            with("registered", |machine| {
                machine.operating_system_spec = map(&json!({
                    "rhelSubscriptionManagerUser": "user",
                    "rhelSubscriptionManagerPassword": "word",
                    "attachSubscription": true,
                }));
            }),
        ]);
    }
    machines
}

fn map(value: &Value) -> Map<String, Value> {
    value.as_object().expect("it is a map").clone()
}

/// What only Flatcar has.
fn flatcar_machines(provider: &str) -> Vec<Machine> {
    let mut fixed = Machine::new(provider, "static", "1.34.1");
    fixed.network = map(&json!({
        "cidr": "192.0.2.7/24",
        "gateway": "192.0.2.1",
        "dns": { "servers": ["192.0.2.2", "192.0.2.3"] },
    }));
    let mut without_updates = Machine::new(provider, "without-updates", "1.34.1");
    without_updates.operating_system_spec = map(&json!({ "disableAutoUpdate": true }));
    vec![fixed, without_updates]
}

impl Machine {
    fn new(provider: &str, name: &str, kubelet: &'static str) -> Self {
        Self {
            name: name.to_owned(),
            provider: provider.to_owned(),
            kubelet,
            ip_family: "",
            network: Map::new(),
            operating_system_spec: Map::new(),
            annotations: BTreeMap::new(),
            settings: TenantSettings::default(),
        }
    }
}

fn set_proxy(machine: &mut Machine) {
    machine.settings.http_proxy = Some("http://user:word@proxy:3128".to_owned());
    machine.settings.host_ca_bundle = certificate();
}

/// Every place that a machine fetches from, moved to a mirror.
fn set_mirrors(machine: &mut Machine) {
    machine.settings.variables = URL_VARIABLES
        .map(|name| {
            (
                name.to_owned(),
                format!("https://mirror.example.com/{name}"),
            )
        })
        .into();
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
    let others = [
        "cniPluginsVersion",
        "crictlVersion",
        "containerdVersion",
        "extraPackages",
        "selinuxMode",
        "amazonLinuxRelease",
    ];
    settings.variables = URL_VARIABLES
        .into_iter()
        .chain(others)
        .map(|name| (name.to_owned(), HOSTILE.to_owned()))
        .collect();
}

fn rendered(machine: &Machine, name: &str, profile: &Profile) -> Case {
    let documents = render_for(machine, &profile.whole);
    let artefacts = render_for(machine, &profile.artefacts).config;
    let text = |half: &ConfigHalf| {
        let first = half.files.first().expect("the list is a file");
        let inline = first.content.inline.as_ref().expect("it has content");
        inline.data.clone()
    };
    Case {
        name: format!("{name}/{}/{}", machine.provider, machine.name),
        profile: name.to_owned(),
        reader: Reader::of(profile.whole.spec()),
        bootstrap: Half::new(&documents.bootstrap, &documents.config.bootstrap_config),
        provisioning: Half::new(
            &documents.provisioning,
            &documents.config.provisioning_config,
        ),
        stored: serde_json::to_string(&documents.stored_config).expect("a config is JSON"),
        artefacts: [&artefacts.bootstrap_config, &artefacts.provisioning_config].map(text),
    }
}

fn render_for(machine: &Machine, profile: &CompiledProfile) -> Rendered {
    let mut system = machine.operating_system_spec.clone();
    if profile.spec().os_name == OperatingSystem::Flatcar {
        let utility = json!(profile.spec().provisioning_utility);
        system.insert("provisioningUtility".to_owned(), utility);
    }
    let mut network = machine.network.clone();
    network.insert("ipFamily".to_owned(), json!(machine.ip_family));
    let provider_spec = json!({
        "cloudProvider": machine.provider,
        "cloudProviderSpec": {},
        "operatingSystem": profile.spec().os_name.as_str(),
        "operatingSystemSpec": system,
        "network": network,
        "sshPublicKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDxGPcZzwmWfQzWQfzJz user@host"],
    });
    let fetch_token = SecretText::new(format!("{TOKEN}.{}", "Abc4".repeat(230)));
    let subject = Subject {
        annotations: machine.annotations.clone(),
        kubelet_version: machine.kubelet.to_owned(),
        provider_spec,
        settings: machine.settings.clone(),
        api_server: "https://cluster.example.com:6443".to_owned(),
        authority: certificate(),
        fetch_token,
        bootstrap_kubeconfig: SecretText::new("clusters: []"),
        ..Subject::new()
    };
    subject.render(profile).expect("the profile renders")
}

/// A profile, and what is left of it to print its named templates `artefacts`.
struct Profile {
    whole: CompiledProfile,
    artefacts: CompiledProfile,
}

impl Profile {
    fn new(spec: &OperatingSystemProfileSpec) -> Self {
        let mut lists = spec.clone();
        for half in [&mut lists.bootstrap_config, &mut lists.provisioning_config] {
            half.supported_container_runtimes.clear();
            half.files.truncate(1);
            let file = half.files.first_mut().expect("a half has files");
            let inline = file.content.inline.as_mut().expect("it has content");
            "{% include 'artefacts' %}".clone_into(&mut inline.data);
        }
        let compile = |spec| CompiledProfile::compile(spec).expect("a default profile compiles");
        Self {
            whole: compile(spec),
            artefacts: compile(&lists),
        }
    }
}

impl Half {
    fn new(document: &UserData, config: &ConfigHalf) -> Self {
        let text = |file: &osm::api::profile::File| {
            let inline = file
                .content
                .inline
                .as_ref()
                .expect("a rendered file has content");
            (file.path.clone(), inline.data.clone())
        };
        Self {
            document: document.as_bytes().to_vec(),
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
