//! The status of a `WorkerCluster`.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{change::Class, profile::null_is_absent};

/// The maximum number of characters of a uid in a status. Kubernetes' own have 36.
pub const UID_CHARACTERS_MAX: usize = 64;
/// The maximum number of characters of a server's version in a status, such as
/// `v1.36.0-gke.1234567`.
pub const VERSION_CHARACTERS_MAX: usize = 64;
/// The maximum number of characters of an API server's URL in a status. A host has at most 253.
pub const URL_CHARACTERS_MAX: usize = 512;
/// The maximum number of characters of `namespace/name` in a status. Kubernetes allows 63 and 253.
pub const FULL_NAME_CHARACTERS_MAX: usize = 317;
/// The maximum number of characters of a message in a status.
pub const MESSAGE_CHARACTERS_MAX: usize = 1_024;
/// The maximum number of characters of any other text of a tenant in a status. A name has at most
/// 253.
pub const TEXT_CHARACTERS_MAX: usize = 256;

/// The status of a worker cluster.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerClusterStatus {
    /// The conditions. `Ready` summarizes the others.
    #[serde(
        default,
        deserialize_with = "readable_entries",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that the status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The uid of the worker cluster's kube-system namespace: the cluster's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = UID_CHARACTERS_MAX))]
    pub cluster_uid: Option<String>,
    /// The fleet that writes this status, from the flag `--fleet` of its managers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<String>,
    /// The namespace of that fleet's Leases, from the flag `--lease-namespace` of its managers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet_namespace: Option<String>,
    /// Another fleet that asks for the tenant, as `namespace/name`. The fleet that serves the
    /// tenant removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by_fleet: Option<String>,
    /// The fingerprint of the kubeconfig that the status is about: a digest of the kubeconfig with
    /// which the cluster was last engaged, and of the uid of its Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_kubeconfig: Option<String>,
    /// The API server in the kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = URL_CHARACTERS_MAX))]
    pub server: Option<String>,
    /// The API server as nodes reach it, unless it is overridden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = URL_CHARACTERS_MAX))]
    pub api_server: Option<String>,
    /// The version of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = VERSION_CHARACTERS_MAX))]
    pub version: Option<String>,
    /// The number of machine deployments that are served, and the number of all: `2/3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<String>,
    /// The number of machine deployments that render a default profile that is older than ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub outdated: Option<u32>,
    /// One entry for each machine deployment, at most a hundred. Those that fail come first.
    #[serde(
        default,
        deserialize_with = "readable_entries",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub machine_deployments: Vec<MachineDeploymentEntry>,
}

impl WorkerClusterStatus {
    /// Returns the fleet that writes it, if it says so.
    pub fn fleet(&self) -> Option<FleetId> {
        Some(FleetId {
            namespace: self.fleet_namespace.clone(),
            name: self.fleet.clone()?,
        })
    }

    /// Counts the machine deployments whose machines may have an older document, by what it takes
    /// to bring the current one into effect on them.
    pub fn behind(&self) -> BTreeMap<Class, usize> {
        let mut count = BTreeMap::new();
        let entries = self.machine_deployments.iter();
        for behind in entries.filter_map(|it| it.behind.as_ref()) {
            *count.entry(behind.class).or_default() += 1;
        }
        count
    }
}

/// Identifies a fleet in a management cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetId {
    /// The name, which is not unique: it has a default.
    pub name: String,
    /// The namespace of its Leases. Earlier releases did not record it.
    pub namespace: Option<String>,
}

impl FleetId {
    /// Returns the text by which it asks for a tenant.
    pub fn mark(&self) -> String {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        format!("{namespace}/{}", self.name)
    }

    /// Returns true if both may be the same fleet.
    pub fn may_be(&self, other: &Self) -> bool {
        let namespaces = [&self.namespace, &other.namespace];
        self.name == other.name
            && (namespaces.contains(&&None) || self.namespace == other.namespace)
    }
}

impl fmt::Display for FleetId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)?;
        match &self.namespace {
            Some(namespace) => write!(formatter, " in {namespace}"),
            None => Ok(()),
        }
    }
}

/// The status of one machine deployment.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeploymentEntry {
    /// The machine deployment, as `namespace/name`.
    #[schemars(length(max = FULL_NAME_CHARACTERS_MAX))]
    pub name: String,
    /// The state of the machine deployment.
    pub state: MachineDeploymentState,
    /// The machine-readable CamelCase reason.
    pub reason: String,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MESSAGE_CHARACTERS_MAX))]
    pub message: Option<String>,
    /// The time since which it is in this state.
    pub since: Time,
    /// The id of the trace of the reconcile that set this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The profile that was last rendered or tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileEntry>,
    /// What the changes of its document take on its machines that have an older one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<BehindEntry>,
}

/// What it takes to bring the current document into effect on machines that have an older one.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BehindEntry {
    /// The class of the changes together.
    pub class: Class,
    /// What asked for the last change that takes as much (a version of the
    /// profile, annotations or settings), and its files and units.
    #[schemars(length(max = MESSAGE_CHARACTERS_MAX))]
    pub parts: String,
    /// A digest that identifies the document that new machines get.
    #[schemars(length(max = TEXT_CHARACTERS_MAX))]
    pub document: String,
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
    /// The default profile that it is, or that it extends, and the version of that:
    /// `osp-ubuntu v2.0.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = TEXT_CHARACTERS_MAX))]
    pub default: Option<String>,
    /// The next version of that default profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = TEXT_CHARACTERS_MAX))]
    pub next: Option<String>,
}

/// The state of a machine deployment.
#[derive(
    Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema,
)]
pub enum MachineDeploymentState {
    /// It cannot be served until something changes.
    Refused,
    /// An attempt failed, and is retried.
    Failing,
    /// It waits for something that is still missing.
    Waiting,
    /// Everything that it needs exists and is current.
    Served,
}

impl MachineDeploymentState {
    /// Returns true if it is refused, or if attempts fail.
    pub const fn is_failing(self) -> bool {
        matches!(self, Self::Refused | Self::Failing)
    }
}

/// Reads the entries of a list that can be decoded, and drops the others, so that a state that
/// another release wrote does not hide the spec.
fn readable_entries<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let entries: Vec<Value> = null_is_absent(deserializer)?;
    let entries = entries.into_iter().map(serde_json::from_value);
    Ok(entries.filter_map(Result::ok).collect())
}

/// Returns the schema of conditions as a list map by type, so that server-side apply merges them.
fn conditions_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let condition = generator.subschema_for::<Condition>();
    schemars::json_schema!({
        "type": "array",
        "items": condition,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"]
    })
}
