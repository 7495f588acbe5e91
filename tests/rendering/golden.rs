//! The documents against vectors that others made: the bytes that users have today.
//!
//! The vectors are no part of the project. They are read from the folder that `OSM_CONFORMANCE`
//! names, or from `../shared/conformance`; where there is neither, the tests say so and pass.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use kube::ResourceExt;
use osm::{
    api::{
        config::OperatingSystemConfig,
        machine_deployment::MachineDeployment,
        profile::{OperatingSystemProfile, OperatingSystemProfileSpec},
    },
    client::permits::Priority,
    render::{
        Limits, Rendered,
        convert::{compare, convert},
        input::{
            ClusterInput, MachineDeploymentInput, ProviderConfig, RegistryCredential, RenderInput,
        },
        render,
        template::CompiledProfile,
    },
    render_worker::Pool,
    tenant::{
        id::TenantId,
        secret_text::SecretText,
        settings::{MirrorOrder, TenantSettings},
    },
};
use tokio::runtime::Runtime;

use crate::subject::Subject;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("there are threads"));
static WORKERS: LazyLock<Pool> = LazyLock::new(|| Pool::new(env!("CARGO_BIN_EXE_osm")));

#[expect(
    clippy::disallowed_methods,
    reason = "the vectors lie outside of the project, and only their finder knows where"
)]
fn vectors() -> Option<PathBuf> {
    let folder = std::env::var("OSM_CONFORMANCE").map_or_else(
        |_| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance"),
        PathBuf::from,
    );
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("left out: no conformance vectors at {}", folder.display());
    None
}

/// The folders of the cases, each a profile with a machine deployment and what they must become.
fn cases(vectors: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = fs::read_dir(vectors.join("reconcile"))
        .expect("the vectors have a folder of cases")
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    assert!(!folders.is_empty(), "the vectors have no case");
    folders
}

