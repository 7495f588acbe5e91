//! Gives a worker cluster back when its registration is removed.
//!
//! Done with the kubeconfig that was registered last, while it still works.

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
};

use serde::de::DeserializeOwned;

use crate::api::{
    config::OperatingSystemConfig,
    machine_deployment::MachineDeployment,
    names::{CLOUD_INIT_SETTINGS, DerivedNames, FINALIZER, KUBE_SYSTEM, MADE_FOR, TOKEN_LABEL},
};

/// A page of machine deployments: small, so that a large cluster costs little memory.
const PAGE: u32 = 100;

/// The machine deployments that carry our finalizer.
pub async fn held(
    worker: &Client,
) -> Result<Vec<PartialObjectMeta<MachineDeployment>>, kube::Error> {
    let machine_deployments: Api<MachineDeployment> = Api::all(worker.clone());
    let mut page = ListParams::default().limit(PAGE);
    let mut held = Vec::new();
    loop {
        let list = machine_deployments.list_metadata(&page).await?;
        held.extend(
            list.items
                .into_iter()
                .filter(|found| found.finalizers().iter().any(|f| f == FINALIZER)),
        );
        match list.metadata.continue_ {
            Some(token) if !token.is_empty() => page = page.continue_token(&token),
            _ => return Ok(held),
        }
    }
}

/// Takes our finalizer off a machine deployment, and nothing else.
pub async fn release(
    worker: &Client,
    machine_deployment: &(impl ResourceExt + Sync),
) -> Result<(), kube::Error> {
    let namespace = machine_deployment.namespace().unwrap_or_default();
    let api: Api<MachineDeployment> = Api::namespaced(worker.clone(), &namespace);
    let patch = without_finalizer(machine_deployment.finalizers());
    let name = machine_deployment.name_any();
    match api
        .patch_metadata(&name, &PatchParams::default(), &Patch::<()>::Json(patch))
        .await
    {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        patched => patched.map(drop),
    }
}

/// Removes our finalizer by a patch that fails where the list is not the one that was read, so
/// that a foreign finalizer is never lost.
pub fn without_finalizer(finalizers: &[String]) -> json_patch::Patch {
    let rest: Vec<&String> = finalizers
        .iter()
        .filter(|name| *name != FINALIZER)
        .collect();
    serde_json::from_value(serde_json::json!([
        {"op": "test", "path": "/metadata/finalizers", "value": finalizers},
        {"op": "replace", "path": "/metadata/finalizers", "value": rest},
    ]))
    .expect("two operations are a patch")
}

/// Deletes everything that was made for a machine deployment.
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
    let tokens: Api<Secret> = Api::namespaced(worker.clone(), KUBE_SYSTEM);
    let ours = ListParams::default().labels(&format!("{TOKEN_LABEL}={}", names.key));
    for token in tokens.list_metadata(&ours).await?.items {
        delete(&tokens, &token.metadata).await?;
    }
    if has_credentials(worker, &names).await? {
        remove_credentials(worker, &names).await?;
    }
    let configs: Api<OperatingSystemConfig> = Api::namespaced(management.clone(), tenant);
    delete_named(&configs, &names.config).await
}

/// Whether there is a ServiceAccount that was made for the machine deployment alone. Who may not
/// look has made none.
pub async fn has_credentials(worker: &Client, names: &DerivedNames) -> Result<bool, kube::Error> {
    let accounts: Api<ServiceAccount> = Api::namespaced(worker.clone(), CLOUD_INIT_SETTINGS);
    match accounts.get_metadata_opt(&names.getter).await {
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(false),
        found => Ok(found?.is_some_and(|found| found.annotations().contains_key(MADE_FOR))),
    }
}

/// Deletes what a machine deployment's own credentials are made of. The ServiceAccount goes last:
/// a crash before that leaves what tells of the rest.
pub async fn remove_credentials(worker: &Client, names: &DerivedNames) -> Result<(), kube::Error> {
    let bindings: Api<RoleBinding> = Api::namespaced(worker.clone(), CLOUD_INIT_SETTINGS);
    let roles: Api<Role> = Api::namespaced(worker.clone(), CLOUD_INIT_SETTINGS);
    let tokens: Api<Secret> = Api::namespaced(worker.clone(), CLOUD_INIT_SETTINGS);
    let accounts: Api<ServiceAccount> = Api::namespaced(worker.clone(), CLOUD_INIT_SETTINGS);
    delete_named(&bindings, &names.getter).await?;
    delete_named(&roles, &names.getter).await?;
    delete_named(&tokens, &names.getter_token).await?;
    delete_named(&accounts, &names.getter).await
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

/// Deletes the object with this name and uid. What is gone already needs no deletion, and another
/// that took its name is left alone.
pub async fn delete<K>(api: &Api<K>, metadata: &ObjectMeta) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: metadata.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    let name = metadata.name.as_deref().unwrap_or_default();
    match api.delete(name, &params).await {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        deleted => deleted.map(drop),
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

    #[test]
    fn a_foreign_finalizer_is_tested_for_and_kept() {
        let before = ["a.example/b".to_owned(), FINALIZER.to_owned()];
        let patch = without_finalizer(&before);
        let apply = |finalizers: &[String]| {
            let mut object = serde_json::json!({"metadata": {"finalizers": finalizers}});
            json_patch::patch(&mut object, &patch).map(|()| object)
        };
        let after = apply(&before).unwrap();
        assert_eq!(
            after["metadata"]["finalizers"],
            serde_json::json!(["a.example/b"])
        );
        let mut others = before.to_vec();
        others.push("c.example/d".to_owned());
        assert!(
            apply(&others).is_err(),
            "a list that changed meanwhile is not touched"
        );
    }
}
