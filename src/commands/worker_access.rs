//! The access that a registration gives the manager.

use anyhow::Context as _;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Client, ResourceExt};

use crate::api::worker_cluster::Credentials;
use crate::client::token;
use crate::fleet::engage;
use crate::tenant::{
    access::{self, AccessRules, ClusterAccess, renewal::ServiceAccountName},
    id::RegistrationId,
    secret_text::SecretText,
};

/// How long the token of a command is valid, in seconds. No API server issues one for less.
const TOKEN_SECONDS: i64 = 600;

/// What decides the manager's access to a worker cluster.
#[derive(Clone, Copy)]
pub(super) struct WorkerAccess<'a> {
    /// The Secret that registers it.
    pub secret: &'a Secret,
    /// The keys under which it may have its kubeconfig.
    pub keys: &'a [&'a str],
    /// Where the manager's credential comes from.
    pub credentials: Credentials,
}

impl WorkerAccess<'_> {
    /// Returns the access without a token where the registration has none.
    ///
    /// # Errors
    ///
    /// The kubeconfig is not accepted.
    pub(super) fn access(self, rules: &AccessRules) -> anyhow::Result<ClusterAccess> {
        self.with_token(rules, SecretText::default())
    }

    /// Returns the access of the manager, with a token of its ServiceAccount where the registration
    /// has none.
    ///
    /// # Errors
    ///
    /// The kubeconfig is not accepted, or the user may not request a token for the manager.
    pub(super) async fn access_of(
        self,
        (management, manager): (&Client, &ServiceAccountName),
        rules: &AccessRules,
    ) -> anyhow::Result<ClusterAccess> {
        if self.credentials != Credentials::Federated {
            return self.access(rules);
        }
        let namespace = self.secret.namespace().unwrap_or_default();
        let id = RegistrationId::new(&namespace, &self.secret.name_any());
        let audience = Some(engage::audience(&id));
        let token = token::request(management, manager, audience, TOKEN_SECONDS).await;
        let token = token.with_context(|| {
            let ServiceAccountName { namespace, name } = manager;
            format!("cannot request a token of the manager's ServiceAccount {namespace}/{name}")
        })?;
        self.with_token(rules, token)
    }

    fn with_token(self, rules: &AccessRules, token: SecretText) -> anyhow::Result<ClusterAccess> {
        let data = self.secret.data.as_ref();
        let found = data.and_then(|data| data.get(access::kubeconfig_key(data, self.keys)?));
        let ByteString(kubeconfig) = found.context("the registration has no kubeconfig")?;
        Ok(match self.credentials {
            Credentials::Federated => ClusterAccess::parse_federated(kubeconfig, rules, token)?,
            Credentials::AsRegistered | Credentials::Renewed => {
                ClusterAccess::parse(kubeconfig, rules)?
            }
        })
    }
}
