//! The input of a render. Everything is borrowed, so that building an input costs nothing.
//!
//! The caller has already applied the tenant's overrides to the cluster info: the API server and
//! its certificate authority are used as they are.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use super::template::CompiledProfile;
use osm_tenant::{
    secret_text::{SecretText, exposed},
    settings::TenantSettings,
};

mod go_decode;
mod provider_config;

pub use provider_config::{FlatcarSpec, Network, OperatingSystemSpec, ProviderConfig, RhelSpec};

/// The input of a render.
#[derive(Clone, Copy)]
pub struct RenderInput<'a> {
    /// The machine deployment.
    pub machine_deployment: MachineDeploymentInput<'a>,
    /// The profile.
    pub profile: &'a CompiledProfile,
    /// The tenant's settings.
    pub settings: &'a TenantSettings,
    /// The cluster info of the worker cluster.
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
    /// The kubelet's version, as in the machine template.
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
    /// The fetcher's token, with which machines fetch their provisioning document.
    pub fetch_token: &'a SecretText,
    /// A token only for the machines of this machine deployment, instead of the fetcher's.
    pub own_fetch_token: Option<&'a SecretText>,
    /// The kubelet's bootstrap kubeconfig.
    pub bootstrap_kubeconfig: &'a SecretText,
}

/// The login for a registry. Empty fields are not written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryCredential {
    /// The user's name.
    #[serde(with = "exposed")]
    pub username: SecretText,
    /// The user's password.
    #[serde(with = "exposed")]
    pub password: SecretText,
    /// The name and password in base64.
    #[serde(with = "exposed")]
    pub auth: SecretText,
    /// A token for the registry.
    #[serde(with = "exposed")]
    pub identity_token: SecretText,
}

impl RegistryCredential {
    /// Returns all that identifies it.
    pub fn parts(&self) -> [&SecretText; 4] {
        let Self {
            username,
            password,
            auth,
            identity_token,
        } = self;
        [username, password, auth, identity_token]
    }
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
