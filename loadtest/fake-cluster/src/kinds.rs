//! The kinds that a cluster serves: a table of the built-in ones, shared by all clusters, and the
//! shape that custom kinds are given in `crd.rs`. Built-in objects are read through the types of
//! `k8s_openapi`, which drops unknown fields and refuses wrong types as the real server does.

use std::sync::{Arc, OnceLock};

use k8s_openapi::api;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::rules::Rules;

/// What a custom kind adds to a kind: its schema and how it is shown.
#[derive(Debug)]
pub(crate) struct CustomVersion {
    /// The `openAPIV3Schema`, or null.
    pub schema: Value,
    /// What the schema says in CEL.
    pub rules: Option<Rules>,
    pub columns: Vec<Value>,
    /// The version in which objects are kept.
    pub storage_version: String,
}

type Normalize = fn(Value) -> Result<Value, serde_json::Error>;

/// One kind in one version.
#[derive(Debug)]
#[expect(
    clippy::struct_field_names,
    reason = "Kubernetes calls these fields so"
)]
pub(crate) struct Kind {
    pub group: String,
    pub version: String,
    pub resource: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub status: bool,
    pub create_only: bool,
    /// Where the objects live; versions of one kind share it.
    pub storage: Arc<str>,
    pub normalize: Option<Normalize>,
    pub custom: Option<CustomVersion>,
}

impl Kind {
    /// `group/version`, or the version alone in the core group.
    pub(crate) fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// `resource.group`, or the resource alone in the core group.
    pub(crate) fn qualified(&self) -> String {
        qualified(&self.resource, &self.group)
    }

    /// `Kind.group`, or the kind alone in the core group.
    pub(crate) fn qualified_kind(&self) -> String {
        qualified(&self.kind, &self.group)
    }

    /// The namespace that counts for objects of this kind: none for cluster-wide ones.
    pub(crate) fn scope<'a>(&self, namespace: &'a str) -> &'a str {
        if self.namespaced { namespace } else { "" }
    }

    pub(crate) fn is(&self, group: &str, resource: &str) -> bool {
        self.group == group && self.resource == resource
    }

    /// Kinds whose spec changes are counted in `metadata.generation`.
    pub(crate) fn has_generation(&self) -> bool {
        self.custom.is_some()
            || matches!(
                (self.group.as_str(), self.resource.as_str()),
                (
                    "apps"
                        | "networking.k8s.io"
                        | "apiextensions.k8s.io"
                        | "admissionregistration.k8s.io",
                    _
                ) | ("", "pods")
            )
    }

    /// Kinds whose deletion answers with the object instead of a Status.
    pub(crate) fn returns_deleted(&self) -> bool {
        self.group.is_empty()
            && matches!(
                self.resource.as_str(),
                "pods" | "serviceaccounts" | "services"
            )
    }

    pub(crate) fn verbs(&self) -> &'static [&'static str] {
        if self.create_only {
            &["create"]
        } else {
            &[
                "create",
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "update",
                "watch",
            ]
        }
    }
}

fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() {
        name.to_owned()
    } else {
        format!("{name}.{group}")
    }
}

pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

fn through<T: Serialize + DeserializeOwned>(value: Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<T>(value)?)
}

/// One row of the table: kind, group/version, plural, short names, flags.
struct Row {
    name: &'static str,
    api: &'static str,
    resource: &'static str,
    short: &'static [&'static str],
    /// n: namespaced, s: has a status, c: can only be created.
    flags: &'static str,
    normalize: Normalize,
}

macro_rules! rows {
    ($($api:literal $resource:literal $short:expr, $flags:literal, $kind:literal $type:ty;)*) => {
        [$(Row {
            name: $kind,
            api: $api,
            resource: $resource,
            short: &$short,
            flags: $flags,
            normalize: through::<$type>,
        }),*]
    };
}

/// The built-in kinds.
pub(crate) fn builtin() -> &'static [Arc<Kind>] {
    static KINDS: OnceLock<Vec<Arc<Kind>>> = OnceLock::new();
    KINDS.get_or_init(|| {
        core_rows()
            .iter()
            .chain(&group_rows())
            .map(kind)
            .map(Arc::new)
            .collect()
    })
}

