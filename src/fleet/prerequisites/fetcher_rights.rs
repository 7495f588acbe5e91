//! The rights of the fetcher: its Role, and the RoleBinding that grants it to the ServiceAccount.

use std::fmt::Debug;

use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{PrerequisiteError, create, named, read};
use crate::api::names::{CLOUD_INIT_SETTINGS, FETCHER};
use crate::client::pages::is_forbidden;
use crate::fleet::removal;
use crate::tenant::id::RegistrationId;

/// The reason why machines cannot fetch their configuration.
#[derive(Debug, thiserror::Error)]
pub enum FetcherError {
    /// An object does not grant what the fetcher needs, and we may not correct it.
    #[error(
        "{kind} {CLOUD_INIT_SETTINGS}/{FETCHER} does not let machines fetch their configuration, \
         and the kubeconfig's identity may not correct it; run `kubectl -n {CLOUD_INIT_SETTINGS} \
         delete {resource} {FETCHER}` in the worker cluster, and the manager creates it again"
    )]
    Refused {
        /// The kind of the object.
        kind: String,
        /// The resource, as kubectl accepts it.
        resource: String,
    },
    /// A call failed.
    #[error(transparent)]
    Call(#[from] PrerequisiteError),
}

/// The write that is needed so that machines can fetch with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Correction {
    Create,
    Correct,
    /// The wrong field is immutable.
    Recreate,
}

impl Correction {
    /// Returns the correction of the fetcher's Role, if it needs one.
    fn of_role(found: Option<&Role>) -> Option<Self> {
        let Some(found) = found else {
            return Some(Self::Create);
        };
        (!lets_read_secrets(found)).then_some(Self::Correct)
    }

    /// Returns the correction of the fetcher's RoleBinding, if it needs one.
    fn of_binding(found: Option<&RoleBinding>) -> Option<Self> {
        let Some(found) = found else {
            return Some(Self::Create);
        };
        if found.role_ref != role_binding().role_ref {
            return Some(Self::Recreate);
        }
        (!binds_fetcher(found)).then_some(Self::Correct)
    }

    /// Describes the correction for `osm plan`.
    fn describe<K: Resource<DynamicType = ()>>(self) -> String {
        let verb = match self {
            Self::Create => "create",
            Self::Correct => "correct",
            Self::Recreate => "recreate",
        };
        format!("{verb} {} {FETCHER}", K::kind(&()))
    }
}

/// Ensures the fetcher's rights. Its Role and RoleBinding are created if they do not exist, and
/// corrected if machines could not fetch with them.
///
/// # Errors
///
/// Returns an error if an object must be corrected and we may not do that, or if a call fails.
pub async fn keep_fetcher(
    registration: &RegistrationId,
    client: &Client,
) -> Result<(), FetcherError> {
    let roles: Api<Role> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    keep(registration, &roles, role(), Correction::of_role).await?;
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    keep(
        registration,
        &bindings,
        role_binding(),
        Correction::of_binding,
    )
    .await
}

/// Describes what [`keep_fetcher`] would write. Writes nothing.
///
/// # Errors
///
/// Returns an error if a call fails.
pub async fn plan_fetcher(client: &Client) -> Result<Vec<String>, PrerequisiteError> {
    let roles: Api<Role> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let role = Correction::of_role(read(&roles, FETCHER).await?.as_ref());
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
    let binding = Correction::of_binding(read(&bindings, FETCHER).await?.as_ref());
    let role = role.map(Correction::describe::<Role>);
    let binding = binding.map(Correction::describe::<RoleBinding>);
    Ok(role.into_iter().chain(binding).collect())
}

async fn keep<K>(
    registration: &RegistrationId,
    api: &Api<K>,
    wanted: K,
    correction: impl FnOnce(Option<&K>) -> Option<Correction>,
) -> Result<(), FetcherError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let found = read(api, FETCHER).await?;
    let Some(correction) = correction(found.as_ref()) else {
        return Ok(());
    };
    if correction == Correction::Correct {
        correct(api, &wanted).await?;
        let kind = K::kind(&());
        tracing::warn!(%registration, %kind, name = FETCHER, "corrected: machines could not fetch");
        return Ok(());
    }
    if let Some(found) = found {
        let deleted = removal::delete(api, found.meta()).await;
        deleted.map_err(refused_or_failed::<K>)?;
    }
    create(api, wanted).await?;
    Ok(())
}

/// Returns true if the Role lets the fetcher read every Secret of the namespace.
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

/// Applies our content to an object. Labels and annotations of others are kept.
async fn correct<K>(api: &Api<K>, wanted: &K) -> Result<(), FetcherError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let params = PatchParams::apply("osm").force();
    let applied = api.patch(FETCHER, &params, &Patch::Apply(wanted)).await;
    applied.map_err(refused_or_failed::<K>)?;
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

#[cfg(test)]
mod tests {
    use fake_cluster::{Cluster, object};
    use serde_json::json;

    use super::{super::ensure_namespace, *};

    fn registration() -> RegistrationId {
        RegistrationId::new("berlin", "berlin")
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_fetcher_may_do_is_corrected_where_machines_could_not_fetch() {
        let cluster = Cluster::default();
        let client = cluster.client();
        ensure_namespace(&client).await.unwrap();
        keep_fetcher(&registration(), &client).await.unwrap();
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
            keep_fetcher(&registration(), &client).await.unwrap();
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
            keep_fetcher(&registration(), &client).await.unwrap();
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
            keep_fetcher(&registration(), &client).await.unwrap();
            assert!(read(kind).is_some());
        }
    }
}
