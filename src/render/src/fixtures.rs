//! Fixtures for the tests of this module. Tests change single fields.

use std::collections::BTreeMap;

use serde_json::json;

use super::{
    Limits, RenderError, Rendered,
    input::{
        ClusterInput, MachineDeploymentInput, ProviderConfig, RegistryCredential, RenderInput,
    },
    render,
    template::CompiledProfile,
};
use osm_api::profile::{
    ContainerRuntime, ContainerRuntimeSpec, File, FileContent, FileContentInline, OperatingSystem,
    OperatingSystemProfileSpec, ProfileConfig, TemplateLanguage,
};
use osm_tenant::{secret_text::SecretText, settings::TenantSettings};

/// Creates a file with a template.
pub fn a_file(path: &str, data: &str) -> File {
    File {
        path: path.to_owned(),
        permissions: 644,
        content: FileContent {
            inline: Some(FileContentInline {
                encoding: None,
                data: data.to_owned(),
            }),
        },
    }
}

/// Creates a Jinja profile for Ubuntu without files.
pub fn a_profile() -> OperatingSystemProfileSpec {
    OperatingSystemProfileSpec {
        extends: None,
        os_name: OperatingSystem::Ubuntu,
        os_version: "24.04".to_owned(),
        version: "v1.0.0".to_owned(),
        template_language: Some(TemplateLanguage::Jinja),
        supported_cloud_providers: Vec::new(),
        bootstrap_config: ProfileConfig::default(),
        provisioning_config: ProfileConfig::default(),
        provisioning_utility: None,
        ignition_version: None,
        effects: Vec::new(),
    }
}

/// Creates the part of a profile for containerd.
pub fn a_runtime(files: Vec<File>) -> ContainerRuntimeSpec {
    ContainerRuntimeSpec {
        name: ContainerRuntime::Containerd,
        files,
        templates: BTreeMap::new(),
    }
}

/// Everything that a render borrows.
pub struct World {
    pub profile: OperatingSystemProfileSpec,
    pub annotations: BTreeMap<String, String>,
    pub kubelet_version: String,
    pub provider_spec: serde_json::Value,
    pub settings: TenantSettings,
    pub fetch_token: SecretText,
    pub bootstrap_kubeconfig: SecretText,
    pub registry_credentials: BTreeMap<String, RegistryCredential>,
    pub limits: Limits,
}

/// Creates a machine deployment `workers` in `kube-system` on Ubuntu and OpenStack.
pub fn a_world() -> World {
    World {
        profile: a_profile(),
        annotations: BTreeMap::new(),
        kubelet_version: "1.34.1".to_owned(),
        provider_spec: json!({
            "operatingSystem": "ubuntu",
            "cloudProvider": "openstack",
            "cloudProviderSpec": {"password": "cloud-secret"},
        }),
        settings: TenantSettings::default(),
        fetch_token: SecretText::new("fetch-secret"),
        bootstrap_kubeconfig: SecretText::new("kubeconfig-secret"),
        registry_credentials: BTreeMap::new(),
        limits: Limits::default(),
    }
}

impl World {
    /// Compiles and renders the profile.
    pub fn render(&self) -> Result<Rendered, RenderError> {
        let profile = CompiledProfile::compile(&self.profile)?;
        let provider = ProviderConfig::decode(&self.provider_spec)?;
        self.render_with(&profile, &provider)
    }

    /// Renders with a compiled profile and a decoded provider.
    pub fn render_with(
        &self,
        profile: &CompiledProfile,
        provider: &ProviderConfig,
    ) -> Result<Rendered, RenderError> {
        render(&self.input(profile, provider), &self.limits)
    }

    /// Returns the input of a render.
    pub fn input<'a>(
        &'a self,
        profile: &'a CompiledProfile,
        provider: &'a ProviderConfig,
    ) -> RenderInput<'a> {
        RenderInput {
            machine_deployment: MachineDeploymentInput {
                name: "workers",
                namespace: "kube-system",
                annotations: &self.annotations,
                kubelet_version: &self.kubelet_version,
                provider,
            },
            profile,
            settings: &self.settings,
            cluster: ClusterInput {
                api_server: "https://api.example.com:6443",
                kubernetes_ca_certificate: "certificate",
                fetch_token: &self.fetch_token,
                own_fetch_token: None,
                bootstrap_kubeconfig: &self.bootstrap_kubeconfig,
            },
            registry_credentials: &self.registry_credentials,
        }
    }

    /// Renders a template as the only file, and returns its text.
    pub fn text(&self, template: &str) -> Result<String, RenderError> {
        let mut profile = self.profile.clone();
        profile.provisioning_config.files = vec![a_file("/f", template)];
        let world = World {
            profile,
            annotations: self.annotations.clone(),
            kubelet_version: self.kubelet_version.clone(),
            provider_spec: self.provider_spec.clone(),
            settings: self.settings.clone(),
            fetch_token: self.fetch_token.clone(),
            bootstrap_kubeconfig: self.bootstrap_kubeconfig.clone(),
            registry_credentials: self.registry_credentials.clone(),
            limits: self.limits,
        };
        let rendered = world.render()?;
        Ok(data(&rendered.config.provisioning_config.files[0]))
    }
}

/// Returns a file's data.
pub fn data(file: &File) -> String {
    file.content
        .inline
        .as_ref()
        .map(|inline| inline.data.clone())
        .unwrap_or_default()
}
