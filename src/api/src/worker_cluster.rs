//! `WorkerCluster`: the operator's settings for one worker cluster, and its status.

mod credentials;
mod images;
pub mod limits;
mod rollout;
mod status;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_derive::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::{
    credentials::{Credentials, NodeCredentials},
    images::{
        Binaries, Binary, EnvironmentVariable, ImageCredentialProvider,
        RegistryCredentialsReference, TokenAttributes, TokenCache,
    },
    rollout::{MachineReplacement, MachineRollout, ProfileRollout, Rollout},
    status::{
        BehindEntry, FULL_NAME_CHARACTERS_MAX, FleetId, MESSAGE_CHARACTERS_MAX,
        MachineDeploymentEntry, MachineDeploymentState, ProfileEntry, TEXT_CHARACTERS_MAX,
        UID_CHARACTERS_MAX, URL_CHARACTERS_MAX, VERSION_CHARACTERS_MAX, WorkerClusterStatus,
    },
};
use super::condition::ConditionType;

/// The settings for a worker cluster. Everything but the Secret's name has a default.
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
    selectable = ".spec.paused",
    selectable = ".status.fleet",
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
#[x_kube(validation = limits::credentials_at_home())]
pub struct WorkerClusterSpec {
    /// The Secret with the kubeconfig, in the same namespace. It cannot be changed.
    #[x_kube(validation = limits::unchanged(
        "put the kubeconfig into the Secret that it names"
    ))]
    pub kubeconfig_secret_ref: SecretReference,
    /// Where the tenant's profiles and configs are. It cannot be changed.
    #[serde(default)]
    #[x_kube(validation = limits::unchanged("register the worker cluster again"))]
    pub home: Home,
    /// How the manager gets the credential for the worker cluster.
    #[serde(default)]
    pub credentials: Credentials,
    /// If true, the worker cluster is not served.
    #[serde(default)]
    pub paused: bool,
    /// What happens to the machine deployments when the registration is removed.
    #[serde(default)]
    pub on_removal: OnRemoval,
    /// The uid of the worker cluster's kube-system namespace that the operator accepts instead of
    /// the pinned one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = UID_CHARACTERS_MAX))]
    pub confirmed_cluster_uid: Option<String>,
    /// What happens to a machine deployment without a profile.
    #[serde(default)]
    pub profile_annotation: ProfileAnnotation,
    /// How the default profiles of the tenant are installed.
    #[serde(default)]
    pub default_profiles: DefaultProfiles,
    /// What to take over from the manager that served the worker cluster before. Read once.
    #[serde(default)]
    pub adoption: Adoption,
    /// The names of the default profiles to install. Absent means all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32), inner(length(min = 1, max = 253)))]
    pub default_profile_names: Option<Vec<String>>,
    /// What the default profiles in the tenant's namespace contain. Absent means the fleet's
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_profile_content: Option<DefaultProfileContent>,
    /// How newer versions are rolled out to the tenant. Absent means the fleet's defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<Rollout>,
    /// The IP addresses of the cluster's DNS servers.
    #[serde(
        default,
        rename = "clusterDNS",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = 32), inner(length(max = limits::ADDRESS_CHARACTERS_MAX)))]
    #[x_kube(validation = limits::addresses())]
    pub cluster_dns: Option<Vec<String>>,
    /// If true, the cloud provider's controllers run outside of Kubernetes' own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_cloud_provider: Option<bool>,
    /// The HTTP proxy of the nodes, as a URL.
    #[serde(default, rename = "httpProxy", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::LINE_CHARACTERS_MAX))]
    #[x_kube(validation = limits::proxy())]
    pub http_proxy: Option<String>,
    /// The hosts that nodes reach without a proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::LINES_CHARACTERS_MAX), regex(pattern = limits::ONE_LINE))]
    pub no_proxy: Option<String>,
    /// Certificates that the nodes trust in addition to those of their distribution, in PEM.
    #[serde(
        default,
        rename = "hostCABundle",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = limits::LINES_CHARACTERS_MAX))]
    #[x_kube(validation = limits::certificates())]
    pub host_ca_bundle: Option<String>,
    /// The API server's certificate authority, in PEM, instead of the kubeconfig's.
    #[serde(
        default,
        rename = "kubernetesCABundle",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = limits::LINES_CHARACTERS_MAX))]
    #[x_kube(validation = limits::certificates())]
    pub kubernetes_ca_bundle: Option<String>,
    /// The sandbox image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::LINE_CHARACTERS_MAX), regex(pattern = limits::ONE_WORD))]
    pub pause_image: Option<String>,
    /// The taints with which a kubelet registers its node, as its flag takes them: `key:effect` or
    /// `key=value:effect`, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = limits::LINE_CHARACTERS_MAX))]
    #[x_kube(validation = limits::taints())]
    pub initial_taints: Option<String>,
    /// The kubelet's feature gates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_feature_gates: Option<BTreeMap<String, bool>>,
    /// If true, annotations of a machine deployment may set feature gates of its kubelets, and
    /// override the tenant's own. Absent means that they are not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_feature_gates_from_annotations: Option<bool>,
    /// Fields of the kubelet's `KubeletConfiguration`, which the kubelet reads after those of the
    /// profile. Each must be one of the kubelet's minor, and not one that is set otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "limits::any_fields_schema")]
    pub kubelet_configuration: Option<Map<String, Value>>,
    /// If true, the annotation `operatingsystemmanager.k8c.io/kubelet-configuration` of a machine
    /// deployment may set such fields, too, as a JSON object. They are read last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_configuration_from_annotations: Option<bool>,
    /// If true, devices belong to the user of the container's security context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_ownership_from_security_context: Option<bool>,
    /// Registries whose certificates are not verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = limits::REGISTRIES_MAX),
        inner(length(min = 1, max = limits::HOST_CHARACTERS_MAX), regex(pattern = limits::REGISTRY))
    )]
    pub insecure_registries: Option<Vec<String>>,
    /// The URLs of mirrors by registry, in the order in which they are tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "limits::registry_mirrors_schema")]
    #[x_kube(validation = limits::mirrors())]
    pub registry_mirrors: Option<BTreeMap<String, Vec<String>>>,
    /// The Secret with registry credentials, in the same namespace, or in a namespace of the worker
    /// cluster that is the tenant's home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_credentials_secret_ref: Option<RegistryCredentialsReference>,
    /// Programs that a kubelet asks for credentials as it pulls images. If several have some for
    /// one registry and path, it tries those of the first one first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "limits::image_credential_providers_schema")]
    pub image_credential_providers: Option<Vec<ImageCredentialProvider>>,
    /// The API server's URL for nodes, instead of the one that was found.
    #[serde(
        default,
        rename = "apiServerOverride",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(length(max = URL_CHARACTERS_MAX), regex(pattern = r"^(https://\S+)?$"))]
    pub api_server_override: Option<String>,
    /// The token with which machines fetch their documents. Absent means `Shared`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_credentials: Option<NodeCredentials>,
    /// What machines do by themselves when they or their document change. The annotation
    /// `operatingsystemmanager.k8c.io/machine-updates` of a machine deployment overrides this.
    /// Absent means `Disabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_updates: Option<MachineUpdates>,
    /// How secrets appear in a stored config. Absent means `Markers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_config: Option<StoredConfig>,
    /// Custom variables for templates.
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

