//! Validates profiles, and checks which machine deployments they can serve.
//!
//! `check` and `check_update` refuse what can never work; `warnings` lists probable mistakes that
//! earlier versions accepted. Templates are not checked here: the renderer compiles them.

use std::{collections::HashSet, fmt};

use super::shape::similar;
use osm_api::profile::{
    CloudProvider, ContainerRuntime, File, OperatingSystem, OperatingSystemProfileSpec,
    ProfileConfig, ProvisioningUtility, TemplateLanguage, VERSION_METADATA_JINJA,
};
use osm_render::thin;

/// The reason why a profile is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileRefused {
    /// Only Ignition supports units, and only Flatcar uses Ignition.
    #[error("OperatingSystemProfile for {} does not support units", .0.as_str())]
    Units(OperatingSystem),
    /// `spec.ignitionVersion` is set, but the profile's documents are not for Ignition.
    #[error(
        "spec.ignitionVersion: it is set, and spec.provisioningUtility is not `ignition`; remove \
         one of the two"
    )]
    IgnitionVersion,
    /// A file has no content at all.
    #[error("{field}: it is missing; an empty file has `inline: {{data: \"\"}}`")]
    NoContent {
        /// The field.
        field: String,
    },
    /// The version is not a semantic version with the prefix `v`.
    #[error(
        "spec.version: `{version}` is not a semantic version with the prefix v, such as v1.2.3"
    )]
    Version {
        /// The version.
        version: String,
    },
    /// The spec changed, but its version did not.
    #[error("OperatingSystemProfile is immutable. For updates .spec.version needs to be updated")]
    SameVersion,
}

impl ProfileRefused {
    /// Returns the error category, in snake case, for metrics.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Units(_) => "profile_units_unsupported",
            Self::IgnitionVersion => "profile_ignition_version_unused",
            Self::NoContent { .. } => "profile_file_without_content",
            Self::Version { .. } => "profile_version_invalid",
            Self::SameVersion => "profile_version_unchanged",
        }
    }
}

/// The reason why a profile cannot serve a machine deployment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// The profile configures another operating system.
    #[error("OperatingSystemProfile {profile:?} does not support operating system {name:?}")]
    OperatingSystem {
        /// The profile's name.
        profile: String,
        /// The machine deployment's operating system.
        name: String,
    },
    /// The profile does not support the cloud provider.
    #[error("OperatingSystemProfile {profile:?} does not support cloud provider {name:?}")]
    CloudProvider {
        /// The profile's name.
        profile: String,
        /// The machine deployment's cloud provider.
        name: String,
    },
    /// The profile's documents are for another provisioning utility.
    #[error(
        "specified provisioning utility {name:?} is not supported by the OperatingSystemProfile"
    )]
    ProvisioningUtility {
        /// The provisioning utility that the profile's documents are for.
        name: String,
    },
}

impl Unsupported {
    /// Returns the error category, in snake case, for metrics.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::OperatingSystem { .. } => "profile_operating_system_unsupported",
            Self::CloudProvider { .. } => "profile_cloud_provider_unsupported",
            Self::ProvisioningUtility { .. } => "profile_utility_unsupported",
        }
    }
}

/// The requirements of a machine deployment to a profile, in its own spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand<'a> {
    /// The operating system.
    pub operating_system: &'a str,
    /// The cloud provider.
    pub cloud_provider: &'a str,
}

/// A probable mistake in a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Two files of a document have the same path; the later one wins.
    DuplicatePath {
        /// The later file's field.
        field: String,
        /// The path.
        path: String,
    },
    /// A path is not absolute.
    RelativePath {
        /// The field.
        field: String,
    },
    /// The mode has a digit that is not octal, or more than four digits.
    Permissions {
        /// The field.
        field: String,
        /// The mode.
        permissions: i32,
    },
    /// The profile supports no cloud provider, so nobody can use it.
    NoCloudProvider,
    /// No machine deployment can have this value.
    Unknown {
        /// The field.
        field: String,
        /// The value.
        value: String,
        /// The known value that is spelt most like it, if one is.
        nearest: Option<String>,
    },
    /// There is text before the semantic version.
    VersionPrefix {
        /// The text before the version.
        prefix: String,
    },
    /// The version does not name the language. If the API server has an older schema, it drops
    /// `spec.templateLanguage`, and the language is lost.
    LanguageNotInVersion,
}

