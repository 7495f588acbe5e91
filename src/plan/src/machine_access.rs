//! How the machines of a tenant reach their API server.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use osm_tenant::{
    certificates, cluster_info::ClusterInfo, secret_text::SecretText, settings::TenantSettings,
};

/// How the machines of a tenant reach their API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineAccess {
    /// The API server's URL.
    pub api_server: String,
    /// The certificate authority in the bootstrap document, in PEM.
    pub kubernetes_ca: String,
}

impl MachineAccess {
    /// The way that documents have. The settings precede what was found.
    pub fn new(
        settings: &TenantSettings,
        cluster_info: &ClusterInfo,
        kubeconfig_ca: &[u8],
    ) -> Self {
        let api_server = settings.api_server_override.clone();
        let kubernetes_ca = settings.kubernetes_ca_bundle.clone();
        Self {
            api_server: api_server.unwrap_or_else(|| cluster_info.api_server.clone()),
            kubernetes_ca: kubernetes_ca
                .unwrap_or_else(|| String::from_utf8_lossy(kubeconfig_ca).into_owned()),
        }
    }

    /// Returns true if the certificate authority of the bootstrap document has nothing in common
    /// with the cluster info's, which the kubelet's kubeconfig has for the same address.
    pub fn has_other_authority_than(&self, cluster_info: &ClusterInfo) -> bool {
        let [of_documents, of_kubelets] = self.authorities(cluster_info);
        certificates::are_disjoint(&of_documents, &of_kubelets)
    }

    /// Returns the certificate authorities of the bootstrap document and of the kubelet's
    /// kubeconfig, in PEM.
    pub fn authorities(&self, cluster_info: &ClusterInfo) -> [String; 2] {
        let of_kubelets = STANDARD.decode(&cluster_info.certificate_authority_data);
        let of_kubelets = of_kubelets.unwrap_or_default();
        [
            self.kubernetes_ca.clone(),
            String::from_utf8_lossy(&of_kubelets).into_owned(),
        ]
    }

    /// Returns a kubeconfig that connects as the bootstrap document does, which has no kubeconfig.
    pub fn fetch_kubeconfig(&self, token: &SecretText) -> SecretText {
        kubeconfig(
            &STANDARD.encode(&self.kubernetes_ca),
            &self.api_server,
            token.expose(),
        )
    }
}

/// The key of the certificate authority in a kubeconfig.
pub(super) const AUTHORITY: &str = "certificate-authority-data: ";

/// Returns a kubeconfig, formatted as client-go's `clientcmd` writes it. The certificate authority
/// is PEM in base64; an empty one is left out.
pub(super) fn kubeconfig(authority: &str, api_server: &str, token: &str) -> SecretText {
    let authority = if authority.is_empty() {
        String::new()
    } else {
        format!("    {AUTHORITY}{authority}\n")
    };
    SecretText::new(format!(
        "apiVersion: v1\nclusters:\n- cluster:\n{authority}    server: {api_server}\n  name: c\n\
         contexts:\n- context:\n    cluster: c\n    user: c\n  name: c\ncurrent-context: c\n\
         kind: Config\nusers:\n- name: c\n  user:\n    token: {token}\n"
    ))
}
