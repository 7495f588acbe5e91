//! The facts about a worker cluster that become part of what its nodes get.

use super::secret_text::SecretText;

/// The facts about a worker cluster that become part of what its nodes get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterInfo {
    /// The API server as nodes reach it: an https URL.
    pub api_server: String,
    /// The certificate authority of that server: PEM in base64, as in a kubeconfig.
    pub certificate_authority_data: String,
    /// The token with which nodes fetch their provisioning Secret.
    pub fetch_token: SecretText,
}
