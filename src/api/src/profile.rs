//! `OperatingSystemProfile`: the template of an operating system's configuration, owned by users.
//!
//! The schema is a superset of the one that users have today. A profile that was written for it is
//! valid here without a change.

use std::collections::BTreeMap;

use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::change::Class;
pub use super::platform::{CloudProvider, OperatingSystem};

/// The pattern of a profile's version: a semantic version with a `v` in front.
///
/// It is not anchored at its start, as in the schema that users have today.
pub const VERSION_PATTERN: &str = r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$";

/// The spec of an `OperatingSystemProfile`.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, PartialEq, KubeSchema)]
#[kube(
    group = "operatingsystemmanager.k8c.io",
    version = "v1alpha1",
    kind = "OperatingSystemProfile",
    plural = "operatingsystemprofiles",
    shortname = "osp",
    namespaced,
    derive = "PartialEq",
    doc = "The template of an operating system's configuration.",
    printcolumn(name = "OS", type_ = "string", json_path = ".spec.osName"),
    printcolumn(name = "OS Version", type_ = "string", json_path = ".spec.osVersion"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(
        name = "Language",
        type_ = "string",
        json_path = ".spec.templateLanguage",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.spec == oldSelf.spec || self.spec.version != oldSelf.spec.version || (has(oldSelf.spec.extends) && oldSelf.spec.extends.contains('@') && !has(self.spec.extends))")
        .message("OperatingSystemProfile is immutable. For updates .spec.version needs to be updated")
        .field_path(".spec.version"),
    validation = Rule::new("has(self.spec.extends) || (has(self.spec.supportedCloudProviders) && has(self.spec.bootstrapConfig) && has(self.spec.provisioningConfig))")
        .message("spec.supportedCloudProviders, spec.bootstrapConfig and spec.provisioningConfig are required where spec.extends is absent")
        .field_path(".spec")
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = without_defaults)]
pub struct OperatingSystemProfileSpec {
    /// The profile in the same namespace that this one extends. Fields that this one leaves out are
    /// those of the other. The default profiles that the manager installs name their content here,
    /// as NAME@VERSION/DIGEST.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub extends: Option<String>,
    /// The operating system that the profile configures.
    pub os_name: OperatingSystem,
    /// The version of the operating system, as free text.
    pub os_version: String,
    /// The version of the profile: a semantic version with a `v` in front. Every change of the spec
    /// needs a new version.
    #[schemars(regex(pattern = VERSION_PATTERN))]
    pub version: String,
    /// The language of the templates. Absent means `GoTemplate`, or that of the extended profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_language: Option<TemplateLanguage>,
    /// The cloud providers that the profile works on.
    #[serde(default, deserialize_with = "null_is_absent")]
    pub supported_cloud_providers: Vec<CloudProviderSpec>,
    /// The user data of a machine: just enough to fetch the provisioning configuration.
    #[serde(default, deserialize_with = "null_is_absent")]
    pub bootstrap_config: ProfileConfig,
    /// The configuration that turns the machine into a node.
    #[serde(default, deserialize_with = "null_is_absent")]
    pub provisioning_config: ProfileConfig,
    /// The tool that reads the documents. Absent means `cloud-init`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "provisioning_utility_schema")]
    pub provisioning_utility: Option<ProvisioningUtility>,
    /// The version of the Ignition documents. Absent means `2.3.0`. Only a profile for Ignition can
    /// have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignition_version: Option<IgnitionVersion>,
    /// What a change of a file takes on machines that run, where the author knows better than the
    /// manager. Those of the extended profile apply, too, unless this one names the same file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = EFFECTS_MAX),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["path"])
    )]
    pub effects: Vec<DeclaredEffect>,
}

/// The maximum number of declared effects: a profile has fewer files.
const EFFECTS_MAX: usize = 128;

/// The name of a systemd unit.
const UNIT_PATTERN: &str = r"^[A-Za-z0-9:_.@\\-]+\.[a-z]+$";

