//! The reasons why a machine deployment cannot be served.

use std::{fmt, sync::Arc};

use osm_api::{names::LABEL_VALUE_BYTES_MAX, reason::Reason};
use osm_render::{RenderError, default_profiles::default_profiles, overlay::OverlayError};
use osm_rules::{
    machine_deployment::NoDefaultProfile, profile::Unsupported, shape::similar, user_data,
};
use osm_tenant::settings::SettingsError;

/// The limit that a profile exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The quota of the namespace.
    Quota,
    /// The memory that tenants share.
    Memory,
}

impl fmt::Display for Shortage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Quota => "older profiles there use it up",
            Self::Memory => "beyond 1 MiB it needs memory that all tenants share, and none is left",
        })
    }
}

/// The reason why a machine deployment is not served until something changes.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Invalid {
    /// The machine deployment cannot be read.
    #[error(
        "the machine deployment cannot be read: spec.template.spec.versions.kubelet must be a \
         string (in quotes), spec.template.spec.providerSpec an object"
    )]
    Unreadable,
    /// The machine deployment, or all of the cluster's machine deployments, take too much memory.
    #[error(
        "the machine deployment is too large to be kept: shorten its annotations, labels and \
         provider spec, or those of the cluster's other machine deployments"
    )]
    TooLarge,
    /// It names no profile, and there is no default for its operating system.
    #[error("{0}")]
    NoDefaultProfile(#[from] NoDefaultProfile),
    /// The profile does not exist.
    #[error(
        "OperatingSystemProfile \"{name}\" not found in namespace \"{namespace}\"{}",
        did_you_mean(name)
    )]
    ProfileMissing {
        /// The profile's namespace.
        namespace: String,
        /// The profile's name.
        name: String,
    },
    /// The profile cannot be decoded.
    #[error(
        "OperatingSystemProfile \"{name}\" in namespace \"{namespace}\" cannot be read: a field is \
         missing or has a type that this version does not know; `osm lint` names it"
    )]
    ProfileUnreadable {
        /// The profile's namespace.
        namespace: String,
        /// The profile's name.
        name: String,
    },
    /// The quota of the profile's namespace has no room for it.
    #[error(
        "OperatingSystemProfile \"{name}\" exceeds the quota of namespace \"{namespace}\": \
         {shortage}; the operator of the fleet sets it"
    )]
    ProfileOverQuota {
        /// The profile's namespace.
        namespace: String,
        /// The profile's name.
        name: String,
        /// Which limit it exceeds.
        shortage: Shortage,
    },
    /// The tenant may not use profiles of this namespace.
    #[error(
        "annotation k8c.io/operating-system-profile-namespace: namespace \"{namespace}\" is \
         neither the tenant's own nor allowed by the operator"
    )]
    ProfileForbidden {
        /// The namespace that was named.
        namespace: String,
    },
    /// The profile's templates cannot be used.
    #[error("OperatingSystemProfile {name} cannot be used: {error}")]
    ProfileUnusable {
        /// The profile, as `namespace/name`.
        name: String,
        /// The reason.
        error: Arc<RenderError>,
    },
    /// The profile cannot be merged with the profile that it extends.
    #[error("{0}")]
    Overlay(OverlayError),
    /// The profile does not support the machine deployment.
    #[error("{0}")]
    Unsupported(#[from] Unsupported),
    /// The tenant's settings cannot be used.
    #[error("the WorkerCluster's settings: {0}")]
    Settings(#[from] SettingsError),
    /// The provider spec cannot be decoded.
    #[error("{0}")]
    ProviderSpec(Arc<RenderError>),
    /// An older machine deployment has the same derived names.
    #[error(
        "the names of its config and Secrets belong to the older machine deployment {owner}; \
         rename one of the two"
    )]
    NameTaken {
        /// The owner, as `namespace/name`.
        owner: String,
    },
    /// Two of its own Secrets would have the same name.
    #[error(
        "metadata.name: two of its Secrets would have the name {secret}; use a shorter name or \
         another namespace"
    )]
    NamesCollide {
        /// The shared name.
        secret: String,
    },
    /// The tenant has too many machine deployments.
    #[error(
        "the tenant may have {max} machine deployments, and as many are older; the operator of \
         the fleet sets the limit"
    )]
    TooMany {
        /// The tenant's limit.
        max: usize,
    },
    /// The name is too long for the bootstrap token's label.
    #[error(
        "metadata.name: {bytes} bytes are too long for the label machinedeployment.k8s.io/name of \
         its bootstrap token; at most {LABEL_VALUE_BYTES_MAX} fit"
    )]
    NameTooLong {
        /// The name's length in bytes.
        bytes: usize,
    },
    /// The documents cannot be rendered.
    #[error("{0}")]
    Render(Arc<RenderError>),
    /// A document or the config is too large.
    #[error("{0}")]
    UserDataTooLarge(#[from] user_data::TooLarge),
}

