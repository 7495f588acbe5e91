//! What the default profiles render to, for the machines that are booted.

use osm::{
    api::names::DerivedNames,
    api::profile::{CloudProvider, OperatingSystemProfile, ProvisioningUtility},
    render::{
        default_profiles::{DefaultProfile, default_profiles},
        template::CompiledProfile,
    },
    tenant::secret_text::SecretText,
};
use serde_json::json;

use crate::subject::Subject;

/// Where the machine deployments are, which have the names of their profiles.
const NAMESPACE: &str = "kube-system";

/// The key that users log in with.
pub const SSH_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDxGPcZzwmWfQzWQfzJzkq1oYUNVBZqTRBWV6cvcgHcS user@host";

/// The name that machine-controller gives a machine, in place of the documents' marker.
pub const MACHINE_NAME: &str = "workers-7d9f8-x2v4q";

/// How a machine reaches its cluster.
#[derive(Clone)]
pub struct Access {
    pub server: String,
    pub authority: String,
    pub token: String,
}

impl Access {
    /// To a cluster that nobody asks.
    pub fn unused() -> Self {
        Self {
            server: "https://cluster.example.com:6443".to_owned(),
            authority: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(),
            token: "t0ken".to_owned(),
        }
    }
}

/// One machine deployment's documents.
pub struct Documents {
    /// What to call them in a message.
    pub name: String,
    /// The Secret that the provisioning document is fetched from.
    pub secret: String,
    pub bootstrap: Vec<u8>,
    pub provisioning: Vec<u8>,
}

/// A default profile, ready to be rendered.
pub struct Profile {
    pub name: &'static str,
    compiled: CompiledProfile,
}

impl Profile {
    /// Every default profile.
    pub fn all() -> Vec<Self> {
        let compile = |profile: &DefaultProfile| {
            let object: OperatingSystemProfile =
                serde_saphyr::from_str(profile.yaml).expect("a default profile is a profile");
            Self {
                name: profile.name,
                compiled: CompiledProfile::compile(&object.spec)
                    .expect("a default profile compiles"),
            }
        };
        default_profiles().iter().map(compile).collect()
    }

    /// Whether cloud-init reads its documents; otherwise Ignition does.
    pub fn is_cloud_init(&self) -> bool {
        self.compiled.spec().provisioning_utility != Some(ProvisioningUtility::Ignition)
    }

    /// A provider whose machines do not name themselves, if there is one.
    pub fn provider(&self) -> CloudProvider {
        let providers = self.providers();
        let names_others = |provider: &&CloudProvider| **provider != CloudProvider::Aws;
        let provider = providers.iter().find(names_others).or(providers.first());
        provider.expect("a profile supports a provider").clone()
    }

    /// The providers that it works on.
    pub fn providers(&self) -> Vec<CloudProvider> {
        let providers = &self.compiled.spec().supported_cloud_providers;
        providers
            .iter()
            .map(|provider| provider.name.clone())
            .collect()
    }

    /// The documents, as a machine gets them: with its own name.
    pub fn render(&self, provider: &CloudProvider, access: &Access) -> Documents {
        let spec = self.compiled.spec();
        let utility = spec.provisioning_utility;
        let provider_spec = json!({
            "cloudProvider": provider.as_str(),
            "cloudProviderSpec": {},
            "operatingSystem": spec.os_name.as_str(),
            "operatingSystemSpec": {
                "provisioningUtility": utility.map(ProvisioningUtility::as_str),
            },
            "sshPublicKeys": [SSH_KEY],
        });
        let subject = Subject {
            name: self.name.to_owned(),
            provider_spec,
            api_server: access.server.clone(),
            authority: access.authority.clone(),
            fetch_token: SecretText::new(&access.token),
            bootstrap_kubeconfig: SecretText::new("clusters: []"),
            ..Subject::new()
        };
        let name = format!("{} on {}", self.name, provider.as_str());
        let rendered = subject.render(&self.compiled);
        let rendered = rendered.map_err(|error| format!("{name}: {error}"));
        let rendered = rendered.expect("a default profile renders");
        Documents {
            bootstrap: with_name(rendered.bootstrap.as_bytes()),
            provisioning: with_name(rendered.provisioning.as_bytes()),
            secret: DerivedNames::new(NAMESPACE, self.name).provisioning,
            name,
        }
    }
}

impl Documents {
    /// Whether Ignition reads them.
    pub fn is_ignition(&self) -> bool {
        self.bootstrap.starts_with(b"{")
    }
}

fn with_name(document: &[u8]) -> Vec<u8> {
    let text = std::str::from_utf8(document).expect("a document is text");
    text.replace("<MACHINE_NAME>", MACHINE_NAME).into_bytes()
}