/// What a change of a file takes on machines that run.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = kube_core::Rule::new("(self.class == 'RestartUnit') == (has(self.units) && size(self.units) > 0)")
    .message("units must be named for the class RestartUnit, and for no other"))]
pub struct DeclaredEffect {
    /// The path of a file or of a systemd unit on the machine.
    #[schemars(length(max = 256), regex(pattern = "^/"))]
    pub path: String,
    /// What it takes to bring another content into effect.
    pub class: Class,
    /// The units to restart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(max = 255), regex(pattern = UNIT_PATTERN)))]
    pub units: Vec<String>,
}

/// The build metadata in a version that selects Jinja.
pub const VERSION_METADATA_JINJA: &str = "jinja";

impl OperatingSystemProfileSpec {
    /// Returns the language of the templates.
    ///
    /// A schema that does not know the field drops it silently, and the templates would be parsed
    /// in the wrong language. The version is kept, so its build metadata counts as well.
    pub fn language(&self) -> TemplateLanguage {
        match self.template_language {
            Some(language) => language,
            None if self.is_jinja_by_version() => TemplateLanguage::Jinja,
            None => TemplateLanguage::GoTemplate,
        }
    }

    /// Returns true if the version selects Jinja.
    pub fn is_jinja_by_version(&self) -> bool {
        let metadata = self
            .version
            .split_once('+')
            .map_or("", |(_, metadata)| metadata);
        metadata
            .split('.')
            .any(|part| part == VERSION_METADATA_JINJA)
    }
}

/// The language of a profile's templates.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum TemplateLanguage {
    /// Jinja, as implemented by minijinja.
    Jinja,
    /// Go's text/template with sprig's functions. The language of every profile that specifies
    /// none.
    GoTemplate,
}

impl TemplateLanguage {
    /// Returns the name as objects spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Jinja => "Jinja",
            Self::GoTemplate => "GoTemplate",
        }
    }
}

/// The tool on the machine that reads the documents.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum ProvisioningUtility {
    /// cloud-init.
    #[serde(rename = "cloud-init")]
    CloudInit,
    /// Ignition.
    #[serde(rename = "ignition")]
    Ignition,
}

impl ProvisioningUtility {
    /// Returns the name as objects spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CloudInit => "cloud-init",
            Self::Ignition => "ignition",
        }
    }
}

/// The version of the Ignition specification that a document follows.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub enum IgnitionVersion {
    /// The version that Flatcar's transpiler writes.
    #[serde(rename = "2.3.0")]
    V2,
    /// Supported by Flatcar since release 3185.
    #[serde(rename = "3.3.0")]
    V3,
}

/// A cloud provider that a profile supports, or for which a config was rendered.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
pub struct CloudProviderSpec {
    /// The provider's name.
    pub name: CloudProvider,
    /// The provider's own settings, as in the machine deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object_schema")]
    pub spec: Option<serde_json::Value>,
}

/// One of the two halves of a profile.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProfileConfig {
    /// Files and templates that depend on the container runtime.
    #[serde(
        default,
        deserialize_with = "null_is_absent",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub supported_container_runtimes: Vec<ContainerRuntimeSpec>,
    /// Named templates that the files may include.
    #[serde(
        default,
        deserialize_with = "null_is_absent",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub templates: BTreeMap<String, String>,
    /// systemd units.
    #[serde(
        default,
        deserialize_with = "null_is_absent",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub units: Vec<Unit>,
    /// Files. Only their data is a template.
    #[serde(
        default,
        deserialize_with = "null_is_absent",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub files: Vec<File>,
    /// cloud-init modules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modules: Option<CloudInitModules>,
}

/// The part of a profile for one container runtime.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRuntimeSpec {
    /// The runtime's name.
    pub name: ContainerRuntime,
    /// Files that the runtime needs.
    #[serde(deserialize_with = "null_is_absent")]
    pub files: Vec<File>,
    /// Named templates that the files may include.
    #[serde(
        default,
        deserialize_with = "null_is_absent",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub templates: BTreeMap<String, String>,
}

