//! Creates what the manager needs in a worker cluster: rights, an identity with a token, and a
//! kubeconfig.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Secret, ServiceAccount},
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{TenantAddition, apply::Applier, registration::Own};
use crate::api::{
    machine_deployment::MachineDeployment, names::KUBE_SYSTEM, worker_cluster::Credentials,
};
use crate::client::{clock::Clock, pages, token};
use crate::commands::cluster_client::{ClusterClient, as_the_manager, cluster_uid};
use crate::fleet::{
    adoption::{self, Obstacle, Predecessor},
    engage::TOKEN_SECONDS,
};
use crate::telemetry::chain::chain;
use crate::tenant::{
    access::{AccessError, AccessRules, ClusterAccess, renewal::ServiceAccountName},
    secret_text::SecretText,
};

/// The name of the ServiceAccount in the kubeconfig.
pub(super) const ACCOUNT: &str = "operating-system-manager";
/// The name of the Secret with its token.
pub(super) const TOKEN: &str = "operating-system-manager-token";
/// The annotation of that Secret with the uid of the account to which the token belongs.
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// The placeholder for a token that does not exist yet.
pub(super) const NO_TOKEN_YET: &str = "no-token-yet";
/// How long the cluster may take to fill the token's Secret, and to accept the token and rights.
const PATIENCE: Duration = Duration::from_secs(30);
/// The interval between two checks.
const INTERVAL: Duration = Duration::from_millis(250);

/// The manifests with the manager's rights, which people can also apply by hand.
const ALWAYS: &str = include_str!("../../../manifests/rbac/worker.yaml");
const NODE_CREDENTIALS: &str = include_str!("../../../manifests/rbac/worker-node-credentials.yaml");
const ADOPTION: &str = include_str!("../../../manifests/rbac/worker-adoption.yaml");
const TOKEN_RENEWAL: &str = include_str!("../../../manifests/rbac/worker-token-renewal.yaml");

/// Rights besides those that every tenant needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// The rights to create credentials for each machine deployment.
    NodeCredentials,
    /// The rights to read what another manager left behind.
    Adoption,
}

impl Rights {
    /// All of them.
    pub(super) const ALL: [Self; 2] = [Self::NodeCredentials, Self::Adoption];
}

/// Returns the objects with rights that are applied in the worker cluster, in order.
pub(super) fn documents(rights: &[Rights], credentials: Credentials) -> anyhow::Result<Vec<Value>> {
    let more = rights.iter().map(|more| match more {
        Rights::NodeCredentials => NODE_CREDENTIALS,
        Rights::Adoption => ADOPTION,
    });
    let renewal = (credentials == Credentials::Renewed).then_some(TOKEN_RENEWAL);
    let mut documents = Vec::new();
    for file in std::iter::once(ALWAYS).chain(more).chain(renewal) {
        let read: Vec<Value> =
            serde_saphyr::from_multiple(file).context("cannot parse an embedded manifest")?;
        documents.extend(read);
    }
    Ok(documents)
}

/// Returns the Secret that the cluster fills with a token.
pub(super) fn token_document() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {
            "name": TOKEN, "namespace": KUBE_SYSTEM,
            "annotations": { "kubernetes.io/service-account.name": ACCOUNT },
        },
    })
}

/// The address of the worker cluster, as the manager reaches it.
pub(super) struct Entry {
    server: String,
    certificate_authority: Vec<u8>,
    tls_server_name: Option<String>,
}

impl Entry {
    /// Takes the address from the administrator's kubeconfig, with another URL if there is one.
    pub(super) fn of(worker: &ClusterClient, server: Option<&str>) -> anyhow::Result<Self> {
        let own = worker.server.to_string();
        let own = own.trim_end_matches('/').to_owned();
        let certificate_authority = worker.certificate_authority.clone().context(
            "--worker-kubeconfig has no certificate authority for its cluster; the manager \
             verifies servers by it: add certificate-authority-data",
        )?;
        Ok(Self {
            server: server.map_or(own, str::to_owned),
            certificate_authority,
            tls_server_name: worker.tls_server_name.clone(),
        })
    }

