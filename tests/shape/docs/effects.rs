//! The page of effects: what each setting takes on running machines, with each default profile.

use kube::CustomResourceExt as _;
use osm::{
    api::{change::Class, worker_cluster::WorkerCluster},
    render::{
        default_profiles::default_profiles, input::RegistryCredential, template::CompiledProfile,
    },
    rules::effect::{Documents, class, effects},
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
        ("noProxy", json!("intern.example")),
        ("pauseImage", json!("mirror.example/pause:3.9")),
        (
            "registryMirrors",
            json!({"docker.io": ["https://mirror.example"]}),
        ),
        ("variables", json!({"name": "value"})),
    ]
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
fn others() -> [(&'static str, Change); 8] {
    [
        ("the kubelet's patch version", |it| Subject {
            kubelet_version: "1.34.2".to_owned(),
            ..it
        }),
        ("the kubelet's minor version", |it| Subject {
            kubelet_version: "1.35.0".to_owned(),
            ..it
        }),
        ("the annotation `…/MaxPods`", |it| {
            let name = "v1.kubelet-config.machine-controller.kubermatic.io/MaxPods";
            Subject {
                annotations: [(name.to_owned(), "50".to_owned())].into(),
                ..it
            }
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
    let mut rows = Vec::new();
    for (name, value) in settings {
        let settings = with((name, value));
        rows.push(row(&format!("`spec.{name}`"), |it| Subject {
            settings: settings.clone(),
            ..it
        }));
    }
    rows.extend(rest.into_iter().map(|(name, change)| row(name, change)));
    check_table("effects.md", &rows);
}
