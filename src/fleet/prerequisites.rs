//! Ensures what nodes need in a worker cluster to fetch their configuration: the namespace, and a
//! ServiceAccount whose token may read Secrets there.
//!
//! What exists is used as it is, no matter who created it, as long as machines can fetch with it.

use std::fmt::Debug;

use k8s_openapi::api::{
    core::v1::{Namespace, Secret, ServiceAccount},
    rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{pages::is_forbidden, removal};
use crate::api::names::{CLOUD_INIT_SETTINGS, FETCHER, FETCHER_TOKEN};
use crate::telemetry::chain::chain;

/// What a person runs where rights are missing. Those in a namespace are deleted with it.
pub const GRANT: &str = "run `kubectl apply -f manifests/rbac/worker.yaml` in the worker cluster, \
                         which grants what the manager needs (somebody who deletes the namespace \
                         deletes the rights in it, too)";

/// Why a worker cluster could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrerequisiteError {
    /// The kubeconfig's identity lacks a right.
    #[error("the kubeconfig's identity may not read or create {kind} {name}")]
    Denied {
        /// The kind of the object.
        kind: String,
        /// The object.
        name: String,
        /// What the API server answered.
        source: kube::Error,
    },
    /// A call failed.
    #[error("cannot ensure {kind} {name}")]
    Call {
        /// The kind of the object.
        kind: String,
        /// The object.
        name: String,
        /// Why it failed.
        source: kube::Error,
    },
    /// Somebody deletes the namespace.
    #[error(
        "namespace {CLOUD_INIT_SETTINGS} is being deleted; it is created again once it is gone"
    )]
    NamespaceTerminating,
}

impl PrerequisiteError {
    /// A read of an object of this kind and name failed: only rights refuse a read.
    pub fn of(source: kube::Error, (kind, name): (String, String)) -> Self {
        if is_forbidden(&source) {
            Self::Denied { kind, name, source }
        } else {
            Self::Call { kind, name, source }
        }
    }

    /// The message of the condition that shows it: where rights are missing, with the command that
    /// restores them.
    pub fn message(&self) -> String {
        match self {
            Self::Denied { .. } => format!("{}; {GRANT}", chain(self)),
            _ => chain(self).to_string(),
        }
    }

    /// The reason of the condition that shows it.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Denied { .. } => "RightsMissing",
            Self::Call { .. } => "PrerequisitesFailed",
            Self::NamespaceTerminating => "NamespaceTerminating",
        }
    }
}

