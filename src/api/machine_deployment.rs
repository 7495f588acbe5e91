//! `MachineDeployment`: machine-controller's object. We read it, and own only a finalizer and one
//! annotation on it, and one in its template.
//!
//! Only the fields that we read are named, and each may be absent, so that no machine deployment
//! can fail to decode: what is missing is judged later, with a reason.

use std::collections::BTreeMap;

use kube::{CustomResource, api::ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::profile::null_is_absent;

/// The part of a machine deployment's spec that we read.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "cluster.k8s.io",
    version = "v1alpha1",
    kind = "MachineDeployment",
    plural = "machinedeployments",
    namespaced,
    schema = "disabled",
    status = "MachineDeploymentStatus",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineDeploymentSpec {
    /// The template of the machines.
    #[serde(deserialize_with = "null_is_absent")]
    pub template: MachineTemplate,
    /// How many machines there should be; absent means one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// Whether machine-controller leaves the machines alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// After how many seconds without progress the replacement of machines has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_deadline_seconds: Option<i64>,
    /// Whether a field that we read has a type that machine-controller does not give it. Such a
    /// machine deployment is known by its metadata alone, and nothing else is held up by it.
    #[serde(skip)]
    pub is_unreadable: bool,
}

/// One of which nothing but its metadata can be read.
impl From<ObjectMeta> for MachineDeployment {
    fn from(metadata: ObjectMeta) -> Self {
        Self {
            metadata,
            spec: MachineDeploymentSpec {
                is_unreadable: true,
                ..MachineDeploymentSpec::default()
            },
            status: None,
        }
    }
}

/// The template of a machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineTemplate {
    /// The machine's metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<MachineMetadata>,
    /// The machine's spec.
    #[serde(deserialize_with = "null_is_absent")]
    pub spec: MachineSpec,
}

/// The metadata of a machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineMetadata {
    /// The machine's annotations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotations: Option<BTreeMap<String, String>>,
}

/// The spec of a machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSpec {
    /// What the cloud provider needs to know.
    #[serde(deserialize_with = "null_is_absent")]
    pub provider_spec: ProviderSpecSource,
    /// Versions of the software on the machine.
    #[serde(deserialize_with = "null_is_absent")]
    pub versions: MachineVersions,
}

/// Where a provider spec comes from.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderSpecSource {
    /// The provider spec itself, undecoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<ProviderSpec>,
}

impl ProviderSpecSource {
    /// The provider spec as JSON; null where there is none.
    pub fn json(&self) -> Value {
        self.value.clone().map_or(Value::Null, Value::from)
    }
}

/// A provider spec. Each tenant's machine deployments rest in memory: as text, which takes
/// far less than its tree.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(from = "Value", into = "Value")]
pub struct ProviderSpec(Box<str>);

impl From<Value> for ProviderSpec {
    fn from(value: Value) -> Self {
        Self(value.to_string().into())
    }
}

impl From<ProviderSpec> for Value {
    fn from(spec: ProviderSpec) -> Self {
        // What was written from JSON reads as JSON.
        serde_json::from_str(&spec.0).unwrap_or_default()
    }
}

/// Versions of the software on a machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineVersions {
    /// The kubelet's version.
    #[serde(deserialize_with = "null_is_absent")]
    pub kubelet: String,
}

/// What machine-controller says of the machines. What is absent is nought.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineDeploymentStatus {
    /// The generation of the machine deployment that this speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many machines there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// How many of them were made from the template as it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_replicas: Option<i64>,
    /// How many of them can be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i64>,
}
