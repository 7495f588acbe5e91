//! What a render is made from. Everything is borrowed, so that building an input costs nothing.
//!
//! The code that creates the input has applied the tenant's overrides to the cluster's facts
//! already: the API server and its certificate authority are used as they stand here.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::template::CompiledProfile;
use crate::tenant::{
    secret_text::{SecretText, exposed},
    settings::TenantSettings,
};

mod go_decode;
mod provider_config;

pub use provider_config::{FlatcarSpec, Network, OperatingSystemSpec, ProviderConfig, RhelSpec};

/// What a render is made from.
#[derive(Clone, Copy)]
pub struct RenderInput<'a> {
    /// The machine deployment.
    pub machine_deployment: MachineDeploymentInput<'a>,
    /// The profile.
    pub profile: &'a CompiledProfile,
    /// The tenant's settings.
    pub settings: &'a TenantSettings,
    /// What was observed in the worker cluster.
    pub cluster: ClusterInput<'a>,
    /// Credentials by registry.
    pub registry_credentials: &'a BTreeMap<String, RegistryCredential>,
}

/// The machine deployment's part of the input.
#[derive(Clone, Copy)]
pub struct MachineDeploymentInput<'a> {
    /// The machine deployment's name.
    pub name: &'a str,
    /// The machine deployment's namespace.
    pub namespace: &'a str,
    /// The machine deployment's annotations.
    pub annotations: &'a BTreeMap<String, String>,
    /// The kubelet's version, as the template names it.
    pub kubelet_version: &'a str,
    /// The provider spec, decoded.
    pub provider: &'a ProviderConfig,
}

/// The worker cluster's part of the input.
#[derive(Clone, Copy)]
pub struct ClusterInput<'a> {
    /// The API server's URL, as nodes reach it.
    pub api_server: &'a str,
    /// The API server's certificate authority, in PEM.
    pub kubernetes_ca_certificate: &'a str,
    /// The fetcher's token, which machines fetch their provisioning document with.
    pub fetch_token: &'a SecretText,
    /// A token for the machines of this machine deployment alone, in place of the fetcher's.
    pub own_fetch_token: Option<&'a SecretText>,
    /// The kubelet's bootstrap kubeconfig.
    pub bootstrap_kubeconfig: &'a SecretText,
}

/// How to log in to a registry; what is empty is not written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryCredential {
    /// The user's name.
    #[serde(with = "exposed")]
    pub username: SecretText,
    /// The user's password.
    #[serde(with = "exposed")]
    pub password: SecretText,
    /// Name and password in base64.
    #[serde(with = "exposed")]
    pub auth: SecretText,
    /// A token for the registry.
    #[serde(with = "exposed")]
    pub identity_token: SecretText,
}

impl fmt::Debug for RenderInput<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RenderInput")
            .field("namespace", &self.machine_deployment.namespace)
            .field("name", &self.machine_deployment.name)
            .field("profile", &self.profile.digest())
            .finish_non_exhaustive()
    }
}
