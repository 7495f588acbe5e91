//! The conditions of a WorkerCluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// What a condition speaks of, in the order in which a tenant comes to life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionType {
    /// The registration was accepted: its kubeconfig, its settings, its namespace.
    Registered,
    /// The worker cluster answers.
    Connected,
    /// The program that served the worker cluster before has let go, and what it made is kept.
    /// Absent where there was none.
    Adopted,
    /// The worker cluster is the one that it was, and no one else serves it.
    Claimed,
    /// The worker cluster has what nodes need to fetch their configuration.
    Prepared,
    /// The default profiles stand in the tenant's namespace.
    ProfilesInstalled,
    /// Each machine deployment has credentials of its own, where that was asked for.
    NodeCredentials,
    /// Every machine deployment is served.
    MachineDeploymentsServed,
    /// A machine can fetch its configuration and join. Absent until it was checked.
    MachinesCanJoin,
    /// Machines were made from what machines get now, where they are replaced otherwise. `Ready`
    /// does not depend on it.
    MachinesCurrent,
    /// Machines that follow their document report that they are as in it. Absent where none does.
    /// `Ready` does not depend on it.
    DocumentsApplied,
    /// Nothing of the kubeconfig expires soon. A warning: `Ready` does not depend on it.
    CredentialValid,
    /// The worker cluster was given back after its registration was removed. Absent while it is
    /// registered.
    Released,
    /// The summary of the others.
    Ready,
}

impl ConditionType {
    /// Those of which nothing is known while the registration is not accepted. What was taken over
    /// from another manager stays taken over.
    pub const OF_REGISTERED: [Self; 10] = [
        Self::Connected,
        Self::Claimed,
        Self::Prepared,
        Self::ProfilesInstalled,
        Self::NodeCredentials,
        Self::MachineDeploymentsServed,
        Self::MachinesCanJoin,
        Self::MachinesCurrent,
        Self::DocumentsApplied,
        Self::CredentialValid,
    ];

    /// Those of which nothing is known while the cluster does not answer. The default profiles are
    /// in the management cluster, and the end of a credential is known.
    pub const OF_CONNECTED: [Self; 7] = [
        Self::Claimed,
        Self::Prepared,
        Self::NodeCredentials,
        Self::MachineDeploymentsServed,
        Self::MachinesCanJoin,
        Self::MachinesCurrent,
        Self::DocumentsApplied,
    ];

    /// Those of which nothing is known while the cluster answers and is not engaged.
    pub const OF_ENGAGED: [Self; 6] = [
        Self::ProfilesInstalled,
        Self::NodeCredentials,
        Self::MachineDeploymentsServed,
        Self::MachinesCanJoin,
        Self::MachinesCurrent,
        Self::DocumentsApplied,
    ];

    /// The name as it stands in the status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Registered => "Registered",
            Self::Connected => "Connected",
            Self::Adopted => "Adopted",
            Self::Claimed => "Claimed",
            Self::Prepared => "Prepared",
            Self::ProfilesInstalled => "ProfilesInstalled",
            Self::NodeCredentials => "NodeCredentials",
            Self::MachineDeploymentsServed => "MachineDeploymentsServed",
            Self::MachinesCanJoin => "MachinesCanJoin",
            Self::MachinesCurrent => "MachinesCurrent",
            Self::DocumentsApplied => "DocumentsApplied",
            Self::CredentialValid => "CredentialValid",
            Self::Released => "Released",
            Self::Ready => "Ready",
        }
    }

    /// Returns the condition of this type, if there is one.
    pub fn find_in(self, conditions: &[Condition]) -> Option<&Condition> {
        conditions.iter().find(|it| it.type_ == self.as_str())
    }

    /// Returns true if `Ready` does not depend on it.
    pub const fn is_remark(self) -> bool {
        matches!(
            self,
            Self::MachinesCurrent | Self::DocumentsApplied | Self::CredentialValid | Self::Released
        )
    }
}