    /// Returns a minimal kubeconfig. Its user has this token, or nothing.
    pub(super) fn kubeconfig(&self, token: Option<&SecretText>) -> anyhow::Result<SecretText> {
        let authority = STANDARD.encode(&self.certificate_authority);
        let mut cluster = json!({
            "server": self.server, "certificate-authority-data": authority,
        });
        if let (Some(name), Some(fields)) = (&self.tls_server_name, cluster.as_object_mut()) {
            fields.insert("tls-server-name".to_owned(), json!(name));
        }
        let user = token.map_or_else(|| json!({}), |token| json!({ "token": token.expose() }));
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "worker",
            "clusters": [{ "name": "worker", "cluster": cluster }],
            "users": [{ "name": ACCOUNT, "user": user }],
            "contexts": [{ "name": "worker", "context": { "cluster": "worker", "user": ACCOUNT } }],
        });
        let text = serde_saphyr::to_string(&kubeconfig).context("cannot write a kubeconfig")?;
        Ok(SecretText::new(text))
    }

    /// Refuses an address that the manager would refuse.
    pub(super) fn check(&self, rules: &AccessRules) -> anyhow::Result<()> {
        let kubeconfig = self.kubeconfig(Some(&SecretText::new(NO_TOKEN_YET)))?;
        match ClusterAccess::parse(kubeconfig.expose().as_bytes(), rules) {
            Ok(_) => Ok(()),
            Err(error @ AccessError::ServerRefused { .. }) => {
                let why = std::error::Error::source(&error).map(ToString::to_string);
                bail!(
                    "the manager would refuse {}: {}; give the URL by which the management \
                     cluster reaches it by --server, or what osm run was started with \
                     (--allow-loopback-servers, --allowed-servers, --denied-servers)",
                    self.server,
                    why.unwrap_or_else(|| error.to_string())
                )
            }
            Err(error) => Err(error).context("the manager would refuse the kubeconfig"),
        }
    }
}

/// Checks that no previous manager is taken over without `--adopt`, which requires more
/// permissions.
pub(super) async fn check_predecessor(addition: &TenantAddition, own: &Own) -> anyhow::Result<()> {
    let is_adopting = addition.params.rights.contains(&Rights::Adoption);
    if is_adopting || own.has_claim {
        return Ok(());
    }
    match adoption::find_predecessor(&addition.worker.client, &Clock::system()).await {
        Ok(Predecessor::None) | Err(Obstacle::Call(_)) => Ok(()),
        Ok(_) | Err(Obstacle::Webhooks(_) | Obstacle::MayNotLook) => bail!(
            "another operating-system-manager has served this worker cluster; give --adopt, so \
             that what it made is taken over without a rotation (docs/adopt.md)"
        ),
        Err(Obstacle::Running(holder)) => bail!(
            "another operating-system-manager serves this worker cluster: {} holds Lease \
             {KUBE_SYSTEM}/{}; give --adopt, and scale it to zero (docs/adopt.md)",
            holder.identity,
            holder.lease
        ),
    }
}

/// Returns the token, if the cluster has created one for the current account.
pub(super) async fn token_now(worker: &Client) -> anyhow::Result<Option<SecretText>> {
    let found = token_secret(worker).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(worker.clone(), KUBE_SYSTEM);
    let account = accounts.get_opt(ACCOUNT).await;
    let account = account
        .with_context(|| format!("cannot read ServiceAccount {KUBE_SYSTEM}/{ACCOUNT}"))?
        .and_then(|account| account.uid());
    Ok(found.zip(account).and_then(|(it, uid)| token_of(it, &uid)))
}

async fn token_secret(worker: &Client) -> anyhow::Result<Option<Secret>> {
    let secrets: Api<Secret> = Api::namespaced(worker.clone(), KUBE_SYSTEM);
    let found = secrets.get_opt(TOKEN).await;
    found.with_context(|| format!("cannot read Secret {KUBE_SYSTEM}/{TOKEN}"))
}

/// Returns the token in that Secret, if it belongs to the account with that uid. A deleted account
/// of the same name may have left one that is no longer valid.
fn token_of(secret: Secret, account_uid: &str) -> Option<SecretText> {
    if secret.annotations().get(ACCOUNT_UID)? != account_uid {
        return None;
    }
    let ByteString(token) = secret.data?.remove("token")?;
    let token = String::from_utf8(token).ok()?;
    (!token.is_empty()).then(|| SecretText::new(token))
}

/// Waits for the token. If the cluster deletes the Secret in the meantime, because it was filled
/// for an account that is gone, the Secret is applied again.
pub(super) async fn token(worker: &Applier) -> anyhow::Result<SecretText> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(token) = token_now(&worker.client).await? {
            return Ok(token);
        }
        ensure!(
            Instant::now() < deadline,
            "Secret {KUBE_SYSTEM}/{TOKEN} of the worker cluster has got no token for {} s; does \
             its kube-controller-manager run, with the token controller?",
            PATIENCE.as_secs()
        );
        sleep(INTERVAL).await;
        if token_secret(&worker.client).await?.is_none() {
            worker.mark_and_apply(token_document()).await?;
        }
    }
}

/// Requests a token that the manager renews.
pub(super) async fn expiring_token(worker: &Client) -> anyhow::Result<SecretText> {
    let account = ServiceAccountName {
        namespace: KUBE_SYSTEM.to_owned(),
        name: ACCOUNT.to_owned(),
    };
    let requested = token::request(worker, &account, None, TOKEN_SECONDS).await;
    requested.with_context(|| format!("cannot request a token for {KUBE_SYSTEM}/{ACCOUNT}"))
}

