//! The machines that the default profiles are rendered for: every provider of each, every
//! Kubernetes version that is supported, and the settings that change what is written.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use osm::{
    api::{
        config::ConfigHalf,
        names::{DerivedNames, KUBELET_CONFIGURATION},
        profile::{
            IgnitionVersion, OperatingSystem, OperatingSystemProfile, OperatingSystemProfileSpec,
        },
        worker_cluster::MachineUpdates,
    },
    render::{UserData, default_profiles::default_profiles, template::CompiledProfile},
};
use serde_json::json;

use crate::{
    machine::{Machine, a_credential_provider},
    readers::{KUBELETS, Reader, providers},
};

/// A word that only the token has; the token itself is as long as a ServiceAccount's.
pub const TOKEN: &str = "eyJhbGciOiJSUzI1NiJ9";

/// The name that machine-controller gives a machine, in place of the documents' marker.
const MACHINE_NAME: &str = "workers-7d9f8-x2v4q";

/// The key that users log in with.
pub const SSH_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDxGPcZzwmWfQzWQfzJzkq1oYUNVBZqTRBWV6cvcgHcS user@host";

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

/// A profile, ready to be rendered.
pub struct Profile {
    pub name: String,
    pub spec: OperatingSystemProfileSpec,
    pub compiled: CompiledProfile,
}

/// What makes a machine another one.
pub type Change = fn(&mut Machine);

/// One machine deployment, rendered. Its name is `profile/provider/what is special`.
pub struct Case {
    pub name: String,
    pub profile: String,
    pub reader: Reader,
    pub machine: Machine,
    /// The Secret that the provisioning document is fetched from.
    pub secret: String,
    pub bootstrap: Half,
    pub provisioning: Half,
    /// The config as it is stored, in JSON.
    pub stored: String,
}

/// One document as a machine gets it, with its own name, and the texts that it was made from.
pub struct Half {
    pub document: Vec<u8>,
    pub texts: BTreeMap<String, String>,
}

static PROFILES: LazyLock<Vec<Profile>> = LazyLock::new(|| {
    let texts = default_profiles().iter().map(|profile| profile.yaml);
    texts.map(Profile::parse).collect()
});

static CASES: LazyLock<Vec<Case>> =
    LazyLock::new(|| PROFILES.iter().flat_map(Profile::cases).collect());

/// The default profiles.
pub fn every_profile() -> &'static [Profile] {
    &PROFILES
}

/// All cases of the default profiles; each is rendered once.
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
    let found = CASES.iter().find(|case| case.name == name);
    found.expect(name)
}

/// The case of a profile that is special like this: on AWS, if the profile is for it.
pub fn case_of(profile: &str, special: &str) -> &'static Case {
    let provider = match profile {
        "osp-flatcar-cloud-init" => "anexia",
        _ => "aws",
    };
    case(&format!("{profile}/{provider}/{special}"))
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

    /// A machine of a provider that gives no names, if the profile is for one.
    pub fn machine(&self) -> Machine {
        let mut providers = providers(&self.spec).peekable();
        let first = providers.peek().copied();
        let provider = providers.find(|provider| *provider != "aws").or(first);
        Machine::new(provider.expect("a profile supports a provider"))
    }

    /// The profile for every provider with every version; the settings vary for two of the
    /// providers, or for the only one.
    pub fn cases(&self) -> Vec<Case> {
        let is_alone = providers(&self.spec).count() == 1;
        let mut cases = Vec::new();
        for provider in providers(&self.spec) {
            let mut add = |special: &str, kubelet, change: Change| {
                let mut machine = Machine::new(provider);
                machine.kubelet = kubelet;
                change(&mut machine);
                cases.push(self.render(special, machine));
            };
            for kubelet in KUBELETS {
                add(kubelet, kubelet, |_| {});
            }
            let is_varied = is_alone || ["aws", "openstack"].contains(&provider);
            let flatcar = self.spec.os_name == OperatingSystem::Flatcar;
            let rhel = self.spec.os_name == OperatingSystem::Rhel;
            for (list, is_for_it) in [
                (EVERYWHERE, true),
                (ON_FLATCAR, flatcar),
                (VARIED, is_varied),
                (ON_RHEL, is_varied && rhel),
            ] {
                for (special, change) in list.iter().filter(|_| is_for_it) {
                    add(special, "1.34.1", *change);
                }
            }
            for kubelet in KUBELETS.iter().filter(|_| is_varied) {
                add(&format!("annotated-{kubelet}"), kubelet, annotate);
            }
        }
        cases
    }

    pub fn render(&self, special: &str, machine: Machine) -> Case {
        let rendered = machine.render(&self.compiled).expect("a profile renders");
        let config = &rendered.config;
        Case {
            name: format!("{}/{}/{special}", self.name, machine.provider),
            profile: self.name.clone(),
            reader: Reader::of(&self.spec),
            secret: DerivedNames::new("kube-system", &machine.deployment).provisioning,
            bootstrap: Half::new(&rendered.bootstrap, &config.bootstrap_config),
            provisioning: Half::new(&rendered.provisioning, &config.provisioning_config),
            stored: serde_json::to_string(&rendered.stored_config).expect("a config is JSON"),
            machine,
        }
    }
}

