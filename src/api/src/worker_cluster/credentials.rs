//! Who has which credential: the manager for the worker cluster, and machines for their documents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the manager gets the credential for the worker cluster.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum Credentials {
    /// From the kubeconfig that is registered. Somebody else renews it.
    #[default]
    AsRegistered,
    /// From the kubeconfig that is registered. The manager renews its token before it expires, and
    /// writes it into the Secret.
    Renewed,
    /// From the management cluster, whose ServiceAccount tokens the worker cluster trusts. The
    /// kubeconfig that is registered has no credential, and the token is stored nowhere.
    Federated,
}

/// The token with which machines fetch their documents.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
pub enum NodeCredentials {
    /// The fetcher's token, which can read every Secret in `cloud-init-settings`.
    #[default]
    Shared,
    /// A separate token for each machine deployment, which can read only that machine deployment's
    /// Secrets.
    PerMachineDeployment,
}