/// Returns a note if the cluster still has a token that never expires.
pub(super) async fn lasting_token(worker: &Client) -> anyhow::Result<Option<String>> {
    let found = token_secret(worker).await?;
    Ok(found.map(|_| {
        format!(
            "note: Secret {KUBE_SYSTEM}/{TOKEN} of the worker cluster has a token that never \
             expires; delete it once the tenant is ready"
        )
    }))
}

/// Uses the new kubeconfig once, as the manager will.
pub(super) async fn verify(
    addition: &TenantAddition,
    kubeconfig: &SecretText,
    progress: &mut (dyn FnMut(String) + Send),
) -> anyhow::Result<()> {
    let rules = &addition.params.rules;
    let access = ClusterAccess::parse(kubeconfig.expose().as_bytes(), rules)
        .context("the manager would refuse the new kubeconfig")?;
    let client = as_the_manager(&access, rules)?;
    let deadline = Instant::now() + PATIENCE;
    let found = loop {
        match cluster_uid(&client).await {
            // The cluster may take a while to accept a new token and new rights.
            Err(kube::Error::Api(status))
                if [401, 403].contains(&status.code) && Instant::now() < deadline => {}
            answer => break answer,
        }
        sleep(INTERVAL).await;
    };
    match found {
        Ok(uid) => ensure!(
            uid == addition.worker_uid,
            "--server leads to another cluster than --worker-kubeconfig: kube-system has the uid \
             {uid} there, and {} here",
            addition.worker_uid
        ),
        // It is possible that only the management cluster can reach it.
        Err(error) if addition.params.server.is_some() && !matches!(error, kube::Error::Api(_)) => {
            let server = access.server.url();
            progress(format!(
                "note: {server} cannot be tried from here: {}",
                chain(&error)
            ));
            return Ok(());
        }
        Err(error) => {
            return Err(error).context("the new kubeconfig does not work in the worker cluster");
        }
    }
    let machine_deployments: Api<MachineDeployment> = Api::all(client);
    let page = ListParams::default().limit(1);
    match machine_deployments.list_metadata(&page).await {
        // While waiting for the tenant, the command reports what is missing.
        Err(error) if pages::is_not_served(&error) => {}
        listed => {
            listed.context("the new kubeconfig may not list machine deployments")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;
    use crate::commands::cluster_client::{Author, WorkerKubeconfigSource};

    #[test]
    fn every_object_of_the_rights_is_one_that_can_be_applied() {
        let all = documents(&Rights::ALL, Credentials::Renewed).unwrap();
        let few = documents(&[], Credentials::AsRegistered).unwrap();
        assert!(all.len() > few.len() + 7);
        for document in &all {
            assert!(
                crate::commands::cluster_client::kind_of(document).is_some(),
                "{document}"
            );
        }
    }

    #[test]
    fn a_token_of_an_account_that_is_gone_is_none() {
        let secret = |uid: Option<&str>, token: &str| Secret {
            metadata: ObjectMeta {
                annotations: uid.map(|uid| [(ACCOUNT_UID.to_owned(), uid.to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some([("token".to_owned(), ByteString(token.into()))].into()),
            ..Secret::default()
        };
        let found = |secret| token_of(secret, "now").map(|it| it.expose().to_owned());
        assert_eq!(found(secret(Some("now"), "a")), Some("a".to_owned()));
        assert_eq!(found(secret(Some("before"), "a")), None);
        assert_eq!(found(secret(None, "a")), None);
        assert_eq!(found(secret(Some("now"), "")), None);
        assert_eq!(found(Secret::default()), None);
    }

    #[tokio::test]
    async fn the_dot_at_the_end_of_a_servers_name_is_kept() {
        let entry = Entry {
            server: "https://berlin.example.:6443".to_owned(),
            certificate_authority: fake_cluster::Cluster::default().ca_pem().into_bytes(),
            tls_server_name: None,
        };
        let token = SecretText::new(NO_TOKEN_YET);
        let kubeconfig = entry.kubeconfig(Some(&token)).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), kubeconfig.expose()).unwrap();
        for author in [Author::Anybody, Author::ClusterClient] {
            let source = WorkerKubeconfigSource {
                kubeconfig: file.path().to_owned(),
                context: None,
                author,
            };
            let worker = ClusterClient::worker(&source).await.unwrap();
            let found = Entry::of(&worker, None).unwrap();
            assert_eq!(found.server, entry.server, "{author:?}");
        }
    }

    #[test]
    fn the_kubeconfig_is_one_that_the_manager_takes() {
        let entry = Entry {
            server: "https://berlin.example:6443".to_owned(),
            certificate_authority: fake_cluster::Cluster::default().ca_pem().into_bytes(),
            tls_server_name: Some("api.berlin.example".to_owned()),
        };
        entry.check(&AccessRules::default()).unwrap();
        let entry = Entry {
            server: "https://127.0.0.1:6443".to_owned(),
            ..entry
        };
        let refused = entry
            .check(&AccessRules::default())
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("loopback") && refused.contains("--server"),
            "{refused}"
        );
    }
}