fn core_rows() -> [Row; 9] {
    use api::core::v1 as core;
    rows! {
        "v1" "configmaps" ["cm"], "n", "ConfigMap" core::ConfigMap;
        "v1" "endpoints" ["ep"], "n", "Endpoints" core::Endpoints;
        "v1" "events" ["ev"], "n", "Event" core::Event;
        "v1" "namespaces" ["ns"], "s", "Namespace" core::Namespace;
        "v1" "nodes" ["no"], "s", "Node" core::Node;
        "v1" "pods" ["po"], "ns", "Pod" core::Pod;
        "v1" "secrets" [], "n", "Secret" core::Secret;
        "v1" "serviceaccounts" ["sa"], "n", "ServiceAccount" core::ServiceAccount;
        "v1" "services" ["svc"], "ns", "Service" core::Service;
    }
}

fn group_rows() -> [Row; 17] {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as ext;
    rows! {
        "admissionregistration.k8s.io/v1" "mutatingwebhookconfigurations" [], "",
            "MutatingWebhookConfiguration" api::admissionregistration::v1::MutatingWebhookConfiguration;
        "admissionregistration.k8s.io/v1" "validatingwebhookconfigurations" [], "",
            "ValidatingWebhookConfiguration"
            api::admissionregistration::v1::ValidatingWebhookConfiguration;
        "apiextensions.k8s.io/v1" "customresourcedefinitions" ["crd", "crds"], "s",
            "CustomResourceDefinition" ext::CustomResourceDefinition;
        "apps/v1" "deployments" ["deploy"], "ns", "Deployment" api::apps::v1::Deployment;
        "authentication.k8s.io/v1" "selfsubjectreviews" [], "c", "SelfSubjectReview"
            api::authentication::v1::SelfSubjectReview;
        "authentication.k8s.io/v1" "tokenreviews" [], "c", "TokenReview"
            api::authentication::v1::TokenReview;
        "authorization.k8s.io/v1" "selfsubjectaccessreviews" [], "c", "SelfSubjectAccessReview"
            api::authorization::v1::SelfSubjectAccessReview;
        "authorization.k8s.io/v1" "selfsubjectrulesreviews" [], "c", "SelfSubjectRulesReview"
            api::authorization::v1::SelfSubjectRulesReview;
        "certificates.k8s.io/v1" "certificatesigningrequests" ["csr"], "s",
            "CertificateSigningRequest" api::certificates::v1::CertificateSigningRequest;
        "coordination.k8s.io/v1" "leases" [], "n", "Lease" api::coordination::v1::Lease;
        "discovery.k8s.io/v1" "endpointslices" [], "n", "EndpointSlice"
            api::discovery::v1::EndpointSlice;
        "events.k8s.io/v1" "events" ["ev"], "n", "Event" api::events::v1::Event;
        "networking.k8s.io/v1" "networkpolicies" ["netpol"], "n", "NetworkPolicy"
            api::networking::v1::NetworkPolicy;
        "rbac.authorization.k8s.io/v1" "clusterrolebindings" [], "", "ClusterRoleBinding"
            api::rbac::v1::ClusterRoleBinding;
        "rbac.authorization.k8s.io/v1" "clusterroles" [], "", "ClusterRole"
            api::rbac::v1::ClusterRole;
        "rbac.authorization.k8s.io/v1" "rolebindings" [], "n", "RoleBinding"
            api::rbac::v1::RoleBinding;
        "rbac.authorization.k8s.io/v1" "roles" [], "n", "Role" api::rbac::v1::Role;
    }
}

fn kind(row: &Row) -> Kind {
    let (group, version) = row.api.split_once('/').unwrap_or(("", row.api));
    // Events are one thing under two names; the core name holds the objects.
    let storage = if row.resource == "events" { "" } else { group };
    Kind {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: row.resource.to_owned(),
        singular: row.name.to_lowercase(),
        kind: row.name.to_owned(),
        list_kind: format!("{}List", row.name),
        short_names: row.short.iter().map(|name| (*name).to_owned()).collect(),
        categories: Vec::new(),
        namespaced: row.flags.contains('n'),
        status: row.flags.contains('s'),
        create_only: row.flags.contains('c'),
        storage: storage_name(storage, row.resource),
        normalize: Some(row.normalize),
        custom: None,
    }
}

pub(crate) fn storage_name(group: &str, resource: &str) -> Arc<str> {
    Arc::from(format!("{group}/{resource}"))
}
