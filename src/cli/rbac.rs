//! `osm rbac`: prints the roles that the manager needs, as they are in `manifests/rbac`.

use std::process::ExitCode;

use clap::ValueEnum;

use super::output;

/// Whose rights, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Role {
    /// In a worker cluster: what every tenant needs
    Worker,
    /// In a worker cluster: to take it over from another manager
    WorkerAdoption,
    /// In a worker cluster: for a token for each machine deployment
    WorkerNodeCredentials,
    /// In a worker cluster: to say what machines report of themselves
    WorkerMachineReports,
    /// In a worker cluster: to renew the token in the kubeconfig
    WorkerTokenRenewal,
    /// In the management cluster: the manager's account and roles
    Management,
    /// In the management cluster: these roles in all namespaces
    ManagementAllNamespaces,
    /// In the management cluster, if it is a KKP seed: for --inventory=kkp
    ManagementKkpSeed,
    /// In the management cluster: for worker clusters that trust it instead of a credential
    ManagementFederation,
}

pub(super) fn run(role: Role) -> anyhow::Result<ExitCode> {
    output::document(match role {
        Role::Worker => include_str!("../../manifests/rbac/worker.yaml"),
        Role::WorkerAdoption => include_str!("../../manifests/rbac/worker-adoption.yaml"),
        Role::WorkerNodeCredentials => {
            include_str!("../../manifests/rbac/worker-node-credentials.yaml")
        }
        Role::WorkerMachineReports => {
            include_str!("../../manifests/rbac/worker-machine-reports.yaml")
        }
        Role::WorkerTokenRenewal => include_str!("../../manifests/rbac/worker-token-renewal.yaml"),
        Role::Management => include_str!("../../manifests/rbac/management.yaml"),
        Role::ManagementAllNamespaces => {
            include_str!("../../manifests/rbac/management-all-namespaces.yaml")
        }
        Role::ManagementKkpSeed => include_str!("../../manifests/rbac/kkp-seed/management.yaml"),
        Role::ManagementFederation => {
            include_str!("../../manifests/rbac/management-federation.yaml")
        }
    })?;
    Ok(output::SUCCESS)
}
