//! `WorkerCluster`: what an operator says about one worker cluster, and what became of it.

mod rollout;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use self::rollout::{MachineReplacement, MachineRollout, ProfileRollout, Rollout};
use super::{condition::ConditionType, profile::null_is_absent};

/// What an operator says about a worker cluster. Everything but the Secret's name has a default.
#[expect(
    clippy::duplicated_attributes,
    reason = "each print column names its type"
)]
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq, KubeSchema)]
#[kube(
    group = "operatingsystemmanager.k8c.io",
    version = "v1alpha1",
    kind = "WorkerCluster",
    plural = "workerclusters",
    shortname = "wc",
    namespaced,
    status = "WorkerClusterStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "One worker cluster of the fleet: its settings and its state.",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].reason"#
    ),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
    printcolumn(name = "Served", type_ = "string", json_path = ".status.served"),
    printcolumn(
        name = "Outdated",
        type_ = "integer",
        json_path = ".status.outdated",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Server",
        type_ = "string",
        json_path = ".status.server",
        priority = 1
    ),
    printcolumn(
        name = "Paused",
        type_ = "boolean",
        json_path = ".spec.paused",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].message"#,
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct WorkerClusterSpec {
    /// The Secret with the kubeconfig, in the same namespace.
    pub kubeconfig_secret_ref: SecretReference,
    /// Whether the worker cluster is left alone.
    #[serde(default)]
    pub paused: bool,
    /// What becomes of the machine deployments when the registration is removed.
    #[serde(default)]
    pub on_removal: OnRemoval,
    /// The uid of the worker cluster's kube-system namespace that the operator accepts in place of
    /// the pinned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed_cluster_uid: Option<String>,
    /// What happens to a machine deployment that names no profile.
    #[serde(default)]
    pub profile_annotation: ProfileAnnotation,
    /// What happens to the default profiles of the tenant.
    #[serde(default)]
    pub default_profiles: DefaultProfiles,
    /// What to take over from the manager that served the worker cluster before. Read once.
    #[serde(default)]
    pub adoption: Adoption,
    /// Which default profiles are installed, by name. Absent means all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub default_profile_names: Option<Vec<String>>,
    /// How newer versions reach the tenant. Absent means as the fleet's defaults say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// The cluster's DNS servers.
    #[serde(
        default,
        rename = "clusterDNS",
        skip_serializing_if = "Option::is_none"
    )]
    pub cluster_dns: Option<Vec<String>>,
    /// Whether the cloud provider's controllers run outside of Kubernetes' own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_cloud_provider: Option<bool>,
    /// The HTTP proxy of the nodes.
    #[serde(default, rename = "httpProxy", skip_serializing_if = "Option::is_none")]
    pub http_proxy: Option<String>,
    /// What the nodes reach without a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<String>,
    /// Certificates that the nodes trust besides those of their distribution, in PEM.
    #[serde(
        default,
        rename = "hostCABundle",
        skip_serializing_if = "Option::is_none"
    )]
    pub host_ca_bundle: Option<String>,
    /// The API server's certificate authority, in PEM, in place of the kubeconfig's.
    #[serde(
        default,
        rename = "kubernetesCABundle",
        skip_serializing_if = "Option::is_none"
    )]
    pub kubernetes_ca_bundle: Option<String>,
    /// The sandbox image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_image: Option<String>,
    /// The taints that a kubelet registers its node with, as the kubelet's flag has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_taints: Option<String>,
    /// The kubelet's feature gates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_feature_gates: Option<BTreeMap<String, bool>>,
    /// Whether annotations of a machine deployment may set feature gates of its kubelets, over the
    /// tenant's own. Absent means that they are not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_feature_gates_from_annotations: Option<bool>,
    /// Whether devices belong to the user of the container's security context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_ownership_from_security_context: Option<bool>,
    /// Registries that are reached without a verified certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure_registries: Option<Vec<String>>,
    /// Mirrors by registry, in the order of trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_mirrors: Option<BTreeMap<String, Vec<String>>>,
    /// The Secret with registry credentials, in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_credentials_secret_ref: Option<SecretReference>,
    /// The API server's URL that nodes use, in place of the one that was found.
    #[serde(
        default,
        rename = "apiServerOverride",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(regex(pattern = r"^(https://\S+)?$"))]
    pub api_server_override: Option<String>,
    /// Whose token machines fetch their documents with. Absent means `Shared`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_credentials: Option<NodeCredentials>,
    /// What a stored config says in place of secrets. Absent means `Markers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_config: Option<StoredConfig>,
    /// Free variables for templates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
}

/// A Secret in the same namespace.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
pub struct SecretReference {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// What becomes of the machine deployments when the registration is removed.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum OnRemoval {
    /// They keep our finalizer, and what was made for them stays.
    #[default]
    Keep,
    /// They lose our finalizer; what was made for them stays.
    Release,
    /// They lose our finalizer, and what was made for them goes.
    Purge,
}

/// What happens to a machine deployment that names no profile.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum ProfileAnnotation {
    /// It gets the default profile of its operating system.
    #[default]
    Default,
    /// It is left alone.
    RequireAnnotation,
}

/// What happens to the default profiles of a tenant.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum DefaultProfiles {
    /// They are installed, and replaced when their version is another than ours, unless a newer
    /// release installed them.
    #[default]
    Replace,
    /// They are installed where they are missing, and left alone after that.
    Keep,
    /// They are not installed.
    Disabled,
}

