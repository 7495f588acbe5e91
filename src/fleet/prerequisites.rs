//! Ensures what nodes need in a worker cluster to fetch their configuration: the namespace, and a
//! ServiceAccount whose token may read Secrets there.
//!
//! What exists is used as it is, no matter who created it.

use std::fmt::Debug;

use k8s_openapi::api::{
    core::v1::{Namespace, Secret, ServiceAccount},
    rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ObjectMeta, PostParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::api::names::{CLOUD_INIT_SETTINGS, FETCHER, FETCHER_TOKEN};

/// Why a worker cluster could not be prepared.
#[derive(Debug, thiserror::Error)]
#[error("cannot ensure {kind} {name}")]
pub struct PrerequisiteError {
    /// The kind of the object.
    kind: String,
    /// The object.
    name: String,
    /// Why it failed.
    source: kube::Error,
}

/// Ensures the namespace, and hands it out.
pub async fn ensure_namespace(client: &Client) -> Result<Namespace, PrerequisiteError> {
    ensure(&Api::all(client.clone()), namespace()).await
}

/// Creates what is missing of the fetcher: ServiceAccount, Role, RoleBinding and token Secret.
pub async fn ensure_fetcher(client: &Client) -> Result<(), PrerequisiteError> {
    let fetcher = ensure(
        &Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS),
        service_account(),
    )
    .await?;
    ensure(
        &Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS),
        role(),
    )
    .await?;
    ensure(
        &Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS),
        role_binding(),
    )
    .await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let found = ensure(&secrets, token()).await?;
    if is_stale(&found.metadata, &fetcher.metadata) {
        tracing::warn!("the fetcher was recreated, and its token with it");
        remove(&secrets, &found).await?;
        ensure(&secrets, token()).await?;
    }
    Ok(())
}

/// Returns true if nodes cannot use the fetcher's token any more: the token or its ServiceAccount
/// is gone, or the ServiceAccount was recreated. Returns false if that cannot be read.
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

/// A token of another ServiceAccount than the one that has the name now: the API server answers 401
/// to every client that sends it.
fn is_stale(token: &ObjectMeta, fetcher: &ObjectMeta) -> bool {
    let of = token
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get("kubernetes.io/service-account.uid"));
    of.is_some_and(|of| fetcher.uid.as_ref() != Some(of))
}

/// The uid goes along: one that somebody has made meanwhile stays.
async fn remove(secrets: &Api<Secret>, found: &Secret) -> Result<(), PrerequisiteError> {
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: found.uid(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match secrets.delete(FETCHER_TOKEN, &params).await {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(source) => Err(PrerequisiteError {
            kind: Secret::kind(&()).into_owned(),
            name: FETCHER_TOKEN.to_owned(),
            source,
        }),
        Ok(_) => Ok(()),
    }
}

/// Reads first: a restart with everything in place writes nothing.
async fn ensure<K>(api: &Api<K>, object: K) -> Result<K, PrerequisiteError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let name = object.name_any();
    let failed = |source| PrerequisiteError {
        kind: K::kind(&()).into_owned(),
        name: name.clone(),
        source,
    };
    if let Some(found) = api.get_opt(&name).await.map_err(failed)? {
        return Ok(found);
    }
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            api.get(&name).await.map_err(failed)
        }
        created => created.map_err(failed),
    }
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

fn role() -> Role {
    Role {
        metadata: named(FETCHER),
        rules: Some(vec![PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec!["secrets".to_owned()]),
            verbs: vec!["get".to_owned(), "list".to_owned()],
            ..PolicyRule::default()
        }]),
    }
}

fn role_binding() -> RoleBinding {
    RoleBinding {
        metadata: named(FETCHER),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "Role".to_owned(),
            name: FETCHER.to_owned(),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".to_owned(),
            name: FETCHER.to_owned(),
            namespace: Some(CLOUD_INIT_SETTINGS.to_owned()),
            ..Subject::default()
        }]),
    }
}

/// The token controller fills this Secret; until it has, nodes are waited for.
fn token() -> Secret {
    token_of(FETCHER, named(FETCHER_TOKEN))
}

/// The Secret that the token controller fills with a token of the ServiceAccount.
pub fn token_of(account: &str, mut metadata: ObjectMeta) -> Secret {
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(
        "kubernetes.io/service-account.name".to_owned(),
        account.to_owned(),
    );
    Secret {
        metadata,
        type_: Some("kubernetes.io/service-account-token".to_owned()),
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

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fetcher_without_its_token_is_lost_and_one_that_cannot_be_read_is_not() {
        let cluster = Cluster::default();
        let client = cluster.client();
        ensure_namespace(&client).await.unwrap();
        ensure_fetcher(&client).await.unwrap();
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
