//! One machine deployment, and everything else that a render borrows, to be changed by field.

use std::collections::BTreeMap;

use osm::{
    render::{
        Limits, RenderError, RenderInput, Rendered,
        input::{ClusterInput, MachineDeploymentInput, ProviderConfig, RegistryCredential},
        render,
        template::CompiledProfile,
    },
    tenant::{secret_text::SecretText, settings::TenantSettings},
};
use serde_json::{Value, json};

/// What is rendered. Every secret in it begins with `hidden-`.
pub struct Subject {
    pub name: String,
    pub annotations: BTreeMap<String, String>,
    pub kubelet_version: String,
    pub provider_spec: Value,
    pub settings: TenantSettings,
    pub api_server: String,
    pub authority: String,
    pub fetch_token: SecretText,
    pub own_fetch_token: Option<SecretText>,
    pub bootstrap_kubeconfig: SecretText,
    pub registry_credentials: BTreeMap<String, RegistryCredential>,
    pub limits: Limits,
}

impl Subject {
    /// A machine deployment on Ubuntu and OpenStack.
    pub fn new() -> Self {
        Self {
            name: "workers".to_owned(),
            annotations: BTreeMap::new(),
            kubelet_version: "1.34.1".to_owned(),
            provider_spec: json!({
                "operatingSystem": "ubuntu",
                "cloudProvider": "openstack",
                "cloudProviderSpec": {"password": "hidden-cloud-password"},
            }),
            settings: TenantSettings::default(),
            api_server: "https://api.example.com:6443".to_owned(),
            authority: "certificate".to_owned(),
            fetch_token: SecretText::new("hidden-fetch-token"),
            own_fetch_token: None,
            bootstrap_kubeconfig: SecretText::new("hidden-kubeconfig"),
            registry_credentials: BTreeMap::new(),
            limits: Limits::default(),
        }
    }

    /// Renders a profile.
    pub fn render(&self, profile: &CompiledProfile) -> Result<Rendered, RenderError> {
        self.with_input(profile, |input| render(input, &self.limits))
    }

    /// What something comes to with what a profile is rendered from.
    pub fn with_input<T>(
        &self,
        profile: &CompiledProfile,
        work: impl FnOnce(&RenderInput<'_>) -> Result<T, RenderError>,
    ) -> Result<T, RenderError> {
        let provider = ProviderConfig::decode(&self.provider_spec)?;
        work(&RenderInput {
            machine_deployment: MachineDeploymentInput {
                name: &self.name,
                namespace: "kube-system",
                annotations: &self.annotations,
                kubelet_version: &self.kubelet_version,
                provider: &provider,
            },
            profile,
            settings: &self.settings,
            cluster: ClusterInput {
                api_server: &self.api_server,
                kubernetes_ca_certificate: &self.authority,
                fetch_token: &self.fetch_token,
                own_fetch_token: self.own_fetch_token.as_ref(),
                bootstrap_kubeconfig: &self.bootstrap_kubeconfig,
            },
            registry_credentials: &self.registry_credentials,
        })
    }
}
