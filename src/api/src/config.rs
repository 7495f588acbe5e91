//! `OperatingSystemConfig`: one profile, rendered for one machine deployment.

use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::profile::{
    CloudInitModules, CloudProviderSpec, File, IgnitionVersion, OperatingSystem,
    ProvisioningUtility, Unit, null_is_absent, provisioning_utility_schema,
};

/// The spec of an `OperatingSystemConfig`. It never changes: a rotation creates a new object.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, KubeSchema)]
#[kube(
    group = "operatingsystemmanager.k8c.io",
    version = "v1alpha1",
    kind = "OperatingSystemConfig",
    plural = "operatingsystemconfigs",
    shortname = "osc",
    namespaced,
    derive = "PartialEq",
    doc = "A profile, rendered for one machine deployment.",
    printcolumn(name = "OS", type_ = "string", json_path = ".spec.osName"),
    printcolumn(name = "Provider", type_ = "string", json_path = ".spec.cloudProvider.name"),
    printcolumn(name = "Utility", type_ = "string", json_path = ".spec.provisioningUtility"),
    printcolumn(
        name = "Profile Version",
        type_ = "string",
        json_path = r".metadata.annotations.k8c\.io/osp-version",
        priority = 1
    ),
    printcolumn(
        name = "Revision",
        type_ = "string",
        json_path = r".metadata.annotations.k8c\.io/machine-deployment-revision",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.spec == oldSelf.spec")
        .message("OperatingSystemConfig is immutable and updates are not allowed")
        .field_path(".spec")
)]
#[serde(rename_all = "camelCase")]
pub struct OperatingSystemConfigSpec {
    /// The operating system.
    pub os_name: OperatingSystem,
    /// The version of the operating system, as in the profile.
    pub os_version: String,
    /// The cloud provider of the machine deployment.
    pub cloud_provider: CloudProviderSpec,
    /// The content of the bootstrap document.
    pub bootstrap_config: ConfigHalf,
    /// The content of the provisioning document.
    pub provisioning_config: ConfigHalf,
    /// The tool that reads the documents. Absent means `cloud-init`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "provisioning_utility_schema")]
    pub provisioning_utility: Option<ProvisioningUtility>,
    /// The version of the Ignition documents. Absent means `2.3.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignition_version: Option<IgnitionVersion>,
}

impl ConfigHalf {
    /// Returns every text that a machine gets, with its path or its unit's name.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        let files = self.files.iter().filter_map(|file| {
            let inline = file.content.inline.as_ref()?;
            Some((file.path.as_str(), inline.data.as_str()))
        });
        let units = self.units.iter().flat_map(|unit| {
            let drop_ins = unit.drop_ins.iter().map(|it| it.content.as_str());
            let texts = unit.content.as_deref().into_iter().chain(drop_ins);
            texts.map(|text| (unit.name.as_str(), text))
        });
        files.chain(units)
    }
}

/// One of the two halves of a config.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigHalf {
    /// systemd units.
    #[serde(
        default,
        deserialize_with = "null_is_absent",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub units: Vec<Unit>,
    /// Rendered files.
    #[serde(
        default,
        deserialize_with = "null_is_absent",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub files: Vec<File>,
    /// Public SSH keys of the image's default user.
    #[serde(
        default,
        deserialize_with = "null_is_absent",
        rename = "userSSHKeys",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub user_ssh_keys: Vec<String>,
    /// cloud-init modules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules: Option<CloudInitModules>,
}
