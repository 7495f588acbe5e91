//! Releases a worker cluster when its registration is removed.
//!
//! This uses the kubeconfig that was registered last, while it still works.

use std::fmt::Debug;

use k8s_openapi::api::{
    core::v1::{Secret, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{
        DeleteParams, ListParams, ObjectMeta, PartialObjectMeta, Patch, PatchParams, Preconditions,
    },
    core::NamespaceResourceScope,
};

use serde::de::DeserializeOwned;

use crate::api::{
    config::OperatingSystemConfig,
    machine_deployment::MachineDeployment,
    names::{CLOUD_INIT_SETTINGS, DerivedNames, FINALIZER, KUBE_SYSTEM, MADE_FOR, TOKEN_LABEL},
};
use crate::client::pages::Pages;

/// The page size for lists of machine deployments. It is small, so that a large cluster costs
/// little memory.
const PAGE: u32 = 100;

/// The machine deployments that carry our finalizer, page by page.
pub struct Held {
    machine_deployments: Api<MachineDeployment>,
    pages: Pages,
}

impl Held {
    /// Begins to list them.
    pub fn of(worker: &Client) -> Self {
        Self {
            machine_deployments: Api::all(worker.clone()),
            pages: Pages::of(ListParams::default(), PAGE),
        }
    }

    /// Returns those of the next page, or `None` after the last page.
    ///
    /// # Errors
    ///
    /// A call to the API server fails.
    pub async fn next(
        &mut self,
    ) -> Result<Option<Vec<PartialObjectMeta<MachineDeployment>>>, kube::Error> {
        let page = self.pages.next_metadata(&self.machine_deployments).await?;
        let is_held =
            |found: &PartialObjectMeta<_>| found.finalizers().iter().any(|it| it == FINALIZER);
        Ok(page.map(|page| page.into_iter().filter(is_held).collect()))
    }
}

/// Removes our finalizer from a machine deployment, and changes nothing else.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn release(
    worker: &Client,
    machine_deployment: &(impl ResourceExt + Sync),
) -> Result<(), kube::Error> {
    let namespace = machine_deployment.namespace().unwrap_or_default();
    let api: Api<MachineDeployment> = Api::namespaced(worker.clone(), &namespace);
    let patch = without_finalizer(machine_deployment.meta());
    let name = machine_deployment.name_any();
    match api
        .patch_metadata(&name, &PatchParams::default(), &Patch::<()>::Json(patch))
        .await
    {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        patched => patched.map(drop),
    }
}

/// Returns a patch that removes our finalizer. The patch fails if the object was replaced or its
/// list of finalizers has changed, so that a foreign finalizer is never lost.
pub fn without_finalizer(seen: &ObjectMeta) -> json_patch::Patch {
    let finalizers = seen.finalizers.as_deref().unwrap_or_default();
    let rest: Vec<&String> = finalizers
        .iter()
        .filter(|name| *name != FINALIZER)
        .collect();
    serde_json::from_value(serde_json::json!([
        {"op": "test", "path": "/metadata/uid", "value": seen.uid},
        {"op": "test", "path": "/metadata/finalizers", "value": finalizers},
        {"op": "replace", "path": "/metadata/finalizers", "value": rest},
    ]))
    .expect("two operations are a patch")
}

/// Deletes everything that was created for a machine deployment.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn purge(
    worker: &Client,
    management: &Client,
    tenant: &str,
    machine_deployment: &PartialObjectMeta<MachineDeployment>,
) -> Result<(), kube::Error> {
    let names = DerivedNames::new(
        &machine_deployment.namespace().unwrap_or_default(),
        &machine_deployment.name_any(),
    );
    let secrets: Api<Secret> = Api::namespaced(worker.clone(), CLOUD_INIT_SETTINGS);
    for name in names.secrets() {
        delete_named(&secrets, name).await?;
    }
    let all_tokens: Api<Secret> = Api::namespaced(worker.clone(), KUBE_SYSTEM);
    for token in tokens(worker, &names).await? {
        delete(&all_tokens, &token).await?;
    }
    if has_credentials(worker, &names).await? {
        let credentials = Credentials::read(worker, &names).await?;
        credentials.remove(worker).await?;
    }
    let configs: Api<OperatingSystemConfig> = Api::namespaced(management.clone(), tenant);
    delete_named(&configs, &names.config).await
}

