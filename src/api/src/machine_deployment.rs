//! `MachineDeployment`: machine-controller's object. We read it, and own only a finalizer and one
//! annotation on it, and one annotation in its template.
//!
//! The types contain only the fields that we read, and each may be absent, so that no machine
//! deployment can fail to decode. Missing values are reported later, with a reason.

use std::collections::BTreeMap;

use kube_core::ObjectMeta;
use kube_derive::CustomResource;
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
    /// The desired number of machines. Absent means one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// If true, machine-controller does not change the machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// The number of seconds without progress after which the replacement of machines has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress_deadline_seconds: Option<i64>,
    /// True if a field that we read has a type that machine-controller does not use. Of such a
    /// machine deployment only the metadata is known. It does not affect others.
    #[serde(skip)]
    pub is_unreadable: bool,
}

/// Creates a machine deployment of which only the metadata could be decoded.
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
    /// The provider spec.
    #[serde(deserialize_with = "null_is_absent")]
    pub provider_spec: ProviderSpecSource,
    /// The versions of the software on the machine.
    #[serde(deserialize_with = "null_is_absent")]
    pub versions: MachineVersions,
}

/// The source of a provider spec.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderSpecSource {
    /// The provider spec itself, undecoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<ProviderSpec>,
}

impl ProviderSpecSource {
    /// Returns the provider spec as JSON, or null if there is none.
    pub fn json(&self) -> Value {
        self.value.clone().map_or(Value::Null, Value::from)
    }
}

/// A provider spec. It is kept as text, because every tenant's machine deployments are in memory,
/// and a parsed tree takes far more.
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
        // It was written as JSON, so it can be parsed.
        serde_json::from_str(&spec.0).unwrap_or_default()
    }
}

/// The versions of the software on a machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineVersions {
    /// The kubelet's version.
    #[serde(deserialize_with = "null_is_absent")]
    pub kubelet: String,
}

/// The status of the machines, as reported by machine-controller. Absent numbers mean zero.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineDeploymentStatus {
    /// The generation of the machine deployment that the status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The number of machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// The number of machines that were created from the current template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_replicas: Option<i64>,
    /// The number of machines that are available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_replicas: Option<i64>,
}