/// What a render comes to, which is the same in this process and in a worker.
fn rendered(input: &RenderInput<'_>) -> Rendered {
    let limits = Limits::default();
    let rendered = render(input, &limits).expect("the profile renders");
    let in_worker = RUNTIME.block_on(async {
        let tenant = TenantId::new("tenant-berlin");
        let slot = WORKERS.acquire(&tenant, Priority::High).await;
        slot.render(input, &limits).await
    });
    let weighed = in_worker.expect("it answers").expect("the profile renders");
    let documents = weighed.documents.expect("it fits");
    assert!(
        documents.rendered == rendered,
        "a worker renders something else"
    );
    rendered
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> String {
    eprintln!("{}: {error}", path.display());
    String::new()
}

#[test]
fn containerds_files_are_equal_to_the_byte() {
    let Some(vectors) = vectors() else { return };
    let folder = vectors.join("containerd");
    let cases: BTreeMap<String, ContainerdCase> =
        serde_saphyr::from_str(&read(&folder.join("inputs.yaml"))).unwrap();
    assert!(!cases.is_empty());
    for (name, case) in cases {
        let expected = read(&folder.join(format!("{name}.golden")));
        assert_eq!(containerd_files(&case), expected, "{name}");
    }
}

/// What one containerd vector is made from.
#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct ContainerdCase {
    registry_mirrors: BTreeMap<String, Vec<String>>,
    insecure_registries: Vec<String>,
    registry_credentials: BTreeMap<String, Credential>,
    pause_image: String,
    device_ownership_from_security_context: bool,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Credential {
    username: String,
    password: String,
    auth: String,
    identitytoken: String,
}

/// A profile with containerd's config.toml alone, rendered, in the layout of the vectors.
fn containerd_files(case: &ContainerdCase) -> String {
    let profile: OperatingSystemProfileSpec = serde_json::from_value(serde_json::json!({
        "osName": "ubuntu",
        "osVersion": "24.04",
        "version": "v1.0.0",
        "templateLanguage": "Jinja",
        "supportedCloudProviders": [],
        "bootstrapConfig": {},
        "provisioningConfig": {"files": [{
            "path": "/etc/containerd/config.toml",
            "content": {"inline": {"data": "{{ ContainerRuntimeConfig }}"}},
        }]},
    }))
    .expect("the profile is written above");
    let profile = CompiledProfile::compile(&profile).expect("its one template is valid");
    let settings = TenantSettings {
        registry_mirrors: case.registry_mirrors.clone(),
        insecure_registries: case.insecure_registries.clone(),
        pause_image: case.pause_image.clone(),
        device_ownership_from_security_context: case.device_ownership_from_security_context,
        mirror_order: MirrorOrder::ByUrl,
        ..TenantSettings::default()
    };
    let credentials = case
        .registry_credentials
        .iter()
        .map(|(registry, credential)| {
            let credential = RegistryCredential {
                username: SecretText::new(&credential.username),
                password: SecretText::new(&credential.password),
                auth: SecretText::new(&credential.auth),
                identity_token: SecretText::new(&credential.identitytoken),
            };
            (registry.clone(), credential)
        });
    let subject = Subject {
        provider_spec: serde_json::json!({"operatingSystem": "ubuntu", "cloudProvider": "aws"}),
        settings,
        registry_credentials: credentials.collect(),
        ..Subject::new()
    };
    let rendered = subject.with_input(&profile, |input| Ok(rendered(input)));
    let rendered = rendered.expect("the provider is written above");
    let files = rendered.config.provisioning_config.files.into_iter();
    files
        .map(|file| {
            let data = file.content.inline.unwrap_or_default().data;
            format!("# {}\n{data}", file.path)
        })
        .collect::<Vec<_>>()
        .join("---\n")
}

/// The part of a vector's inputs that is the tenant's and the worker cluster's.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Inputs {
    namespace: String,
    external_cloud_provider: bool,
    #[serde(rename = "clusterDNS")]
    cluster_dns: Vec<std::net::IpAddr>,
    kubelet_feature_gates: BTreeMap<String, bool>,
    http_proxy: String,
    no_proxy: String,
    initial_taints: String,
    pause_image: String,
    insecure_registries: Vec<String>,
    registry_mirrors: BTreeMap<String, Vec<String>>,
    #[serde(rename = "kubernetesCACertificate")]
    kubernetes_ca_certificate: String,
    #[serde(rename = "hostCACertificate")]
    host_ca_certificate: String,
    observed: Observed,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Observed {
    api_server: String,
    fetch_token: String,
}

/// The whole way: a profile in Go's language, rendered with a machine deployment.
#[test]
fn profiles_that_users_have_today_render_to_the_byte() {
    let Some(vectors) = vectors() else { return };
    for folder in cases(&vectors) {
        let case = folder.display();
        let inputs: Inputs = serde_saphyr::from_str(&read(&folder.join("inputs.yaml"))).unwrap();
        let rendered = render_vector(&folder, &inputs);
        let expected: OperatingSystemConfig =
            serde_saphyr::from_str(&read(&folder.join("expected-config.yaml"))).unwrap();
        assert_eq!(
            serde_json::to_value(&rendered.config).unwrap(),
            serde_json::to_value(&expected.spec).unwrap(),
            "{case}"
        );
        for (document, file) in [
            (&rendered.bootstrap, "expected-bootstrap"),
            (&rendered.provisioning, "expected-provisioning"),
        ] {
            let document = String::from_utf8_lossy(document.as_bytes()).into_owned();
            assert_eq!(document, read(&folder.join(file)), "{case}, {file}");
        }
    }
}

fn render_vector(folder: &Path, inputs: &Inputs) -> Rendered {
    let profile: OperatingSystemProfile =
        serde_saphyr::from_str(&read(&folder.join("profile.yaml"))).expect("a profile");
    let machine_deployment: MachineDeployment =
        serde_saphyr::from_str(&read(&folder.join("machine-deployment.yaml")))
            .expect("a machine deployment");
    let spec = &machine_deployment.spec.template.spec;
    let provider =
        ProviderConfig::decode(&spec.provider_spec.json()).expect("a valid provider spec");
    let present = |text: &String| (!text.is_empty()).then(|| text.clone());
    let settings = TenantSettings {
        cluster_dns: inputs.cluster_dns.clone(),
        external_cloud_provider: inputs.external_cloud_provider,
        http_proxy: present(&inputs.http_proxy),
        no_proxy: present(&inputs.no_proxy),
        host_ca_bundle: inputs.host_ca_certificate.clone(),
        initial_taints: inputs.initial_taints.clone(),
        pause_image: inputs.pause_image.clone(),
        kubelet_feature_gates: inputs.kubelet_feature_gates.clone(),
        insecure_registries: inputs.insecure_registries.clone(),
        registry_mirrors: inputs.registry_mirrors.clone(),
        mirror_order: MirrorOrder::ByUrl,
        ..TenantSettings::default()
    };
    let input = RenderInput {
        machine_deployment: MachineDeploymentInput {
            name: machine_deployment.metadata.name.as_deref().expect("a name"),
            namespace: &inputs.namespace,
            annotations: machine_deployment.annotations(),
            kubelet_version: spec.versions.kubelet.as_str(),
            provider: &provider,
        },
        profile: &CompiledProfile::compile(&profile.spec).expect("the profile compiles"),
        settings: &settings,
        cluster: ClusterInput {
            api_server: &inputs.observed.api_server,
            kubernetes_ca_certificate: &inputs.kubernetes_ca_certificate,
            fetch_token: &SecretText::new(&inputs.observed.fetch_token),
            own_fetch_token: None,
            bootstrap_kubeconfig: &SecretText::default(),
        },
        registry_credentials: &BTreeMap::new(),
    };
    rendered(&input)
}

#[test]
fn known_profiles_render_the_same_bytes_when_they_are_converted() {
    let Some(vectors) = vectors() else { return };
    let mut equal = 0;
    for folder in cases(&vectors) {
        let case = folder.display();
        let text = read(&folder.join("profile.yaml"));
        let profile: OperatingSystemProfile = serde_saphyr::from_str(&text).unwrap();
        let converted = match convert(&profile.spec) {
            Ok(converted) => converted,
            Err(refusal) => {
                eprintln!("{case} is not converted: {refusal}");
                continue;
            }
        };
        let comparison = compare(&profile.spec, &converted, 300).unwrap();
        assert_eq!(comparison.different, [], "{case}");
        equal += comparison.equal;
    }
    assert!(equal > 400, "only {equal} renders were equal");
}
