//! What makes a profile acceptable, and what it may be used for.
//!
//! `check` and `check_update` refuse what can never work; `warnings` lists what probably is a
//! mistake, but has been accepted so far. Templates are not looked at here: compiling them is the
//! renderer's business.

use std::{collections::HashSet, fmt};

use crate::api::profile::{
    ContainerRuntime, File, OperatingSystem, OperatingSystemProfileSpec, ProfileConfig,
    ProvisioningUtility, TemplateLanguage, VERSION_METADATA_JINJA,
};

/// Why a profile is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileRefused {
    /// Only Ignition knows units, and only Flatcar has Ignition.
    #[error("OperatingSystemProfile for {} does not support units", .0.as_str())]
    Units(OperatingSystem),
    /// Only Ignition reads a version of Ignition.
    #[error(
        "spec.ignitionVersion: it is set, and spec.provisioningUtility is not `ignition`; take \
         one of the two away"
    )]
    IgnitionVersion,
    /// A file has no content at all.
    #[error("{field}: it is missing; an empty file has `inline: {{data: \"\"}}`")]
    NoContent {
        /// The field.
        field: String,
    },
    /// The version is no semantic version.
    #[error("spec.version: `{version}` is not a semantic version behind a v, such as v1.2.3")]
    Version {
        /// The version.
        version: String,
    },
    /// The spec changed under its old version.
    #[error("OperatingSystemProfile is immutable. For updates .spec.version needs to be updated")]
    SameVersion,
}

impl ProfileRefused {
    /// A word for metrics and conditions.
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

/// Why a profile cannot serve a machine deployment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// It configures another operating system.
    #[error("OperatingSystemProfile {profile:?} does not support operating system {name:?}")]
    OperatingSystem {
        /// The profile's name.
        profile: String,
        /// The machine deployment's operating system.
        name: String,
    },
    /// It does not know the cloud provider.
    #[error("OperatingSystemProfile {profile:?} does not support cloud provider {name:?}")]
    CloudProvider {
        /// The profile's name.
        profile: String,
        /// The machine deployment's cloud provider.
        name: String,
    },
    /// It makes documents for another tool.
    #[error(
        "specified provisioning utility {name:?} is not supported by the OperatingSystemProfile"
    )]
    ProvisioningUtility {
        /// The tool that the profile makes documents for.
        name: String,
    },
}

impl Unsupported {
    /// A word for metrics and conditions.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::OperatingSystem { .. } => "profile_operating_system_unsupported",
            Self::CloudProvider { .. } => "profile_cloud_provider_unsupported",
            Self::ProvisioningUtility { .. } => "profile_utility_unsupported",
        }
    }
}

/// What a machine deployment asks of a profile, as it names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand<'a> {
    /// The operating system.
    pub operating_system: &'a str,
    /// The cloud provider.
    pub cloud_provider: &'a str,
}

/// What probably is a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Two files of one document have one path; the later one wins.
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
    /// The mode has digits that no octal number has, or too many.
    Permissions {
        /// The field.
        field: String,
        /// The mode.
        permissions: i32,
    },
    /// Nobody can use the profile.
    NoCloudProvider,
    /// The version is a semantic version from somewhere in its middle on.
    VersionPrefix {
        /// What stands before.
        prefix: String,
    },
    /// The language gets lost where the API server does not know the field.
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
            Self::VersionPrefix { prefix } => {
                write!(
                    formatter,
                    "spec.version: `{prefix}` stands before the version"
                )
            }
            Self::LanguageNotInVersion => write!(
                formatter,
                "spec.version: it lacks `+{VERSION_METADATA_JINJA}`; where an older schema drops \
                 spec.templateLanguage, the templates would be taken for Go's"
            ),
        }
    }
}

/// Judges a profile by itself.
pub fn check(spec: &OperatingSystemProfileSpec) -> Result<(), ProfileRefused> {
    refusals(spec).into_iter().next().map_or(Ok(()), Err)
}

/// Everything that a profile is refused for.
pub fn refusals(spec: &OperatingSystemProfileSpec) -> Vec<ProfileRefused> {
    let mut refusals = Vec::new();
    let has_units =
        !spec.bootstrap_config.units.is_empty() || !spec.provisioning_config.units.is_empty();
    if has_units && spec.os_name != OperatingSystem::Flatcar {
        refusals.push(ProfileRefused::Units(spec.os_name));
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

/// Judges an update: a changed spec needs another version, be it a lower one.
pub fn check_update(
    old: &OperatingSystemProfileSpec,
    new: &OperatingSystemProfileSpec,
) -> Result<(), ProfileRefused> {
    if old != new && old.version == new.version {
        return Err(ProfileRefused::SameVersion);
    }
    Ok(())
}

/// Whether a profile can serve a machine deployment.
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

/// Whether a profile makes documents for the tool that the machine deployment's machines have.
pub fn check_utility(spec: &OperatingSystemProfileSpec, utility: &str) -> Result<(), Unsupported> {
    match spec.provisioning_utility {
        Some(supported) if supported.as_str() != utility => Err(Unsupported::ProvisioningUtility {
            name: supported.as_str().to_owned(),
        }),
        _ => Ok(()),
    }
}

/// What probably is a mistake in a profile.
pub fn warnings(spec: &OperatingSystemProfileSpec) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if spec.supported_cloud_providers.is_empty() && spec.extends.is_none() {
        warnings.push(Warning::NoCloudProvider);
    }
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

/// The halves with their fields.
pub(super) fn halves(spec: &OperatingSystemProfileSpec) -> [(&'static str, &ProfileConfig); 2] {
    [
        ("spec.bootstrapConfig", &spec.bootstrap_config),
        ("spec.provisioningConfig", &spec.provisioning_config),
    ]
}

/// The files of one document with their fields: the half's own, and those that come with
/// containerd. Docker's never reach a document.
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

/// Where the semantic version begins, with its `v`: anywhere, since the schema never said where.
fn version_start(version: &str) -> Option<usize> {
    version
        .match_indices('v')
        .map(|(start, _)| start)
        .find(|start| {
            let number = version.get(start + 1..).unwrap_or_default();
            semver::Version::parse(number).is_ok()
        })
}

/// Whether the decimal digits are those of an octal mode.
pub(super) fn is_mode(permissions: i32) -> bool {
    let digits = permissions.to_string();
    digits.len() <= 4 && digits.bytes().all(|digit| (b'0'..=b'7').contains(&digit))
}

#[cfg(test)]
mod tests;