/// What any machine may have.
const EVERYWHERE: &[(&str, Change)] = &[
    ("proxy", set_proxy),
    ("without-keys", |machine| machine.keys.clear()),
    ("large", |machine| {
        set_proxy(machine);
        machine.settings.host_ca_bundle = certificate().repeat(3);
    }),
];

const ON_FLATCAR: &[(&str, Change)] = &[
    ("static", |machine| {
        machine.network = json!({
            "cidr": "192.0.2.7/24",
            "gateway": "192.0.2.1",
            "dns": { "servers": ["192.0.2.2", "192.0.2.3"] },
        });
    }),
    ("without-updates", |machine| {
        machine.operating_system_spec = [("disableAutoUpdate", json!(true))].into();
    }),
];

const ON_RHEL: &[(&str, Change)] = &[("registered", |machine| {
    machine.operating_system_spec = [
        ("rhelSubscriptionManagerUser", json!("user")),
        ("rhelSubscriptionManagerPassword", json!("word")),
        ("rhelOrganizationName", json!("example")),
        ("rhelActivationKey", json!("key")),
        ("attachSubscription", json!(true)),
    ]
    .into();
})];

const VARIED: &[(&str, Change)] = &[
    ("external", |machine| {
        machine.settings.external_cloud_provider = true;
    }),
    ("dual", |machine| {
        machine.network = json!({ "ipFamily": "IPv4+IPv6" });
        let second = "fd00::10".parse().expect("an address is one");
        machine.settings.cluster_dns.push(second);
    }),
    ("dual-external", |machine| {
        machine.network = json!({ "ipFamily": "IPv6+IPv4" });
        machine.settings.external_cloud_provider = true;
    }),
    ("ipv6", |machine| {
        machine.network = json!({ "ipFamily": "IPv6" });
    }),
    ("following", |machine| {
        machine.settings.machine_updates = MachineUpdates::Reload;
    }),
    // Every place that a machine fetches from.
    ("mirrored", |machine| {
        let mirrored = |name| format!("https://mirror.example.com/{name}");
        machine.settings.variables = URL_VARIABLES
            .map(|name| (name.to_owned(), mirrored(name)))
            .into();
        machine.settings.image_credential_providers = vec![a_credential_provider()];
    }),
    ("hostile", make_hostile),
];

fn set_proxy(machine: &mut Machine) {
    machine.settings.http_proxy = Some("http://user:word@proxy:3128".to_owned());
    machine.settings.host_ca_bundle = certificate();
}

