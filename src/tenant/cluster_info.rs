//! What is observed in a worker cluster and goes into what its nodes get.

use super::secret_text::SecretText;

/// What is observed in a worker cluster and goes into what its nodes get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterInfo {
    /// The API server as nodes reach it: an https URL.
    pub api_server: String,
    /// The certificate authority of that server, in base64 of PEM, as a kubeconfig carries it.
    pub certificate_authority_data: String,
    /// The token that nodes fetch their provisioning Secret with.
    pub fetch_token: SecretText,
}
