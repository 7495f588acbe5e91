//! Ensures what nodes need in a worker cluster to fetch their configuration: the namespace, and a
//! ServiceAccount whose token may read Secrets there.
//!
//! Existing objects are used as they are, no matter who created them, as long as machines can fetch
//! with them.

mod fetcher_rights;

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ObjectMeta, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};

use self::fetcher_rights::plan_fetcher;
pub use self::fetcher_rights::{FetcherError, keep_fetcher};
use super::removal;
use crate::api::{
    names::{CLAIM, CLOUD_INIT_SETTINGS, FETCHER, FETCHER_TOKEN},
    reason::Reason,
};
use crate::client::{forbidden::denied, pages::is_forbidden};
use crate::telemetry::chain::chain;
use crate::tenant::{id::RegistrationId, report::ConditionState};

/// The type of a Secret that the token controller fills.
pub const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";

/// The reason why a worker cluster could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrerequisiteError {
    /// The kubeconfig's identity lacks a right.
    #[error("the kubeconfig's identity may not read or create {kind} {name}")]
    Denied {
        /// The kind of the object.
        kind: String,
        /// The name of the object.
        name: String,
        /// The answer of the API server.
        source: kube::Error,
    },
    /// A call failed.
    #[error("cannot ensure {kind} {name}")]
    Call {
        /// The kind of the object.
        kind: String,
        /// The name of the object.
        name: String,
        /// The cause.
        source: kube::Error,
    },
    /// The namespace is being deleted.
    #[error(
        "namespace {CLOUD_INIT_SETTINGS} is being deleted; it is created again once it is gone"
    )]
    NamespaceTerminating,
}

impl PrerequisiteError {
    /// Creates the error for a failed read of an object of this kind and name. A read is only
    /// refused if a right is missing.
    pub fn of(source: kube::Error, (kind, name): (String, String)) -> Self {
        if is_forbidden(&source) {
            Self::Denied { kind, name, source }
        } else {
            Self::Call { kind, name, source }
        }
    }

    /// Returns the message for the condition. If rights are missing, it contains the command that
    /// grants them.
    pub fn message(&self) -> String {
        match self {
            Self::Denied { source, .. } => denied(self, source),
            _ => chain(self).to_string(),
        }
    }

    /// Returns the state for the condition.
    pub fn finding(&self) -> ConditionState {
        ConditionState::retried(self.reason(), self.message())
    }

    /// Returns the reason for the condition.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Denied { .. } => Reason::RightsMissing,
            Self::Call { .. } => Reason::PrerequisitesFailed,
            Self::NamespaceTerminating => Reason::NamespaceTerminating,
        }
    }
}

/// Creates the namespace if it does not exist, and returns it.
///
/// # Errors
///
/// Returns an error if a call fails, or while the namespace is being deleted.
pub async fn ensure_namespace(client: &Client) -> Result<Namespace, PrerequisiteError> {
    let found = ensure(&Api::all(client.clone()), namespace()).await;
    let found = found.map_err(|error| match error {
        // Quotas and terminating namespaces do not refuse a namespace, so a right is missing.
        PrerequisiteError::Call { kind, name, source } if is_forbidden(&source) => {
            PrerequisiteError::Denied { kind, name, source }
        }
        other => other,
    })?;
    if found.metadata.deletion_timestamp.is_some() {
        return Err(PrerequisiteError::NamespaceTerminating);
    }
    Ok(found)
}

/// Creates the fetcher's ServiceAccount and token Secret if they do not exist, and recreates a
/// token that does not work. [`keep_fetcher`] creates the Role and RoleBinding.
///
/// # Errors
///
/// A right is missing, a call fails, or the token Secret stays empty.
pub async fn ensure_fetcher(
    registration: &RegistrationId,
    client: &Client,
) -> Result<(), PrerequisiteError> {
    let fetcher = ensure(
        &Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS),
        service_account(),
    )
    .await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let found = ensure(&secrets, token()).await?;
    if does_not_work(&found, &fetcher.metadata) {
        tracing::warn!(%registration, "the fetcher's token does not work, and is created again");
        let deleted = removal::delete(&secrets, &found.metadata).await;
        deleted.map_err(|source| PrerequisiteError::Call {
            kind: Secret::kind(&()).into_owned(),
            name: FETCHER_TOKEN.to_owned(),
            source,
        })?;
        ensure(&secrets, token()).await?;
    }
    Ok(())
}