/// Suggests the default profile that is nearly called so.
fn did_you_mean(name: &str) -> String {
    let names = default_profiles().iter().map(|profile| profile.name);
    let names = names.filter(|it| *it != name);
    let known = similar(name, names);
    known.map_or_else(String::new, |known| format!("; did you mean {known}?"))
}

impl From<RenderError> for Invalid {
    fn from(error: RenderError) -> Self {
        Self::Render(Arc::new(error))
    }
}

impl Invalid {
    /// Returns the refusal of a profile that cannot be compiled.
    pub fn unusable(named: &impl fmt::Display, error: Arc<RenderError>) -> Self {
        Self::ProfileUnusable {
            name: named.to_string(),
            error,
        }
    }

    /// Returns the machine-readable CamelCase reason for status, Events and a label of metrics.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::ProfileMissing { .. } => Reason::ProfileNotFound,
            Self::ProfileUnreadable { .. } => Reason::ProfileUnreadable,
            Self::ProfileOverQuota { .. } => Reason::ProfileQuotaExceeded,
            Self::ProfileForbidden { .. } => Reason::ProfileForbidden,
            Self::ProfileUnusable { .. } => Reason::ProfileUnusable,
            Self::Overlay(
                OverlayError::BaseMissing { .. } | OverlayError::ContentEdited { .. },
            ) => Reason::ProfileBaseNotFound,
            Self::Overlay(OverlayError::ContentUnknown { .. }) => Reason::ProfileContentUnknown,
            Self::Overlay(OverlayError::Cycle { .. }) => Reason::OverlayCycle,
            Self::Overlay(OverlayError::TooDeep { .. }) => Reason::OverlayTooDeep,
            Self::Overlay(OverlayError::OperatingSystem { .. } | OverlayError::Language { .. }) => {
                Reason::OverlayMismatch
            }
            Self::Unsupported(_) => Reason::OperatingSystemProfileError,
            Self::Settings(_) => Reason::SettingsRefused,
            Self::ProviderSpec(_) => Reason::ProviderSpecRefused,
            Self::NameTaken { .. } => Reason::NameTaken,
            Self::Unreadable => Reason::Unreadable,
            Self::TooLarge => Reason::TooLarge,
            Self::TooMany { .. } => Reason::TooManyMachineDeployments,
            Self::NameTooLong { .. } => Reason::NameTooLong,
            Self::NamesCollide { .. } => Reason::NamesCollide,
            Self::NoDefaultProfile(_) => Reason::NoDefaultProfile,
            Self::Render(_) => Reason::RenderFailed,
            Self::UserDataTooLarge(_) => Reason::UserDataTooLarge,
        }
    }

    /// Returns the error category, in snake case, for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Unreadable => "machine_deployment_unreadable",
            Self::TooLarge => "machine_deployment_too_large",
            Self::ProfileMissing { .. } => "profile_missing",
            Self::ProfileUnreadable { .. } => "profile_unreadable",
            Self::ProfileOverQuota { .. } => "profile_quota_exceeded",
            Self::ProfileForbidden { .. } => "profile_forbidden",
            Self::ProfileUnusable { error, .. }
            | Self::ProviderSpec(error)
            | Self::Render(error) => error.category(),
            Self::Overlay(error) => error.category(),
            Self::Unsupported(unsupported) => unsupported.category(),
            Self::Settings(_) => "settings_refused",
            Self::NameTaken { .. } => "name_taken",
            Self::TooMany { .. } => "too_many_machine_deployments",
            Self::NameTooLong { .. } => "name_too_long",
            Self::NamesCollide { .. } => "names_collide",
            Self::NoDefaultProfile(error) => error.category(),
            Self::UserDataTooLarge(_) => "user_data_too_large",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_profile_that_was_meant_is_suggested() {
        let missing = |name: &str| {
            let (namespace, name) = ("tenant-berlin".to_owned(), name.to_owned());
            Invalid::ProfileMissing { namespace, name }.to_string()
        };
        let suggested = missing("osp-ubunto");
        assert!(
            suggested.ends_with("; did you mean osp-ubuntu?"),
            "{suggested}"
        );
        for name in ["mine", "osp-ubuntu"] {
            let unknown = missing(name);
            assert!(
                unknown.ends_with("in namespace \"tenant-berlin\""),
                "{unknown}"
            );
        }
    }
}
