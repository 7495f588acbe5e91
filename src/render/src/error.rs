//! The reasons why a configuration cannot be rendered. Every variant names the object and the field
//! that must change. None contains rendered text, because it may contain secrets.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

/// One of the two halves of a profile, and the document that is rendered from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Half {
    /// The half for the user data of a machine.
    Bootstrap,
    /// The half that turns the machine into a node.
    Provisioning,
}

impl Half {
    /// Returns the name of the field in a profile and in a config.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Bootstrap => "bootstrapConfig",
            Self::Provisioning => "provisioningConfig",
        }
    }

    /// Returns a description of the document that is rendered from it.
    pub const fn document(self) -> &'static str {
        match self {
            Self::Bootstrap => "the bootstrap document",
            Self::Provisioning => "the provisioning document",
        }
    }
}

impl fmt::Display for Half {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.field())
    }
}

/// A place in a profile's templates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplatePlace {
    /// The half of the profile.
    pub half: Half,
    /// The file or the named template.
    pub name: String,
    /// The included template in which it happened, if any.
    pub included: Option<String>,
    /// The line in the innermost template.
    pub line: Option<usize>,
}

impl fmt::Display for TemplatePlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "profile, spec.{}, {}", self.half, self.name)?;
        if let Some(included) = &self.included {
            write!(formatter, ", in template `{included}`")?;
        }
        match self.line {
            Some(line) => write!(formatter, ", line {line}"),
            None => Ok(()),
        }
    }
}

/// The reason why a configuration cannot be rendered.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenderError {
    /// A file has no inline content.
    #[error("profile, spec.{half}, file `{path}`: content.inline is missing")]
    MissingInline {
        /// The half of the profile.
        half: Half,
        /// The file's path.
        path: String,
    },
    /// An old kubelet needs a configuration of the cloud provider that is not supported.
    #[error("failed to fetch cloud-config: {reason}")]
    CloudConfig {
        /// The reason, and what to do.
        reason: String,
    },
    /// The mirror of a registry is not a URL. The text itself is omitted, because it may contain a
    /// password.
    #[error("settings, registryMirrors of `{registry}`, mirror {}: {reason}", index + 1)]
    Mirror {
        /// The registry.
        registry: String,
        /// The index of the mirror, from 0.
        index: usize,
        /// The reason why it is not a URL.
        reason: Cow<'static, str>,
    },
    /// An insecure registry is a wildcard, and it has no mirror that names a host.
    #[error(
        "settings, insecureRegistries: `{registry}` names no host; give it mirrors in \
         registryMirrors, or name each registry"
    )]
    InsecureWithoutHost {
        /// The registry.
        registry: String,
    },
    /// A template cannot be compiled.
    #[error("{place}: {problem}")]
    TemplateSyntax {
        /// The place.
        place: TemplatePlace,
        /// The problem, in words of the template's own source.
        problem: String,
    },
    /// A template calls a function that templates must not call.
    #[error("{place}: {problem}")]
    RefusedFunction {
        /// The place.
        place: TemplatePlace,
        /// The function, and why it is refused.
        problem: String,
    },
    /// A template failed.
    #[error("{place}: {problem}")]
    Template {
        /// The place.
        place: TemplatePlace,
        /// The kind of problem.
        problem: String,
    },
    /// A template ran too long.
    #[error("{place}: the profile runs more than {fuel} instructions (64 bytes count as one)")]
    OutOfFuel {
        /// The place.
        place: TemplatePlace,
        /// The limit.
        fuel: u64,
    },
    /// A template wrote too much output.
    #[error("{place}: the template writes more than {bytes_max} bytes")]
    OutputTooLarge {
        /// The place.
        place: TemplatePlace,
        /// The limit.
        bytes_max: usize,
    },
    /// A template created too many intermediate values.
    #[error("{place}: the profile makes more than {bytes_max} bytes of intermediate values")]
    WorkTooLarge {
        /// The place.
        place: TemplatePlace,
        /// The limit.
        bytes_max: usize,
    },
    /// There is no provider spec.
    #[error(
        "machine deployment, spec.template.spec.providerSpec.value: providerSpec cannot be empty"
    )]
    ProviderSpecEmpty,
    /// The provider spec cannot be decoded.
    #[error(
        "machine deployment, spec.template.spec.providerSpec.value: \
         failed to decode provider configs: {reason}"
    )]
    ProviderConfig {
        /// The reason.
        reason: String,
    },
    /// The operating system is unknown.
    #[error(
        "machine deployment, spec.template.spec.providerSpec.value.operatingSystem: \
         failed to add operating system spec: unknown OperatingSystem `{name}`"
    )]
    UnknownOperatingSystem {
        /// The name.
        name: String,
    },
    /// The cloud provider is unknown.
    #[error(
        "machine deployment, spec.template.spec.providerSpec.value.cloudProvider: \
         unknown cloud provider `{name}`"
    )]
    UnknownCloudProvider {
        /// The name.
        name: String,
    },
    /// A static network is configured for an operating system that does not support it.
    #[error(
        "machine deployment, spec.template.spec.providerSpec.value.network: \
         static IP config is not supported with: {operating_system}"
    )]
    StaticNetwork {
        /// The operating system.
        operating_system: String,
    },
    /// The provisioning utility is unknown.
    #[error(
        "machine deployment, \
         spec.template.spec.providerSpec.value.operatingSystemSpec.provisioningUtility: \
         `{name}` is neither `ignition` nor `cloud-init`"
    )]
    UnknownUtility {
        /// The name.
        name: String,
    },
    /// The profile is for another provisioning utility.
    #[error(
        "specified provisioning utility \"{profile}\" is not supported by the \
         OperatingSystemProfile: the machine deployment needs \"{machine_deployment}\" \
         (profile, spec.provisioningUtility)"
    )]
    UtilityMismatch {
        /// The utility of the profile.
        profile: Cow<'static, str>,
        /// The utility that the machine deployment needs.
        machine_deployment: Cow<'static, str>,
    },
    /// A profile for cloud-init sets a version of Ignition.
    #[error(
        "profile, spec.ignitionVersion: it is set, and spec.provisioningUtility is not \
         `ignition`; remove one of the two"
    )]
    IgnitionVersionUnused,
    /// No kubelet accepts the value of an annotation.
    #[error("machine deployment, annotation {annotation}: {reason}")]
    KubeletAnnotation {
        /// The annotation's key.
        annotation: String,
        /// The reason.
        reason: String,
    },
    /// An annotation with a feature gate is invalid.
    #[error("machine deployment, annotation {annotation}: {reason}")]
    FeatureGate {
        /// The annotation's name.
        annotation: String,
        /// The reason, and which values are valid.
        reason: String,
    },
    /// The kubelet does not start with one of the tenant's feature gates.
    #[error("settings, kubeletFeatureGates, `{gate}`: {reason}")]
    TenantFeatureGate {
        /// The gate.
        gate: String,
        /// Why it does not.
        reason: String,
    },
    /// A field of the kubelet's configuration cannot be set by the tenant, or not so.
    #[error("settings, kubeletConfiguration, {reason}")]
    KubeletConfiguration {
        /// The field, and the reason.
        reason: String,
    },
    /// The profile's kubelet would not read the drop-ins of its configuration.
    #[error(
        "profile: its kubelet does not read the fields of kubeletConfiguration; add \
         --config-dir=/etc/kubernetes/kubelet.conf.d to its flags if the variable kubelet_drop_ins, which Jinja has, is true"
    )]
    DropInsUnread,
    /// The kubelet does not start with one of the tenant's image credential providers.
    #[error("settings, imageCredentialProviders, `{name}`: {reason}")]
    ImageCredentialProvider {
        /// Its name.
        name: String,
        /// Why it does not.
        reason: String,
    },
    /// The profile's kubelet would not ask the tenant's image credential providers.
    #[error(
        "profile: its kubelet does not read imageCredentialProviders; if the variable \
         image_credential_providers, which Jinja has, is not empty, download its programs, and add \
         --image-credential-provider-config=/etc/kubernetes/image-credential-providers.json and \
         --image-credential-provider-bin-dir to its flags"
    )]
    ImageCredentialProvidersUnread,
    /// The kubelet's version is invalid.
    #[error(
        "machine deployment, spec.template.spec.versions.kubelet: \
         invalid kubelet version: {reason}"
    )]
    KubeletVersion {
        /// The reason.
        reason: String,
    },
    /// A value would break out of its place in the document.
    #[error("{half}, {place}: {reason}")]
    Unsafe {
        /// The document.
        half: Half,
        /// The place in it.
        place: String,
        /// The reason.
        reason: Cow<'static, str>,
    },
}