/// Ensures the namespace, and hands it out.
///
/// # Errors
///
/// When a call fails, and while the namespace is being deleted.
pub async fn ensure_namespace(client: &Client) -> Result<Namespace, PrerequisiteError> {
    let found = ensure(&Api::all(client.clone()), namespace()).await;
    let found = found.map_err(|error| match error {
        // Neither quotas nor the end of a namespace refuse a namespace.
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

/// Creates what is missing of the fetcher: ServiceAccount and token Secret. [`keep_fetcher`] makes
/// its Role and RoleBinding.
pub async fn ensure_fetcher(client: &Client) -> Result<(), PrerequisiteError> {
    let fetcher = ensure(
        &Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS),
        service_account(),
    )
    .await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let found = ensure(&secrets, token()).await?;
    if is_stale(&found.metadata, &fetcher.metadata) || stays_empty(&found) {
        tracing::warn!("the fetcher's token is of no use any more, and is created again");
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

/// Why machines cannot fetch their configuration.
#[derive(Debug, thiserror::Error)]
pub enum FetcherError {
    /// An object does not grant what the fetcher needs, and may not be corrected.
    #[error(
        "{kind} {CLOUD_INIT_SETTINGS}/{FETCHER} does not let machines fetch their configuration, \
         and the kubeconfig's identity may not correct it; run `kubectl -n {CLOUD_INIT_SETTINGS} \
         delete {resource} {FETCHER}` in the worker cluster, and the manager creates it again"
    )]
    Refused {
        /// The kind of the object.
        kind: String,
        /// What kubectl calls it.
        resource: String,
    },
    /// A call failed.
    #[error(transparent)]
    Call(#[from] PrerequisiteError),
}

/// Keeps what the fetcher may do: its Role and RoleBinding are created where they are missing, and
/// corrected where machines could not fetch with them.
///
/// # Errors
///
/// When an object must be corrected and may not be, and when a call fails.
pub async fn keep_fetcher(client: &Client) -> Result<(), FetcherError> {
    let roles: Api<Role> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let found = ensure(&roles, role()).await?;
    if !lets_read_secrets(&found) {
        correct(&roles, &role()).await?;
    }
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let wanted = role_binding();
    let found = ensure(&bindings, wanted.clone()).await?;
    // What a binding refers to cannot be changed.
    if found.role_ref != wanted.role_ref {
        let deleted = removal::delete(&bindings, &found.metadata).await;
        deleted.map_err(refused_or_failed::<RoleBinding>)?;
        ensure(&bindings, wanted).await?;
    } else if !binds_fetcher(&found) {
        correct(&bindings, &wanted).await?;
    }
    Ok(())
}

/// What [`keep_fetcher`] would write, in words. It writes nothing.
///
/// # Errors
///
/// When a call fails.
pub async fn plan_fetcher(client: &Client) -> Result<Vec<String>, PrerequisiteError> {
    let roles: Api<Role> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let role = match read(&roles, FETCHER).await? {
        None => Some("create"),
        Some(found) => (!lets_read_secrets(&found)).then_some("correct"),
    };
    let binding = match read(&bindings, FETCHER).await? {
        None => Some("create"),
        Some(found) if found.role_ref != role_binding().role_ref => Some("recreate"),
        Some(found) => (!binds_fetcher(&found)).then_some("correct"),
    };
    let role = role.map(|verb| format!("{verb} Role {FETCHER}"));
    let binding = binding.map(|verb| format!("{verb} RoleBinding {FETCHER}"));
    Ok(role.into_iter().chain(binding).collect())
}

/// Whether the fetcher may read each Secret of the namespace.
fn lets_read_secrets(role: &Role) -> bool {
    let has = |list: &Option<Vec<String>>, wanted: &str| {
        let mut list = list.iter().flatten();
        list.any(|it| it == wanted || it == "*")
    };
    role.rules.iter().flatten().any(|rule| {
        has(&rule.api_groups, "")
            && has(&rule.resources, "secrets")
            && rule.verbs.iter().any(|verb| verb == "get" || verb == "*")
            && rule.resource_names.as_ref().is_none_or(Vec::is_empty)
    })
}

fn binds_fetcher(binding: &RoleBinding) -> bool {
    binding.subjects.iter().flatten().any(|subject| {
        subject.kind == "ServiceAccount"
            && subject.name == FETCHER
            && subject.namespace.as_deref() == Some(CLOUD_INIT_SETTINGS)
    })
}

/// Gives an object our content. Labels and annotations of others stay.
async fn correct<K>(api: &Api<K>, wanted: &K) -> Result<(), FetcherError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let params = PatchParams::apply("osm").force();
    let applied = api.patch(FETCHER, &params, &Patch::Apply(wanted)).await;
    applied.map_err(refused_or_failed::<K>)?;
    tracing::warn!(kind = %K::kind(&()), name = FETCHER, "machines could not fetch; it was corrected");
    Ok(())
}

fn refused_or_failed<K: Resource<DynamicType = ()>>(error: kube::Error) -> FetcherError {
    match error {
        error if is_forbidden(&error) => FetcherError::Refused {
            kind: K::kind(&()).into_owned(),
            resource: K::kind(&()).to_lowercase(),
        },
        source => FetcherError::Call(PrerequisiteError::Call {
            kind: K::kind(&()).into_owned(),
            name: FETCHER.to_owned(),
            source,
        }),
    }
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

/// Whether a Secret has no token, and is none that the token controller fills.
fn stays_empty(secret: &Secret) -> bool {
    let has_token = secret.data.as_ref().and_then(|data| data.get("token"));
    has_token.is_none_or(|token| token.0.is_empty()) && secret.type_ != token().type_
}

/// Reads first: a restart with everything in place writes nothing.
async fn ensure<K>(api: &Api<K>, object: K) -> Result<K, PrerequisiteError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let name = object.name_any();
    let kind = || K::kind(&()).into_owned();
    let failed = |source| PrerequisiteError::Call {
        kind: kind(),
        name: name.clone(),
        source,
    };
    if let Some(found) = read(api, &name).await? {
        return Ok(found);
    }
    match api.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            api.get(&name).await.map_err(failed)
        }
        created => created.map_err(failed),
    }
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
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_the_fetcher_may_do_is_corrected_where_machines_could_not_fetch() {
        let cluster = Cluster::default();
        let client = cluster.client();
        ensure_namespace(&client).await.unwrap();
        keep_fetcher(&client).await.unwrap();
        let read = |kind: &str| {
            let mut all = cluster.objects(kind).into_iter();
            all.find(|found| found["metadata"]["name"] == FETCHER)
        };
        let rules = |resource: &str, verb: &str, names: &[&str]| {
            json!([{
                "apiGroups": ["*"], "resources": [resource], "verbs": [verb],
                "resourceNames": names,
            }])
        };
        for (rules, is_kept) in [
            (json!([]), false),
            (rules("configmaps", "get", &[]), false),
            (rules("secrets", "list", &[]), false),
            (rules("secrets", "get", &["one"]), false),
            (rules("*", "*", &[]), true),
        ] {
            let mut role = read("roles").unwrap();
            role["rules"] = rules.clone();
            cluster.put_raw(role).unwrap();
            let planned = plan_fetcher(&client).await.unwrap();
            assert_eq!(planned.is_empty(), is_kept, "{planned:?}");
            keep_fetcher(&client).await.unwrap();
            let kept = read("roles").unwrap()["rules"] == rules;
            assert_eq!(kept, is_kept, "{rules}");
        }
        let right = read("rolebindings").unwrap();
        let (subjects, role_ref) = (right["subjects"].clone(), right["roleRef"].clone());
        for (field, wrong) in [
            ("subjects", json!([])),
            (
                "roleRef",
                json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"}),
            ),
        ] {
            let mut binding = read("rolebindings").unwrap();
            binding[field] = wrong;
            cluster.put_raw(binding).unwrap();
            keep_fetcher(&client).await.unwrap();
            let binding = read("rolebindings").unwrap();
            assert_eq!(
                (&binding["subjects"], &binding["roleRef"]),
                (&subjects, &role_ref)
            );
        }
        for kind in ["roles", "rolebindings"] {
            assert!(cluster.delete_raw(object(kind, CLOUD_INIT_SETTINGS, FETCHER)));
            let planned = plan_fetcher(&client).await.unwrap();
            assert!(planned[0].starts_with("create Role"), "{planned:?}");
            keep_fetcher(&client).await.unwrap();
            assert!(read(kind).is_some());
        }
    }

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