/// Describes what engaging the cluster would write. Writes nothing.
///
/// # Errors
///
/// Returns an error if a call fails.
pub async fn plan(client: &Client) -> Result<Vec<String>, PrerequisiteError> {
    let mut writes = Vec::new();
    let found = read(&Api::<Namespace>::all(client.clone()), CLOUD_INIT_SETTINGS).await?;
    if found.is_none() {
        writes.push(format!("create Namespace {CLOUD_INIT_SETTINGS}"));
    }
    if found.is_none_or(|found| !found.annotations().contains_key(CLAIM)) {
        writes.push(format!("claim Namespace {CLOUD_INIT_SETTINGS}"));
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let fetcher = read(&accounts, FETCHER).await?;
    if fetcher.is_none() {
        writes.push(format!("create ServiceAccount {FETCHER}"));
    }
    let secrets: Api<Secret> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let fetcher = fetcher.unwrap_or_default().metadata;
    match read(&secrets, FETCHER_TOKEN).await? {
        None => writes.push(format!("create Secret {FETCHER_TOKEN}")),
        Some(found) if does_not_work(&found, &fetcher) => {
            writes.push(format!("recreate Secret {FETCHER_TOKEN}"));
        }
        Some(_) => {}
    }
    writes.extend(plan_fetcher(client).await?);
    Ok(writes)
}

/// Returns true if nodes can no longer use the fetcher's token: the token or its ServiceAccount is
/// gone, or the ServiceAccount was recreated. Returns false if that cannot be read.
pub async fn is_fetcher_lost(client: &Client) -> bool {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let fetcher = match accounts.get_metadata_opt(FETCHER).await {
        Ok(Some(fetcher)) => fetcher,
        Ok(None) => return true,
        Err(_) => return false,
    };
    match secrets.get_metadata_opt(FETCHER_TOKEN).await {
        Ok(found) => found.is_none_or(|found| is_stale(&found.metadata, &fetcher.metadata)),
        Err(_) => false,
    }
}

/// Returns true if the token belongs to another ServiceAccount than the one that has the name now.
/// The API server answers 401 to every client that sends such a token.
fn is_stale(token: &ObjectMeta, fetcher: &ObjectMeta) -> bool {
    let of = token
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get("kubernetes.io/service-account.uid"));
    of.is_some_and(|of| fetcher.uid.as_ref() != Some(of))
}

/// Returns true if a token must be created again.
fn does_not_work(token: &Secret, fetcher: &ObjectMeta) -> bool {
    is_stale(&token.metadata, fetcher) || stays_empty(token)
}

/// Returns true if a Secret has no token and will not get one from the token controller.
fn stays_empty(secret: &Secret) -> bool {
    let has_token = secret.data.as_ref().and_then(|data| data.get("token"));
    has_token.is_none_or(|token| token.0.is_empty()) && secret.type_.as_deref() != Some(TOKEN_TYPE)
}

/// Returns the object, and creates it if it does not exist. It reads first, so that a restart with
/// everything in place writes nothing.
async fn ensure<K>(api: &Api<K>, object: K) -> Result<K, PrerequisiteError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    match read(api, &object.name_any()).await? {
        Some(found) => Ok(found),
        None => create(api, object).await,
    }
}

/// Creates an object. If another client created it in the meantime, returns that one.
async fn create<K>(api: &Api<K>, object: K) -> Result<K, PrerequisiteError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let name = object.name_any();
    let created = match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => api.get(&name).await,
        created => created,
    };
    created.map_err(|source| PrerequisiteError::Call {
        kind: K::kind(&()).into_owned(),
        name,
        source,
    })
}

async fn read<K>(api: &Api<K>, name: &str) -> Result<Option<K>, PrerequisiteError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    api.get_opt(name).await.map_err(|source| {
        PrerequisiteError::of(source, (K::kind(&()).into_owned(), name.to_owned()))
    })
}

