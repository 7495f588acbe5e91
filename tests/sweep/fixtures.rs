//! What the clusters of a world hold, as plain values to be changed by field.

use std::sync::{Arc, OnceLock};

use base64::{Engine, engine::general_purpose::STANDARD};
pub use fake_cluster::cluster_info;
use osm::{
    api::{
        names::{FLEET_LABEL, VIEW},
        profile::OperatingSystemProfileSpec,
    },
    controllers::profile_store::content_digest,
    fleet::sharding::observed_leases::LAST,
    plan::default_profile::DefaultProfile,
};
use serde_json::{Value, json};

/// The definitions and roles of the management cluster.
pub fn management() -> &'static [Value] {
    static OBJECTS: OnceLock<Vec<Value>> = OnceLock::new();
    OBJECTS.get_or_init(|| {
        parse(&[
            include_str!("../../manifests/crds/operatingsystemconfigs.yaml"),
            include_str!("../../manifests/crds/operatingsystemprofiles.yaml"),
            include_str!("../../manifests/crds/workerclusters.yaml"),
            include_str!("../../manifests/rbac/management.yaml"),
            include_str!("../../manifests/rbac/management-all-namespaces.yaml"),
        ])
    })
}

/// The definitions and roles of a worker cluster.
pub fn worker() -> &'static [Value] {
    static OBJECTS: OnceLock<Vec<Value>> = OnceLock::new();
    OBJECTS.get_or_init(|| {
        parse(&[
            include_str!("../../tenants-example/worker-crds/machinedeployments.yaml"),
            include_str!("../../manifests/rbac/worker.yaml"),
            include_str!("../../manifests/rbac/worker-adoption.yaml"),
            include_str!("../../manifests/rbac/worker-node-credentials.yaml"),
        ])
    })
}

/// Parsed once for all worlds of a test process.
fn parse(manifests: &[&str]) -> Vec<Value> {
    let documents = manifests.iter().flat_map(|manifest| {
        serde_saphyr::from_multiple::<Value>(manifest).expect("the project's manifests are YAML")
    });
    documents.filter(Value::is_object).collect()
}

/// The annotation of a machine deployment that names its profile.
pub const PROFILE: &str = "k8c.io/operating-system-profile";
/// The annotation that machine-controller raises.
pub const REVISION: &str = "machinedeployment.clusters.k8s.io/revision";

/// A namespace.
pub fn a_namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// What the last replica of a fleet leaves behind: who comes needs not wait for anybody unseen.
pub fn the_last_lease(fleet: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": format!("{fleet}-last"), "namespace": "operating-system-manager",
            "labels": {FLEET_LABEL: fleet},
            "annotations": {VIEW: LAST},
        },
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 15},
    })
}

/// The same certificate in every run of one test process: it stands in documents.
pub fn certificate() -> &'static str {
    static CERTIFICATE: OnceLock<String> = OnceLock::new();
    CERTIFICATE.get_or_init(|| {
        rcgen::generate_simple_self_signed(["authority".to_owned()])
            .expect("a certificate can be made")
            .cert
            .pem()
    })
}

/// The server of a worker cluster, by its name.
pub fn server(name: &str) -> String {
    format!("https://{name}.example:6443")
}

/// The Secret that registers a worker cluster, in the namespace of the same name.
pub fn a_registration(name: &str, token: &str) -> Value {
    a_registration_by(name, token, certificate())
}

/// The same with another certificate authority, in PEM.
pub fn a_registration_by(name: &str, token: &str, authority: &str) -> Value {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "there",
        "clusters": [{
            "name": "there",
            "cluster": {
                "server": server(name),
                "certificate-authority-data": STANDARD.encode(authority),
            },
        }],
        "contexts": [{"name": "there", "context": {"cluster": "there", "user": "osm"}}],
        "users": [{"name": "osm", "user": {"token": token}}],
    });
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": name,
            "labels": {"operatingsystemmanager.k8c.io/worker-cluster": "true"},
        },
        "data": {"kubeconfig": STANDARD.encode(kubeconfig.to_string())},
    })
}

/// A WorkerCluster that says something else than the default.
pub fn a_worker_cluster(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("kubeconfigSecretRef".to_owned(), json!({"name": name}));
    }
    json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1",
        "kind": "WorkerCluster",
        "metadata": {"name": name, "namespace": name},
        "spec": spec,
    })
}

/// A machine deployment in `kube-system` that machine-controller has seen.
pub fn a_machine_deployment(name: &str) -> Value {
    json!({
        "apiVersion": "cluster.k8s.io/v1alpha1",
        "kind": "MachineDeployment",
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "annotations": {PROFILE: "own", REVISION: "1"},
        },
        "spec": {
            "replicas": 1,
            "template": {"spec": {
                "providerSpec": {"value": {
                    "operatingSystem": "ubuntu",
                    "cloudProvider": "openstack",
                    "cloudProviderSpec": {"password": "cloud-secret"},
                }},
                "versions": {"kubelet": "1.35.2"},
            }},
        },
    })
}

/// A profile of the tenant's own, small: what it prints stands in the documents as it is.
pub fn a_profile(namespace: &str, version: &str, text: &str) -> Value {
    let file = |path: &str, data: &str| json!({"path": path, "permissions": 644, "content": {"inline": {"data": data}}});
    let bootstrap = "fetch with {{ fetch_token }} from {{ ServerURL }}\n";
    json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1",
        "kind": "OperatingSystemProfile",
        "metadata": {"name": "own", "namespace": namespace},
        "spec": {
            "osName": "ubuntu",
            "osVersion": "24.04",
            "version": version,
            "templateLanguage": "Jinja",
            // As the definition has it by default: what is installed equals what was meant.
            "provisioningUtility": "cloud-init",
            "supportedCloudProviders": [{"name": "openstack"}, {"name": "edge"}],
            "bootstrapConfig": {"files": [file("/bootstrap", bootstrap)]},
            "provisioningConfig": {"files": [file("/provision", text)]},
        },
    })
}

/// Small profiles in place of those that we ship: installing a third of a megabyte for each tenant
/// would take most of the time of a world.
pub fn default_profiles(version: &str, text: &str) -> Arc<[DefaultProfile]> {
    let spec = a_profile("", version, text)
        .get_mut("spec")
        .map(Value::take);
    let spec = serde_json::from_value(spec.unwrap_or_default()).expect("a profile has a spec");
    let default = |name: &str| DefaultProfile {
        name: name.to_owned(),
        content: content_digest(&spec),
        spec: OperatingSystemProfileSpec::clone(&spec),
    };
    [default("osp-flatcar"), default("osp-ubuntu")].into()
}