impl RenderError {
    /// Returns the place in a profile's templates, if the error has one.
    pub const fn place(&self) -> Option<&TemplatePlace> {
        match self {
            Self::TemplateSyntax { place, .. }
            | Self::RefusedFunction { place, .. }
            | Self::Template { place, .. }
            | Self::OutOfFuel { place, .. }
            | Self::OutputTooLarge { place, .. }
            | Self::WorkTooLarge { place, .. } => Some(place),
            _ => None,
        }
    }

    /// Returns true if a template exceeded one of the engine's limits.
    pub const fn is_of_a_limit(&self) -> bool {
        matches!(
            self,
            Self::OutOfFuel { .. } | Self::OutputTooLarge { .. } | Self::WorkTooLarge { .. }
        )
    }

    /// Returns the error's category in one word, for metrics and Events.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::MissingInline { .. } => "missing-inline",
            Self::TemplateSyntax { .. } | Self::RefusedFunction { .. } => "template-syntax",
            Self::Template { .. } => "template",
            Self::OutOfFuel { .. } => "template-fuel",
            Self::OutputTooLarge { .. } => "template-output",
            Self::WorkTooLarge { .. } => "template-work",
            Self::ProviderSpecEmpty | Self::ProviderConfig { .. } => "provider-spec",
            Self::UnknownOperatingSystem { .. } => "operating-system",
            Self::UnknownCloudProvider { .. } | Self::CloudConfig { .. } => "cloud-provider",
            Self::StaticNetwork { .. } => "static-network",
            Self::UnknownUtility { .. } | Self::UtilityMismatch { .. } => "provisioning-utility",
            Self::IgnitionVersionUnused => "ignition-version",
            Self::KubeletConfiguration { .. } | Self::DropInsUnread => "kubelet-configuration",
            Self::ImageCredentialProvider { .. } | Self::ImageCredentialProvidersUnread => {
                "image-credential-provider"
            }
            Self::KubeletAnnotation { .. } => "kubelet-annotation",
            Self::FeatureGate { .. } | Self::TenantFeatureGate { .. } => "feature-gate",
            Self::KubeletVersion { .. } => "kubelet-version",
            Self::Mirror { .. } | Self::InsecureWithoutHost { .. } => "registry",
            Self::Unsafe { .. } => "unsafe-value",
        }
    }
}