/// Returns true if there is a ServiceAccount that was created for the machine deployment alone.
/// Returns false if we may not read ServiceAccounts, because then we cannot have created one.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn has_credentials(worker: &Client, names: &DerivedNames) -> Result<bool, kube::Error> {
    let accounts: Api<ServiceAccount> = Api::namespaced(worker.clone(), CLOUD_INIT_SETTINGS);
    match accounts.get_metadata_opt(&names.fetcher).await {
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(false),
        found => Ok(found?.is_some_and(|found| found.annotations().contains_key(MADE_FOR))),
    }
}

/// Returns the identities of the bootstrap tokens of a machine deployment, which has one. If others
/// have given its label to more than a page of tokens, those of the first page.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn tokens(worker: &Client, names: &DerivedNames) -> Result<Vec<ObjectMeta>, kube::Error> {
    let tokens: Api<Secret> = Api::namespaced(worker.clone(), KUBE_SYSTEM);
    let selector = ListParams::default().labels(&format!("{TOKEN_LABEL}={}", names.key));
    let page = Pages::of(selector, PAGE).next_metadata(&tokens).await?;
    let found = page.into_iter().flatten();
    Ok(found.map(|token| identity(token.metadata)).collect())
}

/// Returns the part of metadata that a deletion needs.
fn identity(metadata: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: metadata.name,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        ..ObjectMeta::default()
    }
}

/// The node credentials of a machine deployment, as they were read.
pub struct Credentials {
    binding: Option<ObjectMeta>,
    role: Option<ObjectMeta>,
    token: Option<ObjectMeta>,
    account: Option<ObjectMeta>,
}

impl Credentials {
    /// Reads the parts that exist.
    ///
    /// # Errors
    ///
    /// A call to the API server fails.
    pub async fn read(worker: &Client, names: &DerivedNames) -> Result<Self, kube::Error> {
        Ok(Self {
            binding: read::<RoleBinding>(worker, &names.fetcher).await?,
            role: read::<Role>(worker, &names.fetcher).await?,
            token: read::<Secret>(worker, &names.fetcher_token).await?,
            account: read::<ServiceAccount>(worker, &names.fetcher).await?,
        })
    }

    /// Deletes what was read. The ServiceAccount is deleted last, so that after a crash it still
    /// points to the rest.
    ///
    /// # Errors
    ///
    /// A call to the API server fails.
    pub async fn remove(&self, worker: &Client) -> Result<(), kube::Error> {
        remove::<RoleBinding>(worker, self.binding.as_ref()).await?;
        remove::<Role>(worker, self.role.as_ref()).await?;
        remove::<Secret>(worker, self.token.as_ref()).await?;
        remove::<ServiceAccount>(worker, self.account.as_ref()).await
    }
}

async fn read<K>(worker: &Client, name: &str) -> Result<Option<ObjectMeta>, kube::Error>
where
    K: Clone
        + DeserializeOwned
        + Debug
        + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let api: Api<K> = Api::namespaced(worker.clone(), CLOUD_INIT_SETTINGS);
    let found = api.get_metadata_opt(name).await?;
    Ok(found.map(|found| found.metadata))
}

async fn remove<K>(worker: &Client, seen: Option<&ObjectMeta>) -> Result<(), kube::Error>
where
    K: Clone
        + DeserializeOwned
        + Debug
        + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let Some(seen) = seen else {
        return Ok(());
    };
    let api: Api<K> = Api::namespaced(worker.clone(), CLOUD_INIT_SETTINGS);
    delete(&api, seen).await
}

async fn delete_named<K>(api: &Api<K>, name: &str) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + Debug + Resource<DynamicType = ()>,
{
    match api.get_metadata_opt(name).await? {
        Some(found) => delete(api, &found.metadata).await,
        None => Ok(()),
    }
}

