//! The page of effects: what each setting takes on running machines, with each default profile.

use kube::CustomResourceExt as _;
use osm::{
    api::{change::Class, worker_cluster::WorkerCluster},
    render::{
        default_profiles::default_profiles, input::RegistryCredential, kubelet::SETTINGS,
        template::CompiledProfile,
    },
    rules::effect::{Documents, class, effects},
    settings::drop_in::CONTROLLER_FLAGS,
    tenant::{secret_text::SecretText, settings::TenantSettings},
};
use serde_json::{Value, json};

use super::{OperatingSystemProfile, Subject, check_table};

/// A value of each setting that changes a document.
fn settings() -> Vec<(&'static str, Value)> {
    let binary = json!({"url": "https://mirror.example/ecr", "sha256": "0".repeat(64)});
    let provider = json!({
        "name": "ecr-credential-provider", "matchImages": ["*.dkr.ecr.*.amazonaws.com"],
        "defaultCacheDuration": "12h", "binaries": {"amd64": binary},
    });
    vec![
        ("clusterDNS", json!(["10.0.0.10"])),
        ("deviceOwnershipFromSecurityContext", json!(true)),
        ("externalCloudProvider", json!(true)),
        ("hostCABundle", json!("bundle")),
        ("httpProxy", json!("http://b.example:3128")),
        ("imageCredentialProviders", json!([provider])),
        ("initialTaints", json!("a=b:NoExecute")),
        ("insecureRegistries", json!(["registry.example:5000"])),
        ("kubeletConfiguration", json!({"podPidsLimit": 4096})),
        ("kubeletFeatureGates", json!({"NodeSwap": true})),
        ("machineUpdates", json!("Reload")),
        ("noProxy", json!("intern.example")),
        ("pauseImage", json!("mirror.example/pause:3.9")),
        (
            "registryMirrors",
            json!({"docker.io": ["https://mirror.example"]}),
        ),
        ("variables", json!({"name": "value"})),
    ]
}

/// The flags of `osm-controller` that make a setting, and the row of that.
const FLAGS: [(&str, &str); 16] = [
    ("ca-bundle", "hostCABundle"),
    ("cluster-dns", "clusterDNS"),
    (
        "device-ownership-from-security-context",
        "deviceOwnershipFromSecurityContext",
    ),
    ("external-cloud-provider", "externalCloudProvider"),
    ("host-ca-bundle", "hostCABundle"),
    ("initial-taints", "initialTaints"),
    ("kubernetes-ca-bundle", "spec.kubernetesCABundle"),
    ("node-containerd-registry-mirrors", "registryMirrors"),
    ("node-http-proxy", "httpProxy"),
    ("node-insecure-registries", "insecureRegistries"),
    ("node-kubelet-feature-gates", "kubeletFeatureGates"),
    ("node-no-proxy", "noProxy"),
    ("node-registry-credentials-secret", "registry credentials"),
    ("node-registry-mirrors", "registryMirrors"),
    (
        "override-bootstrap-kubelet-apiserver",
        "spec.apiServerOverride",
    ),
    ("pause-image", "pauseImage"),
];

/// Its flags about how it works, and not about what machines get.
const FLAGS_OF_MANAGER: [&str; 14] = [
    "bootstrap-token-service-account-name",
    "container-runtime",
    "disable-default-osps",
    "health-probe-address",
    "kubeconfig",
    "leader-elect",
    "log-debug",
    "log-format",
    "metrics-address",
    "namespace",
    "worker-cluster-kubeconfig",
    "worker-count",
    "worker-health-probe-address",
    "worker-metrics-address",
];

/// A value of each setting of a kubelet that an annotation can make.
fn annotations() -> Vec<(String, String)> {
    let value = |name: &str| match name {
        "ContainerLogMaxFiles" | "MaxPods" => Some("50"),
        "ContainerLogMaxSize" => Some("50Mi"),
        "EvictionHard" => Some("memory.available<200Mi"),
        "ImageGCHighThresholdPercent" => Some("90"),
        "ImageGCLowThresholdPercent" => Some("70"),
        "ImageMaximumGCAge" | "ImageMinimumGCAge" => Some("24h"),
        "KubeReserved" | "SystemReserved" => Some("cpu=300m"),
        _ => None,
    };
    let of_kubelet = SETTINGS.into_iter().map(|name| {
        let prefix = "v1.kubelet-config.machine-controller.kubermatic.io";
        (
            format!("{prefix}/{name}"),
            value(name).expect(name).to_owned(),
        )
    });
    of_kubelet.collect()
}

/// Settings about how the manager works, and not about what machines get.
const OF_MANAGER: [&str; 17] = [
    "adoption",
    "confirmedClusterUid",
    "credentials",
    "defaultProfileContent",
    "defaultProfileNames",
    "defaultProfiles",
    "home",
    "kubeconfigSecretRef",
    "kubeletConfigurationFromAnnotations",
    "kubeletFeatureGatesFromAnnotations",
    "nodeCredentials",
    "onRemoval",
    "paused",
    "profileAnnotation",
    "registryCredentialsSecretRef",
    "rollout",
    "storedConfig",
];

type Change = fn(Subject) -> Subject;