/// What happens to the machine deployments when the registration is removed.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum OnRemoval {
    /// They keep our finalizer. What was created for them stays.
    #[default]
    Keep,
    /// They lose our finalizer. What was created for them stays.
    Release,
    /// They lose our finalizer. What was created for them is deleted.
    Purge,
}

/// What happens to a machine deployment without a profile.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum ProfileAnnotation {
    /// It gets the default profile of its operating system.
    #[default]
    Default,
    /// It is ignored. If it was served before, it gets the default profile.
    RequireAnnotation,
}

/// How the default profiles of a tenant are installed.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum DefaultProfiles {
    /// They are installed, and replaced if their version differs from ours, unless a newer release
    /// installed them.
    #[default]
    Replace,
    /// They are installed if they do not exist, and not changed after that.
    Keep,
    /// They are not installed.
    Disabled,
}

/// What the default profiles in a tenant's namespace contain.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum DefaultProfileContent {
    /// No templates: they name their content, which is in the manager's namespace, once for all
    /// tenants. Profiles that were whole become thin with their next version.
    #[default]
    Thin,
    /// Everything, as in a tenant's home in its worker cluster.
    Whole,
}

/// Where a tenant's profiles and configs are.
#[derive(
    Serialize,
    Deserialize,
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    JsonSchema,
)]
pub enum Home {
    /// In the namespace of the WorkerCluster.
    #[default]
    Management,
    /// In kube-system of the worker cluster, as with the operating-system-manager of KubeOne and
    /// KKP. The manager needs only the permissions of that one. It uses its Lease, creates no
    /// namespace, ServiceAccount or role, and sorts mirrors by their URLs, as that one does.
    Worker,
}

impl Home {
    /// Returns the home of a tenant, which is the default without a WorkerCluster.
    pub fn of(own: Option<&WorkerCluster>) -> Self {
        own.map(|own| own.spec.home).unwrap_or_default()
    }
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

/// What machines do by themselves when they or their document change. It is in their document, so
/// machines that are created from now on do it.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum MachineUpdates {
    /// Nothing.
    #[default]
    Disabled,
    /// They report to their nodes how they differ from the document that they were created from.
    Report,
    /// In addition, they look at the document that new machines get, put the files into place that
    /// are read again without a restart, and report what only a new machine has of it.
    Reload,
}

/// How secrets appear in a stored config.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum StoredConfig {
    /// Each secret is replaced with a marker. The cloud provider's settings are omitted.
    #[default]
    Markers,
    /// The secrets are stored: everyone who may read configs can read the machines' secrets.
    Inline,
}

impl WorkerCluster {
    /// Returns a condition of the status, if it is there.
    pub fn condition(&self, kind: ConditionType) -> Option<&Condition> {
        kind.find_in(&self.status.as_ref()?.conditions)
    }
}