/// Deletes the object with this name and uid. Returns without an error if it is already gone. Does
/// not delete another object that took its name.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn delete<K>(api: &Api<K>, metadata: &ObjectMeta) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    delete_if(api, metadata, &only(metadata)).await
}

/// As [`delete`], but not an object that has changed since it was read.
///
/// # Errors
///
/// A call to the API server fails.
pub async fn delete_as_read<K>(api: &Api<K>, metadata: &ObjectMeta) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let mut params = only(metadata);
    let preconditions = params.preconditions.get_or_insert_default();
    preconditions
        .resource_version
        .clone_from(&metadata.resource_version);
    delete_if(api, metadata, &params).await
}

async fn delete_if<K>(
    api: &Api<K>,
    metadata: &ObjectMeta,
    params: &DeleteParams,
) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let name = metadata.name.as_deref().unwrap_or_default();
    match api.delete(name, params).await {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        deleted => deleted.map(drop),
    }
}

/// Returns parameters that delete only the object that was read, and no other that took its name.
pub fn only(seen: &ObjectMeta) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: seen.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}

#[cfg(test)]
mod tests {
    use fake_cluster::{Cluster, object};
    use kube::api::PostParams;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_took_the_name_of_an_object_since_it_was_seen_is_not_deleted() {
        let cluster = Cluster::default();
        let secrets: Api<Secret> = Api::namespaced(cluster.client(), "default");
        let mut secret = Secret::default();
        secret.metadata.name = Some("a".to_owned());
        let params = PostParams::default();
        let create = || secrets.create(&params, &secret);
        let seen = create().await.unwrap();
        delete(&secrets, &seen.metadata).await.unwrap();
        create().await.unwrap();
        delete(&secrets, &seen.metadata).await.unwrap();
        let another = cluster.get(object("secrets", "default", "a"));
        assert!(another.is_some(), "another with its name is left alone");
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_changed_since_it_was_read_is_not_deleted_as_read() {
        let cluster = Cluster::default();
        let secrets: Api<Secret> = Api::namespaced(cluster.client(), "default");
        let mut secret = Secret::default();
        secret.metadata.name = Some("a".to_owned());
        let params = PostParams::default();
        let read = secrets.create(&params, &secret).await.unwrap();
        let mut changed = read.clone();
        changed.type_ = None;
        changed.string_data = Some([("key".to_owned(), "value".to_owned())].into());
        let changed = secrets.replace("a", &params, &changed).await.unwrap();
        delete_as_read(&secrets, &read.metadata).await.unwrap();
        assert!(cluster.get(object("secrets", "default", "a")).is_some());
        delete_as_read(&secrets, &changed.metadata).await.unwrap();
        assert!(cluster.get(object("secrets", "default", "a")).is_none());
    }

    #[test]
    fn a_foreign_finalizer_is_tested_for_and_kept() {
        let metadata = |uid: &str, finalizers: &[&str]| ObjectMeta {
            uid: Some(uid.to_owned()),
            finalizers: Some(finalizers.iter().map(|&name| name.to_owned()).collect()),
            ..ObjectMeta::default()
        };
        let before = metadata("1", &["a.example/b", FINALIZER]);
        let patch = without_finalizer(&before);
        let apply = |found: &ObjectMeta| {
            let mut object = serde_json::json!({ "metadata": found });
            json_patch::patch(&mut object, &patch).map(|()| object)
        };
        let after = apply(&before).unwrap();
        assert_eq!(
            after["metadata"]["finalizers"],
            serde_json::json!(["a.example/b"])
        );
        let others = metadata("1", &["a.example/b", FINALIZER, "c.example/d"]);
        assert!(
            apply(&others).is_err(),
            "a list that changed meanwhile is not touched"
        );
        let another = metadata("2", &["a.example/b", FINALIZER]);
        assert!(apply(&another).is_err(), "another has taken the name");
    }
}
