//! What the process is: one for a fleet, or in the place of the program that serves one worker
//! cluster. The one value that the controllers ask where the two differ.

use crate::api::worker_cluster::ProfileAnnotation;

/// What the process is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One process for all worker clusters that are registered.
    #[default]
    Fleet,
    /// In one cluster, which holds everything: profiles, configs, machine deployments and Secrets.
    SingleCluster,
    /// Profiles and configs are in a management cluster, machine deployments and Secrets in one
    /// worker cluster.
    OneWorker,
}

/// What the rights of the process may not reach to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// Delete bootstrap tokens. Those that are left expire.
    DeleteTokens,
    /// Read and make ServiceAccounts and roles, for credentials of single machine deployments.
    MakeNodeCredentials,
    /// Correct what the ServiceAccount may do that machines fetch their configuration with.
    KeepFetcher,
    /// Write Events of `events.k8s.io`, anywhere.
    WriteEvents,
}

impl Mode {
    /// A name for logs and traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fleet => "fleet",
            Self::SingleCluster => "single-cluster",
            Self::OneWorker => "one-worker",
        }
    }

    /// Whether the process has a right. Without a fleet its rights are those that KubeOne and KKP
    /// grant to the program that it stands in for.
    pub const fn has(self, right: Right) -> bool {
        match right {
            Right::DeleteTokens
            | Right::MakeNodeCredentials
            | Right::KeepFetcher
            | Right::WriteEvents => matches!(self, Self::Fleet),
        }
    }

    /// What becomes of machine deployments that name no profile, where no WorkerCluster says it.
    /// Without a fleet a webhook gives them one.
    pub const fn profile_annotation(self) -> ProfileAnnotation {
        match self {
            Self::Fleet => ProfileAnnotation::Default,
            Self::SingleCluster | Self::OneWorker => ProfileAnnotation::RequireAnnotation,
        }
    }

    /// Whether all configs of the namespace are for machine deployments of the one worker cluster.
    /// Several processes with a worker cluster each may share a namespace.
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
    /// Reads `namespace/name`. The error is the number of parts that there were instead of two.
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