/// What to take over from the manager that served the worker cluster before.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum Adoption {
    /// Copies the profiles that machine deployments name into the tenant's namespace, up to its
    /// quota. Default profiles do not replace them.
    #[default]
    Profiles,
    /// Copies no profile. Machine deployments use the profiles of the tenant's namespace.
    Nothing,
}

/// Whose token machines fetch their documents with.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum NodeCredentials {
    /// The fetcher's, which reads every Secret of `cloud-init-settings`.
    #[default]
    Shared,
    /// One for each machine deployment, which reads that machine deployment's Secrets alone.
    PerMachineDeployment,
}

/// What a stored config says in place of secrets.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum StoredConfig {
    /// A marker for each, and nothing of the cloud provider's settings.
    #[default]
    Markers,
    /// The secrets themselves: everybody who may read configs can read what the machines have.
    Inline,
}

/// The most characters of a uid in a status. Kubernetes' own have 36.
pub const UID_CHARACTERS_MAX: usize = 64;
/// The most characters of a server's version in a status, such as `v1.36.0-gke.1234567`.
pub const VERSION_CHARACTERS_MAX: usize = 64;
/// The most characters of an API server's URL in a status: a host has 253 at most.
pub const URL_CHARACTERS_MAX: usize = 512;
/// The most characters of `namespace/name` in a status: Kubernetes allows 63 and 253.
pub const FULL_NAME_CHARACTERS_MAX: usize = 317;
/// The most characters of a message in a status.
pub const MESSAGE_CHARACTERS_MAX: usize = 1_024;
/// The most characters of any other text of a tenant in a status: a name has 253 at most.
pub const TEXT_CHARACTERS_MAX: usize = 256;

/// What became of a worker cluster.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerClusterStatus {
    /// The state in conditions; `Ready` sums them up.
    #[serde(
        default,
        deserialize_with = "readable_entries",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that the status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The uid of the worker cluster's kube-system namespace: the cluster's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = UID_CHARACTERS_MAX))]
    pub cluster_uid: Option<String>,
    /// The fleet that writes this status: what its managers' flag `--fleet` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<String>,
    /// Which kubeconfig the status speaks of: a digest of the one that the cluster was engaged with
    /// last, and of the uid of its Secret. Another kubeconfig has another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_kubeconfig: Option<String>,
    /// The API server that the kubeconfig names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = URL_CHARACTERS_MAX))]
    pub server: Option<String>,
    /// The API server as nodes reach it, where nothing else is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = URL_CHARACTERS_MAX))]
    pub api_server: Option<String>,
    /// The version of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = VERSION_CHARACTERS_MAX))]
    pub version: Option<String>,
    /// How many machine deployments are served, of how many: `2/3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<String>,
    /// How many machine deployments render a default profile that is older than ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub outdated: Option<u32>,
    /// One entry per machine deployment, failing ones first, at most a hundred.
    #[serde(
        default,
        deserialize_with = "readable_entries",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub machine_deployments: Vec<MachineDeploymentEntry>,
}

impl WorkerCluster {
    /// Returns a condition of the status, if it is there.
    pub fn condition(&self, kind: ConditionType) -> Option<&Condition> {
        kind.find_in(&self.status.as_ref()?.conditions)
    }
}

/// What became of one machine deployment.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeploymentEntry {
    /// The machine deployment, as `namespace/name`.
    #[schemars(length(max = FULL_NAME_CHARACTERS_MAX))]
    pub name: String,
    /// Whether it is served.
    pub state: MachineDeploymentState,
    /// The machine-readable CamelCase reason.
    pub reason: String,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MESSAGE_CHARACTERS_MAX))]
    pub message: Option<String>,
    /// Since when it is in this state.
    pub since: Time,
    /// The trace of the reconcile that found this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The profile that was rendered or tried last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileEntry>,
}

/// The profile of a machine deployment.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProfileEntry {
    /// The profile's name.
    #[schemars(length(max = TEXT_CHARACTERS_MAX))]
    pub name: String,
    /// The profile's version.
    #[schemars(length(max = TEXT_CHARACTERS_MAX))]
    pub version: String,
    /// The default profile that it is, or lies on, and the version of that: `osp-ubuntu v2.0.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = TEXT_CHARACTERS_MAX))]
    pub default: Option<String>,
    /// The version of that default profile that is to come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = TEXT_CHARACTERS_MAX))]
    pub next: Option<String>,
}

/// Whether a machine deployment is served.
#[derive(
    Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema,
)]
pub enum MachineDeploymentState {
    /// It cannot be served until something changes.
    Refused,
    /// Something went wrong, and it is tried again.
    Failing,
    /// Something is still missing, and it is waited for.
    Waiting,
    /// Everything that it needs is there and current.
    Served,
}

/// Reads the entries of a list that can be decoded, and drops the others: a state that another
/// release wrote does not hide the spec.
fn readable_entries<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let entries: Vec<Value> = null_is_absent(deserializer)?;
    let entries = entries.into_iter().map(serde_json::from_value);
    Ok(entries.filter_map(Result::ok).collect())
}

/// Conditions as a list map by type, so that server-side apply merges them.
fn conditions_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let condition = generator.subschema_for::<Condition>();
    schemars::json_schema!({
        "type": "array",
        "items": condition,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"]
    })
}
