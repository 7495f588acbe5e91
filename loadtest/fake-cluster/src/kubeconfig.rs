//! Kubeconfigs of a cluster's users, and the one without a user that it announces.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{auth::User, authority::Identity, cluster::Cluster};

/// The `ConfigMap` in which kubeadm announces where an API server is, and its authority in PEM.
pub fn cluster_info(server: &str, authority: &str) -> Value {
    let kubeconfig = format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster:\n    server: {server}\n    \
         certificate-authority-data: \"{}\"\n",
        STANDARD.encode(authority)
    );
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "cluster-info", "namespace": "kube-public" },
        "data": { "kubeconfig": kubeconfig },
    })
}

impl Cluster {
    /// A client certificate for a user.
    pub fn client_certificate(&self, user: &User) -> Identity {
        let issued = self.inner.authority.client(user);
        let mut state = self.inner.lock();
        state
            .credentials
            .remember_certificate(issued.certificate_der, user.clone());
        issued.identity
    }

    /// A kubeconfig with the cluster's CA and a token of the user, for a server at this address.
    pub fn kubeconfig_at(&self, server: &str, user: &User) -> String {
        let token = self.token(user);
        self.kubeconfig_with(server, &format!("    token: {token}\n"))
    }

    /// As [`Cluster::kubeconfig_at`], with a client certificate instead of a token.
    pub fn kubeconfig_with_certificate_at(&self, server: &str, user: &User) -> String {
        let identity = self.client_certificate(user);
        let credentials = format!(
            "    client-certificate-data: {}\n    client-key-data: {}\n",
            STANDARD.encode(identity.certificate_pem),
            STANDARD.encode(identity.key_pem)
        );
        self.kubeconfig_with(server, &credentials)
    }

    fn kubeconfig_with(&self, server: &str, credentials: &str) -> String {
        let name = self.inner.lock().options.name.clone();
        let ca = STANDARD.encode(self.ca_pem());
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {name}\nclusters:\n- name: {name}\n  \
             cluster:\n    server: {server}\n    certificate-authority-data: {ca}\nusers:\n- name: \
             {name}\n  user:\n{credentials}contexts:\n- name: {name}\n  context:\n    cluster: \
             {name}\n    user: {name}\n    namespace: default\n"
        )
    }
}