/// Everything that a machine deployment may tell its kubelets.
fn annotate(machine: &mut Machine) {
    let prefix = "v1.kubelet-config.machine-controller.kubermatic.io";
    machine.annotations = [
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
    .into();
    let settings = &mut machine.settings;
    settings.initial_taints.push_str("dedicated=gpu:NoSchedule");
    let gate = "ContextualLogging".to_owned();
    settings.kubelet_feature_gates.insert(gate, false);
    settings.kubelet.from_annotations = true;
    let format = json!({"format": "json"});
    settings.kubelet.fields = [("logging".to_owned(), format)].into_iter().collect();
    let own = (KUBELET_CONFIGURATION, r#"{"shutdownGracePeriod": "30s"}"#);
    machine
        .annotations
        .insert(own.0.to_owned(), own.1.to_owned());
}

fn make_hostile(machine: &mut Machine) {
    let settings = &mut machine.settings;
    settings.http_proxy = Some(HOSTILE.to_owned());
    settings.no_proxy = Some(HOSTILE.to_owned());
    settings.host_ca_bundle.push_str(HOSTILE);
    settings.initial_taints.push_str("a=\"b$c%d\\:NoSchedule");
    let mut program = a_credential_provider();
    let binaries = [&mut program.binaries.amd64, &mut program.binaries.arm64];
    for binary in binaries.into_iter().flatten() {
        binary.url.push_str(HOSTILE);
    }
    settings.image_credential_providers = vec![program];
    let others = [
        "cniPluginsVersion",
        "crictlVersion",
        "containerdVersion",
        "extraPackages",
        "selinuxMode",
        "amazonLinuxRelease",
        "nodeNetwork",
    ];
    settings.variables = URL_VARIABLES
        .into_iter()
        .chain(others)
        .map(|name| (name.to_owned(), HOSTILE.to_owned()))
        .collect();
}

impl Case {
    /// The text of a file of either half.
    pub fn text(&self, path: &str) -> &str {
        let mut texts = self.texts();
        let (_, text) = texts.find(|(at, _)| *at == path).expect(path);
        text
    }

    /// The texts of all files, with their paths.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        let halves = self.bootstrap.texts.iter().chain(&self.provisioning.texts);
        halves.map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The files below a folder, by what follows it.
    pub fn texts_below(&self, folder: &str) -> BTreeMap<String, String> {
        let below = |(path, text): (&str, &str)| {
            Some((path.strip_prefix(folder)?.to_owned(), text.to_owned()))
        };
        self.texts().filter_map(below).collect()
    }

    /// Both halves, with names that a file can have.
    pub fn halves(&self) -> [(String, &Half); 2] {
        let name = self.name.replace('/', "-");
        [
            (format!("{name}-bootstrap"), &self.bootstrap),
            (format!("{name}-provisioning"), &self.provisioning),
        ]
    }

    /// What the profile says that each half will fetch: its named templates `artefacts`, printed.
    pub fn artefacts(&self) -> [String; 2] {
        let mut profiles = PROFILES.iter();
        let profile = profiles.find(|profile| profile.name == self.profile);
        let mut lists = profile.expect("it is a default profile").spec.clone();
        for half in [&mut lists.bootstrap_config, &mut lists.provisioning_config] {
            let file = half.files.first_mut().expect("a half has files");
            let inline = file.content.inline.as_mut().expect("it has content");
            "{% include 'artefacts' %}".clone_into(&mut inline.data);
        }
        let lists = CompiledProfile::compile(&lists).expect("a default profile compiles");
        let rendered = self.machine.render(&lists).expect("the lists render");
        let config = rendered.config;
        [&config.bootstrap_config, &config.provisioning_config].map(|half| {
            let list = half.files.first().expect("the list is a file");
            let inline = list.content.inline.as_ref().expect("it has content");
            inline.data.clone()
        })
    }

    /// What the provisioning half lists of this kind.
    pub fn listed(&self, kind: &str) -> BTreeSet<String> {
        let [_, provisioning] = self.artefacts();
        let of_line = |line: &str| {
            let (found, value) = line.split_once(' ').expect("a line is `KIND VALUE`");
            (found == kind).then(|| value.to_owned())
        };
        let lines = provisioning.lines().filter(|line| !line.is_empty());
        lines.filter_map(of_line).collect()
    }
}

impl Half {
    fn new(document: &UserData, config: &ConfigHalf) -> Self {
        let text = std::str::from_utf8(document.as_bytes()).expect("a document is text");
        Self {
            document: text.replace("<MACHINE_NAME>", MACHINE_NAME).into_bytes(),
            texts: texts_of(config),
        }
    }
}

/// The contents of a half's files, by path.
fn texts_of(half: &ConfigHalf) -> BTreeMap<String, String> {
    let files = half.files.iter().filter_map(|file| {
        let inline = file.content.inline.as_ref()?;
        Some((file.path.clone(), inline.data.clone()))
    });
    files.collect()
}

/// A certificate authority's certificate by its size: nothing here verifies with it.
pub fn certificate() -> String {
    let line = "MIIDBTCCAe2gAwIBAgIIQ1cW2l0vS1owDQYJKoZIhvcNAQELBQAwFTETMBEGA1UE\n";
    format!(
        "-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n",
        line.repeat(17)
    )
}

/// Each content once, by the name of what had it first.
pub fn distinct<T: Ord + Clone>(named: impl Iterator<Item = (String, T)>) -> Vec<(String, T)> {
    let mut seen = BTreeSet::new();
    named
        .filter(|(_, content)| seen.insert(content.clone()))
        .collect()
}