fn namespace() -> Namespace {
    Namespace {
        metadata: named(CLOUD_INIT_SETTINGS),
        ..Namespace::default()
    }
}

fn service_account() -> ServiceAccount {
    ServiceAccount {
        metadata: named(FETCHER),
        ..ServiceAccount::default()
    }
}

/// Returns the fetcher's token Secret. The token controller fills it, and nodes must wait for that.
fn token() -> Secret {
    token_of(FETCHER, named(FETCHER_TOKEN))
}

/// Returns a Secret that the token controller fills with a token of the ServiceAccount.
pub fn token_of(account: &str, mut metadata: ObjectMeta) -> Secret {
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(
        "kubernetes.io/service-account.name".to_owned(),
        account.to_owned(),
    );
    Secret {
        metadata,
        type_: Some(TOKEN_TYPE.to_owned()),
        ..Secret::default()
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use fake_cluster::{Cluster, Fault, Matcher, Verb, object};
    use kube::core::Status;
    use serde_json::json;

    use super::*;
    use crate::api::worker_cluster::MESSAGE_CHARACTERS_MAX;
    use crate::client::forbidden::GRANT;
    use crate::tenant::report::excerpt;

    #[test]
    fn the_remedy_stands_in_a_message_however_much_a_server_says() {
        let denied = |words: &str| {
            let refused = Status::failure(words, "Forbidden").with_code(403);
            let source = kube::Error::Api(Box::new(refused));
            PrerequisiteError::of(source, ("secret".to_owned(), "one".to_owned())).message()
        };
        let shown = denied("RBAC: no role");
        assert!(
            shown.contains("; run `osm rbac worker | kubectl"),
            "{shown}"
        );
        assert!(
            shown.contains("): the API server says `RBAC: no role"),
            "{shown}"
        );
        let shown = excerpt(&denied(&"not found, ".repeat(200)), MESSAGE_CHARACTERS_MAX);
        assert!(shown.contains(GRANT), "{shown}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_plan_names_what_engaging_would_write_and_nothing_that_is_there() {
        let cluster = Cluster::default();
        let client = cluster.client();
        let registration = RegistrationId::new("berlin", "berlin");
        let all = [
            "create Namespace cloud-init-settings",
            "claim Namespace cloud-init-settings",
            "create ServiceAccount cloud-init-getter",
            "create Secret cloud-init-getter-token",
            "create Role cloud-init-getter",
            "create RoleBinding cloud-init-getter",
        ];
        assert_eq!(plan(&client).await.unwrap(), all);
        ensure_namespace(&client).await.unwrap();
        ensure_fetcher(&registration, &client).await.unwrap();
        keep_fetcher(&registration, &client).await.unwrap();
        assert_eq!(plan(&client).await.unwrap(), all[1..2]);
        // No token controller fills it.
        let empty = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "name": FETCHER_TOKEN, "namespace": CLOUD_INIT_SETTINGS },
        });
        assert!(cluster.delete_raw(object("secrets", CLOUD_INIT_SETTINGS, FETCHER_TOKEN)));
        cluster.put_raw(empty).unwrap();
        let recreated = [all[1], "recreate Secret cloud-init-getter-token"];
        assert_eq!(plan(&client).await.unwrap(), recreated);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fetcher_without_its_token_is_lost_and_one_that_cannot_be_read_is_not() {
        let cluster = Cluster::default();
        let client = cluster.client();
        ensure_namespace(&client).await.unwrap();
        ensure_fetcher(&RegistrationId::new("berlin", "berlin"), &client)
            .await
            .unwrap();
        assert!(!is_fetcher_lost(&client).await);
        for resource in ["serviceaccounts", "secrets"] {
            for code in [403, 500] {
                let error = Fault::Status {
                    code,
                    retry_after: None,
                };
                let id = cluster.inject(Matcher::on(&[Verb::Get], resource), error);
                assert!(!is_fetcher_lost(&client).await, "{resource} {code}");
                cluster.clear_fault(id);
            }
        }
        assert!(cluster.delete_raw(object("secrets", CLOUD_INIT_SETTINGS, FETCHER_TOKEN)));
        assert!(is_fetcher_lost(&client).await);
    }
}