/// Everything else that a document is made from.
fn others() -> [(&'static str, Change); 7] {
    [
        ("the kubelet's patch version", |it| Subject {
            kubelet_version: "1.34.2".to_owned(),
            ..it
        }),
        ("the kubelet's minor version", |it| Subject {
            kubelet_version: "1.35.0".to_owned(),
            ..it
        }),
        ("an SSH key", |mut it| {
            let keys = json!(["ssh-ed25519 AAAA ops@example"]);
            let spec = it.provider_spec.as_object_mut().expect("it is one");
            spec.insert("sshPublicKeys".to_owned(), keys);
            it
        }),
        ("registry credentials", |it| {
            let credential = RegistryCredential {
                username: SecretText::new("name"),
                password: SecretText::new("hidden-password"),
                ..RegistryCredential::default()
            };
            Subject {
                registry_credentials: [("registry.example".to_owned(), credential)].into(),
                ..it
            }
        }),
        (
            "the API server's address, or `spec.apiServerOverride`",
            |it| Subject {
                api_server: "https://b.example.com".to_owned(),
                ..it
            },
        ),
        (
            "its certificate authority, or `spec.kubernetesCABundle`",
            |it| Subject {
                authority: "another".to_owned(),
                ..it
            },
        ),
        ("the token that machines fetch with", |it| Subject {
            fetch_token: SecretText::new("hidden-other"),
            ..it
        }),
    ]
}

/// The settings of a tenant with a proxy, and with one more.
fn with((name, value): (&str, Value)) -> TenantSettings {
    let mut spec = json!({
        "kubeconfigSecretRef": {"name": "a"}, "httpProxy": "http://a.example:3128",
    });
    let fields = spec.as_object_mut().expect("it is one");
    fields.insert(name.to_owned(), value);
    let spec = serde_json::from_value(spec).expect(name);
    TenantSettings::default().with(&spec).expect(name)
}

fn subject(profile: &OperatingSystemProfile) -> Subject {
    let system = serde_json::to_value(&profile.spec.os_name).expect("a plain value");
    Subject {
        provider_spec: json!({
            "operatingSystem": system, "cloudProvider": "openstack", "cloudProviderSpec": {},
            "operatingSystemSpec": {
                "provisioningUtility": profile.spec.provisioning_utility,
            },
        }),
        settings: with(("paused", json!(false))),
        ..Subject::new()
    }
}

/// The row of a change: its class, or the profiles of each class.
fn row(name: &str, change: impl Fn(Subject) -> Subject) -> String {
    let mut found: Vec<(Class, Vec<&str>)> = Vec::new();
    for default in default_profiles() {
        let profile: OperatingSystemProfile = serde_saphyr::from_str(default.yaml).expect(name);
        let compiled = CompiledProfile::compile(&profile.spec).expect(name);
        let old = subject(&profile).render(&compiled).expect(name);
        let new = change(subject(&profile)).render(&compiled).expect(name);
        let class = class(&effects(
            Documents::of(&old),
            Documents::of(&new),
            &profile.spec.effects,
        ));
        match found.iter_mut().find(|(known, _)| *known == class) {
            Some((_, profiles)) => profiles.push(default.name),
            None => found.push((class, vec![default.name])),
        }
    }
    found.sort_by_key(|(_, profiles)| std::cmp::Reverse(profiles.len()));
    let cells = found
        .iter()
        .enumerate()
        .map(|(index, (class, profiles))| match index {
            0 => format!("`{class}`"),
            _ => format!("`{class}` with `{}`", profiles.join("`, `")),
        });
    format!("| {name} | {} |\n", cells.collect::<Vec<_>>().join(", "))
}

/// The flags that make a setting, in the row of that.
fn flags_of(setting: &str) -> String {
    let flags = FLAGS.iter().filter(|(_, of)| *of == setting);
    let flags = flags.map(|(flag, _)| format!(", `-{flag}`"));
    flags.collect::<Vec<_>>().concat()
}

#[test]
fn the_page_has_what_each_setting_takes() {
    let (settings, rest) = (settings(), others());
    let schema = serde_json::to_value(WorkerCluster::crd()).expect("plain values");
    let spec = schema.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties");
    let fields = spec.and_then(Value::as_object).expect("it has fields");
    for field in fields.keys() {
        let is_of_rest = |name: &str| name.contains(&format!("`spec.{field}`"));
        let is_known = settings.iter().any(|(name, _)| name == field)
            || rest.iter().any(|(name, _)| is_of_rest(name))
            || OF_MANAGER.contains(&field.as_str());
        assert!(is_known, "{field} has no row");
    }
    let flags = CONTROLLER_FLAGS.iter().map(|it| it.name);
    for flag in flags.filter(|flag| !FLAGS_OF_MANAGER.contains(flag)) {
        let of = FLAGS.iter().find(|(name, _)| *name == flag);
        let (_, of) = of.expect(flag);
        let is_known = settings.iter().any(|(name, _)| name == of)
            || rest.iter().any(|(name, _)| name.contains(of));
        assert!(is_known, "there is no row {of}");
    }
    let mut rows = Vec::new();
    for (name, value) in settings {
        let settings = with((name, value));
        let called = format!("`spec.{name}`{}", flags_of(name));
        rows.push(row(&called, |it| Subject {
            settings: settings.clone(),
            ..it
        }));
    }
    for (key, value) in annotations() {
        let (_, name) = key.split_once('/').expect("it has a prefix");
        rows.push(row(&format!("the annotation `…/{name}`"), |it| Subject {
            annotations: [(key.clone(), value.clone())].into(),
            ..it
        }));
    }
    for (name, change) in rest {
        let of = FLAGS.iter().find(|(_, of)| name.contains(of));
        let called = of.map_or_else(String::new, |(_, of)| flags_of(of));
        rows.push(row(&format!("{name}{called}"), change));
    }
    check_table("effects.md", &rows);
}
