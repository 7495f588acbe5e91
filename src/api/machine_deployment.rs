//! `MachineDeployment`: machine-controller's object. We read it, and own only a finalizer and one
//! annotation on it.
//!
//! Only the fields that we read are named, and each may be absent, so that no machine deployment
//! can fail to decode: what is missing is judged later, with a reason.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// The part of a machine deployment's spec that we read.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "cluster.k8s.io",
    version = "v1alpha1",
    kind = "MachineDeployment",
    plural = "machinedeployments",
    namespaced,
    schema = "disabled",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineDeploymentSpec {
    /// The template of the machines.
    pub template: MachineTemplate,
    /// Whether a field that we read has a type that machine-controller does not give it. Such a
    /// machine deployment is known by its metadata alone, and nothing else is held up by it.
    #[serde(skip)]
    pub is_unreadable: bool,
}

/// The template of a machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineTemplate {
    /// The machine's spec.
    pub spec: MachineSpec,
}

/// The spec of a machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSpec {
    /// What the cloud provider needs to know.
    pub provider_spec: ProviderSpecSource,
    /// Versions of the software on the machine.
    pub versions: MachineVersions,
}

/// Where a provider spec comes from.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ProviderSpecSource {
    /// The provider spec itself, undecoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<serde_json::Value>,
}

/// Versions of the software on a machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineVersions {
    /// The kubelet's version.
    pub kubelet: String,
}
