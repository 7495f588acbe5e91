//! The cluster info: the properties of a worker cluster that its nodes need to know.

use super::secret_text::SecretText;

/// The cluster info: the properties of a worker cluster that its nodes need to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterInfo {
    /// The API server as nodes reach it: an https URL.
    pub api_server: String,
    /// The certificate authority of that server: PEM in base64, as in a kubeconfig.
    pub certificate_authority_data: String,
    /// The token with which nodes fetch their provisioning Secret.
    pub fetch_token: SecretText,
}
