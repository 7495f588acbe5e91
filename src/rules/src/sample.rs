//! A sample machine deployment: what a profile is rendered with where no real one is at hand.
//! Every secret is there, so that a file which reads one is found.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use osm_api::profile::{
    CloudProvider, OperatingSystem, OperatingSystemProfileSpec, ProvisioningUtility,
};
use osm_render::{
    RenderError,
    input::{
        ClusterInput, MachineDeploymentInput, ProviderConfig, RegistryCredential, RenderInput,
    },
    template::CompiledProfile,
};
use osm_tenant::{secret_text::SecretText, settings::TenantSettings};

/// The kubelet's version, where nobody names one.
pub const KUBELET_VERSION: &str = "1.34.1";

/// The API server that the sample names.
pub const API_SERVER: &str = "https://kubernetes.example:6443";

/// As long as a token of a ServiceAccount is.
const TOKEN_BYTES: usize = 900;
/// As many lines as the certificate of an authority has.
const CERTIFICATE_LINES: usize = 17;

/// Everything that a render borrows.
pub struct Sample {
    annotations: BTreeMap<String, String>,
    kubelet_version: String,
    provider: ProviderConfig,
    certificate: String,
    fetch_token: SecretText,
    bootstrap_kubeconfig: SecretText,
    registry_credentials: BTreeMap<String, RegistryCredential>,
}

impl Sample {
    /// A machine deployment that the profile is made for, on one cloud provider.
    ///
    /// # Errors
    ///
    /// The operating system has no sample.
    pub fn new(
        spec: &OperatingSystemProfileSpec,
        cloud_provider: &CloudProvider,
        kubelet_version: &str,
    ) -> Result<Self, RenderError> {
        let secret = |name: &str| SecretText::new(format!("sample-{name}"));
        let credential = RegistryCredential {
            username: secret("user"),
            password: secret("password"),
            auth: secret("auth"),
            identity_token: secret("identity-token"),
        };
        Ok(Self {
            annotations: BTreeMap::new(),
            kubelet_version: kubelet_version.to_owned(),
            provider: ProviderConfig::decode(&provider_spec(spec, cloud_provider))?,
            certificate: certificate(),
            fetch_token: SecretText::new(format!("sample-{}", "t".repeat(TOKEN_BYTES))),
            bootstrap_kubeconfig: secret("kubeconfig"),
            registry_credentials: BTreeMap::from([("registry.example".to_owned(), credential)]),
        })
    }

    /// The input of a render.
    pub fn input<'a>(
        &'a self,
        profile: &'a CompiledProfile,
        settings: &'a TenantSettings,
    ) -> RenderInput<'a> {
        RenderInput {
            machine_deployment: MachineDeploymentInput {
                name: "workers",
                namespace: "kube-system",
                annotations: &self.annotations,
                kubelet_version: &self.kubelet_version,
                provider: &self.provider,
            },
            profile,
            settings,
            cluster: ClusterInput {
                api_server: API_SERVER,
                kubernetes_ca_certificate: &self.certificate,
                fetch_token: &self.fetch_token,
                own_fetch_token: None,
                bootstrap_kubeconfig: &self.bootstrap_kubeconfig,
            },
            registry_credentials: &self.registry_credentials,
        }
    }
}

fn provider_spec(spec: &OperatingSystemProfileSpec, cloud_provider: &CloudProvider) -> Json {
    let mut system = json!({
        "rhelSubscriptionManagerUser": "sample-user",
        "rhelSubscriptionManagerPassword": "sample-password",
        "rhsmOfflineToken": "sample-offline-token",
        "rhelOrganizationName": "sample-organization",
        "rhelActivationKey": "sample-key",
    });
    if spec.os_name == OperatingSystem::Flatcar {
        let utility = spec
            .provisioning_utility
            .unwrap_or(ProvisioningUtility::CloudInit);
        system = json!({"provisioningUtility": utility.as_str()});
    }
    json!({
        "operatingSystem": spec.os_name.as_str(),
        "operatingSystemSpec": system,
        "cloudProvider": cloud_provider.as_str(),
        "cloudProviderSpec": {},
        "overwriteCloudConfig": "sample-cloud-config",
        "sshPublicKeys": ["ssh-ed25519 sample"],
    })
}

/// No certificate, but as long as one.
fn certificate() -> String {
    let line = format!("{}\n", "A".repeat(64));
    format!(
        "-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n",
        line.repeat(CERTIFICATE_LINES)
    )
}
