//! The mode of the process: a fleet, or a replacement for the program that serves one worker
//! cluster. It is the only value on which the controllers' behaviour depends where the two differ.

use osm_api::worker_cluster::ProfileAnnotation;

/// The mode of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One process serves all registered worker clusters.
    #[default]
    Fleet,
    /// One cluster contains everything: profiles, configs, machine deployments and Secrets.
    SingleCluster,
    /// Profiles and configs are in a management cluster, machine deployments and Secrets in one
    /// worker cluster.
    OneWorker,
}

/// A right that the process may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// The right to delete bootstrap tokens. Without it, they are left to expire.
    DeleteTokens,
    /// The right to read and create ServiceAccounts and roles, for credentials per machine
    /// deployment.
    MakeNodeCredentials,
    /// The right to correct the role of the ServiceAccount with which machines fetch their
    /// configuration.
    KeepFetcher,
    /// The right to create Events in `events.k8s.io`, in any namespace.
    WriteEvents,
}

impl Mode {
    /// Returns the name for logs and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fleet => "fleet",
            Self::SingleCluster => "single-cluster",
            Self::OneWorker => "one-worker",
        }
    }

    /// Returns true if the process has a right. Without a fleet, its rights are those that KubeOne
    /// and KKP grant to the program that it replaces.
    pub const fn has(self, right: Right) -> bool {
        match right {
            Right::DeleteTokens
            | Right::MakeNodeCredentials
            | Right::KeepFetcher
            | Right::WriteEvents => matches!(self, Self::Fleet),
        }
    }

    /// Returns how machine deployments without a profile are handled if no WorkerCluster specifies
    /// it. Without a fleet, a webhook sets their profile.
    pub const fn profile_annotation(self) -> ProfileAnnotation {
        match self {
            Self::Fleet => ProfileAnnotation::Default,
            Self::SingleCluster | Self::OneWorker => ProfileAnnotation::RequireAnnotation,
        }
    }

    /// Returns true if all configs in the namespace are for machine deployments of the only worker
    /// cluster. Otherwise, several processes with different worker clusters may share a namespace.
    pub const fn has_configs_to_itself(self) -> bool {
        !matches!(self, Self::OneWorker)
    }
}

/// An object by its namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespacedName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl NamespacedName {
    /// Parses `namespace/name`. The error is the number of parts, if it is not two.
    ///
    /// # Errors
    ///
    /// The number of parts, if it is not two.
    pub fn parse(text: &str) -> Result<Self, usize> {
        let parts: Vec<&str> = text.split('/').collect();
        match parts[..] {
            [namespace, name] => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(parts.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_fleet_the_rights_are_those_of_the_program_that_was_there() {
        for right in [
            Right::DeleteTokens,
            Right::MakeNodeCredentials,
            Right::KeepFetcher,
            Right::WriteEvents,
        ] {
            assert!(Mode::Fleet.has(right), "{right:?}");
            assert!(!Mode::SingleCluster.has(right), "{right:?}");
            assert!(!Mode::OneWorker.has(right), "{right:?}");
        }
    }
}