impl fmt::Display for Warning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DuplicatePath { field, path } => {
                write!(
                    formatter,
                    "{field}: an earlier file has the path {path}, too"
                )
            }
            Self::RelativePath { field } => write!(formatter, "{field}: the path is not absolute"),
            Self::Permissions { field, permissions } => {
                write!(
                    formatter,
                    "{field}: {permissions} is not a mode such as 644 or 4755"
                )
            }
            Self::NoCloudProvider => formatter
                .write_str("spec.supportedCloudProviders: it is empty; nobody can use the profile"),
            Self::Unknown { field, value, .. } => write!(
                formatter,
                "{field}: no machine deployment can use `{value}`, which this version does not know"
            ),
            Self::VersionPrefix { prefix } => {
                write!(formatter, "spec.version: `{prefix}` precedes the version")
            }
            Self::LanguageNotInVersion => write!(
                formatter,
                "spec.version: it lacks `+{VERSION_METADATA_JINJA}`; where an older schema drops \
                 spec.templateLanguage, the templates would be read as Go templates"
            ),
        }
    }
}

/// Validates a profile by itself.
///
/// # Errors
///
/// Returns the first reason for which the profile is refused.
pub fn check(spec: &OperatingSystemProfileSpec) -> Result<(), ProfileRefused> {
    refusals(spec).into_iter().next().map_or(Ok(()), Err)
}

/// Returns all reasons for which a profile is refused.
pub fn refusals(spec: &OperatingSystemProfileSpec) -> Vec<ProfileRefused> {
    let mut refusals = Vec::new();
    let has_units =
        !spec.bootstrap_config.units.is_empty() || !spec.provisioning_config.units.is_empty();
    if has_units && spec.os_name != OperatingSystem::Flatcar {
        refusals.push(ProfileRefused::Units(spec.os_name.clone()));
    }
    let is_for_ignition = spec.provisioning_utility == Some(ProvisioningUtility::Ignition);
    if spec.ignition_version.is_some() && !is_for_ignition {
        refusals.push(ProfileRefused::IgnitionVersion);
    }
    if version_start(&spec.version).is_none() {
        refusals.push(ProfileRefused::Version {
            version: spec.version.clone(),
        });
    }
    for (half, config) in halves(spec) {
        let files = files(half, config).into_iter();
        let empty = files.filter(|(_, file)| file.content.inline.is_none());
        refusals.extend(empty.map(|(field, _)| ProfileRefused::NoContent {
            field: format!("{field}.content.inline"),
        }));
    }
    refusals
}

/// Validates an update: a changed spec needs another version, which may be lower. A thin profile
/// may become whole.
///
/// # Errors
///
/// Returns [`ProfileRefused::SameVersion`] if the spec changed under its old version.
pub fn check_update(
    old: &OperatingSystemProfileSpec,
    new: &OperatingSystemProfileSpec,
) -> Result<(), ProfileRefused> {
    let expands = thin::names_content(old) && new.extends.is_none();
    if old != new && old.version == new.version && !expands {
        return Err(ProfileRefused::SameVersion);
    }
    Ok(())
}

/// Checks whether a profile can serve a machine deployment.
///
/// # Errors
///
/// The profile does not support the operating system or the cloud provider.
pub fn check_demand(
    profile: &str,
    spec: &OperatingSystemProfileSpec,
    demand: Demand<'_>,
) -> Result<(), Unsupported> {
    if spec.os_name.as_str() != demand.operating_system {
        return Err(Unsupported::OperatingSystem {
            profile: profile.to_owned(),
            name: demand.operating_system.to_owned(),
        });
    }
    let mut providers = spec.supported_cloud_providers.iter();
    if !providers.any(|provider| provider.name.as_str() == demand.cloud_provider) {
        return Err(Unsupported::CloudProvider {
            profile: profile.to_owned(),
            name: demand.cloud_provider.to_owned(),
        });
    }
    Ok(())
}