/// A container runtime's name.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ContainerRuntime {
    /// Accepted, but has no effect.
    Docker,
    /// containerd.
    Containerd,
}

/// A systemd unit.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Unit {
    /// The unit's file name.
    pub name: String,
    /// If true, the unit is enabled and started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable: Option<bool>,
    /// If true, the unit is masked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<bool>,
    /// The unit's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Drop-ins of the unit.
    #[serde(
        default,
        deserialize_with = "null_is_absent",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub drop_ins: Vec<DropIn>,
}

/// A drop-in of a systemd unit.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
pub struct DropIn {
    /// The drop-in's file name.
    pub name: String,
    /// The drop-in's text.
    pub content: String,
}

/// A file on the machine.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, JsonSchema)]
pub struct File {
    /// The path of the file.
    pub path: String,
    /// The file's mode: decimal digits that are read as octal, without a leading zero.
    #[serde(
        default = "default_permissions",
        deserialize_with = "null_is_default_permissions"
    )]
    pub permissions: i32,
    /// The content of the file.
    pub content: FileContent,
}

/// The mode of a file that specifies none.
pub const PERMISSIONS_DEFAULT: i32 = 644;

/// Deserializes a field for which Go writes `null` if it is empty.
///
/// # Errors
///
/// Returns an error if the field exists and has another type.
pub fn null_is_absent<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn null_is_default_permissions<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<i32, D::Error> {
    let given = Option::deserialize(deserializer)?;
    Ok(given.unwrap_or(PERMISSIONS_DEFAULT))
}

const fn default_permissions() -> i32 {
    PERMISSIONS_DEFAULT
}

/// The content of a file.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct FileContent {
    /// The content in the object itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<FileContentInline>,
}

/// The encoding of a file that is compressed in the document.
pub const ENCODING_GZIP: &str = "gzip";

/// A file's content in the object itself.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct FileContentInline {
    /// The encoding of the data in the document: `b64`, `gzip`, or absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// The data: a template in a profile, text in a config.
    pub data: String,
}

/// cloud-init modules without a field elsewhere.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct CloudInitModules {
    /// Commands that run early in every boot.
    #[serde(
        default,
        deserialize_with = "null_is_absent",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub bootcmd: Vec<String>,
    /// The Red Hat subscription.
    #[serde(
        default,
        deserialize_with = "null_is_absent",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub rh_subscription: BTreeMap<String, String>,
    /// Commands that run at the end of the first boot.
    #[serde(
        default,
        deserialize_with = "null_is_absent",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub runcmd: Vec<String>,
    /// yum repositories by name, each a map of its settings.
    #[serde(
        default,
        deserialize_with = "null_is_absent",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub yum_repos: BTreeMap<String, BTreeMap<String, String>>,
    /// The folder of yum's repository files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub yum_repo_dir: Option<String>,
}

/// Removes defaults from the schema. The API server would set them, and rules that check for a
/// field would always hold.
fn without_defaults(schema: &mut schemars::Schema) {
    let properties = schema.get_mut("properties");
    let mut properties = properties.and_then(serde_json::Value::as_object_mut);
    for field in [
        "supportedCloudProviders",
        "bootstrapConfig",
        "provisioningConfig",
    ] {
        let field = properties.as_mut().and_then(|known| known.get_mut(field));
        if let Some(field) = field.and_then(serde_json::Value::as_object_mut) {
            field.remove("default");
        }
    }
}

/// Returns the schema of a value that is kept as it is.
pub(super) fn any_object_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Returns the schema of the utility, with the default that the API server sets.
pub(super) fn provisioning_utility_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "string",
        "enum": ["cloud-init", "ignition"],
        "default": "cloud-init"
    })
}
