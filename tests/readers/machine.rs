//! A machine deployment and its cluster, as far as documents depend on them.

use std::collections::BTreeMap;

use osm::{
    api::{
        profile::OperatingSystem,
        worker_cluster::{
            Binaries, Binary, EnvironmentVariable, ImageCredentialProvider, TokenAttributes,
            TokenCache,
        },
    },
    render::{Rendered, input::RegistryCredential, template::CompiledProfile},
    tenant::{secret_text::SecretText, settings::TenantSettings},
};
use serde_json::{Value, json};

use crate::{
    cases::{SSH_KEY, TOKEN, certificate},
    subject::Subject,
};

/// The program that kubelets ask for credentials.
pub const CREDENTIAL_PROVIDER: &str = "registry-login";

/// A machine deployment and its cluster: what differs from case to case.
#[derive(Clone)]
pub struct Machine {
    pub deployment: String,
    pub provider: String,
    pub kubelet: &'static str,
    pub network: Value,
    pub keys: Vec<&'static str>,
    pub operating_system_spec: BTreeMap<&'static str, Value>,
    pub annotations: BTreeMap<String, String>,
    pub settings: TenantSettings,
    pub credentials: BTreeMap<String, RegistryCredential>,
    pub access: Access,
}

/// How a machine reaches its cluster.
#[derive(Clone)]
pub struct Access {
    pub server: String,
    pub authority: String,
    pub token: String,
}

impl Machine {
    pub fn new(provider: &str) -> Self {
        Self {
            deployment: "workers".to_owned(),
            provider: provider.to_owned(),
            kubelet: "1.34.1",
            network: json!({}),
            keys: vec![SSH_KEY],
            operating_system_spec: BTreeMap::new(),
            annotations: BTreeMap::new(),
            settings: TenantSettings::default(),
            credentials: BTreeMap::new(),
            access: Access {
                server: "https://cluster.example.com:6443".to_owned(),
                authority: certificate(),
                token: format!("{TOKEN}.{}", "Abc4".repeat(230)),
            },
        }
    }

    /// What the machine gets, or why it gets nothing.
    pub fn render(&self, profile: &CompiledProfile) -> Result<Rendered, String> {
        let spec = profile.spec();
        let mut system = self.operating_system_spec.clone();
        // Only Flatcar's machines can choose.
        if spec.os_name == OperatingSystem::Flatcar {
            system.insert("provisioningUtility", json!(spec.provisioning_utility));
        }
        let provider_spec = json!({
            "cloudProvider": self.provider,
            "cloudProviderSpec": {},
            "operatingSystem": spec.os_name.as_str(),
            "operatingSystemSpec": system,
            "network": self.network,
            "sshPublicKeys": self.keys,
        });
        let subject = Subject {
            name: self.deployment.clone(),
            annotations: self.annotations.clone(),
            kubelet_version: self.kubelet.to_owned(),
            provider_spec,
            settings: self.settings.clone(),
            api_server: self.access.server.clone(),
            authority: self.access.authority.clone(),
            fetch_token: SecretText::new(&self.access.token),
            bootstrap_kubeconfig: SecretText::new("clusters: []"),
            registry_credentials: self.credentials.clone(),
            ..Subject::new()
        };
        subject.render(profile).map_err(|error| error.to_string())
    }
}

/// A program that a kubelet asks for credentials. Its content is `content`.
pub fn a_credential_provider() -> ImageCredentialProvider {
    let binary = |architecture: &str| Binary {
        url: format!("https://mirror.example.com/{architecture}/{CREDENTIAL_PROVIDER}"),
        sha256: "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73".to_owned(),
    };
    let key = |name: &str| vec![format!("example.com/{name}")];
    ImageCredentialProvider {
        name: CREDENTIAL_PROVIDER.to_owned(),
        binaries: Binaries {
            amd64: Some(binary("amd64")),
            arm64: Some(binary("arm64")),
        },
        match_images: vec!["*.registry.example.com:5000/team".to_owned()],
        default_cache_duration: "1h30m".to_owned(),
        args: vec!["get".to_owned()],
        env: vec![EnvironmentVariable {
            name: "REGION".to_owned(),
            value: String::new(),
        }],
        token_attributes: Some(TokenAttributes {
            service_account_token_audience: "registry".to_owned(),
            cache_type: TokenCache::ServiceAccount,
            require_service_account: true,
            required_service_account_annotation_keys: key("role"),
            optional_service_account_annotation_keys: key("region"),
        }),
    }
}