/// Checks whether a profile's documents are for the provisioning utility of the machine deployment.
/// A profile that names none is for any.
///
/// # Errors
///
/// The profile names another provisioning utility.
pub fn check_utility(spec: &OperatingSystemProfileSpec, utility: &str) -> Result<(), Unsupported> {
    match spec.provisioning_utility {
        Some(supported) if supported.as_str() != utility => Err(Unsupported::ProvisioningUtility {
            name: supported.as_str().to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Returns the cloud providers of a profile that machine deployments can use; none if they cannot
/// use its operating system.
pub fn usable_providers(spec: &OperatingSystemProfileSpec) -> impl Iterator<Item = &CloudProvider> {
    let is_usable = !matches!(spec.os_name, OperatingSystem::Other(_));
    let providers = spec.supported_cloud_providers.iter().map(|it| &it.name);
    providers.filter(move |name| is_usable && !matches!(name, CloudProvider::Other(_)))
}

/// Returns the probable mistakes in a profile.
pub fn warnings(spec: &OperatingSystemProfileSpec) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if spec.supported_cloud_providers.is_empty() && spec.extends.is_none() {
        warnings.push(Warning::NoCloudProvider);
    }
    warnings.extend(unknown_names(spec));
    if let Some(prefix) = version_start(&spec.version)
        .and_then(|start| spec.version.get(..start))
        .filter(|prefix| !prefix.is_empty())
    {
        warnings.push(Warning::VersionPrefix {
            prefix: prefix.to_owned(),
        });
    }
    if spec.template_language == Some(TemplateLanguage::Jinja) && !spec.is_jinja_by_version() {
        warnings.push(Warning::LanguageNotInVersion);
    }
    for (half, config) in halves(spec) {
        warnings.extend(file_warnings(half, config));
    }
    warnings
}

fn unknown_names(spec: &OperatingSystemProfileSpec) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if let OperatingSystem::Other(name) = &spec.os_name {
        warnings.push(Warning::Unknown {
            field: "spec.osName".to_owned(),
            value: name.to_string(),
            nearest: similar(
                name,
                OperatingSystem::KNOWN.iter().map(OperatingSystem::as_str),
            ),
        });
    }
    let providers = spec.supported_cloud_providers.iter().enumerate();
    for (index, provider) in providers {
        if let CloudProvider::Other(name) = &provider.name {
            warnings.push(Warning::Unknown {
                field: format!("spec.supportedCloudProviders[{index}].name"),
                value: name.to_string(),
                nearest: similar(name, CloudProvider::KNOWN.iter().map(CloudProvider::as_str)),
            });
        }
    }
    warnings
}

fn file_warnings(half: &str, config: &ProfileConfig) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut paths = HashSet::new();
    for (field, file) in files(half, config) {
        if !file.path.starts_with('/') {
            warnings.push(Warning::RelativePath {
                field: format!("{field}.path"),
            });
        }
        if !is_mode(file.permissions) {
            warnings.push(Warning::Permissions {
                field: format!("{field}.permissions"),
                permissions: file.permissions,
            });
        }
        if !paths.insert(&file.path) {
            warnings.push(Warning::DuplicatePath {
                field: format!("{field}.path"),
                path: file.path.clone(),
            });
        }
    }
    warnings
}

/// Returns both halves with their field paths.
pub(super) fn halves(spec: &OperatingSystemProfileSpec) -> [(&'static str, &ProfileConfig); 2] {
    [
        ("spec.bootstrapConfig", &spec.bootstrap_config),
        ("spec.provisioningConfig", &spec.provisioning_config),
    ]
}

/// Returns the files of a document with their field paths: those of the half, and those of
/// containerd. Docker's files are never part of a document.
pub(super) fn files<'a>(half: &str, config: &'a ProfileConfig) -> Vec<(String, &'a File)> {
    let own = config.files.iter().enumerate();
    let mut files: Vec<_> = own
        .map(|(index, file)| (format!("{half}.files[{index}]"), file))
        .collect();
    for (runtime, spec) in config.supported_container_runtimes.iter().enumerate() {
        if spec.name != ContainerRuntime::Containerd {
            continue;
        }
        files.extend(spec.files.iter().enumerate().map(|(index, file)| {
            let field = format!("{half}.supportedContainerRuntimes[{runtime}].files[{index}]");
            (field, file)
        }));
    }
    files
}

/// Returns the index of the `v` before the semantic version. It can be anywhere, because the schema
/// never restricted its position.
fn version_start(version: &str) -> Option<usize> {
    version
        .match_indices('v')
        .map(|(start, _)| start)
        .find(|start| {
            let number = version.get(start + 1..).unwrap_or_default();
            semver::Version::parse(number).is_ok()
        })
}

/// Returns true if the decimal digits are at most four octal ones.
pub(super) fn is_mode(permissions: i32) -> bool {
    let digits = permissions.to_string();
    digits.len() <= 4 && digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit))
}

#[cfg(test)]
mod tests;
