//! The tenants that a command is about.

use std::fmt::Debug;

use anyhow::bail;
use k8s_openapi::{NamespaceResourceScope, api::core::v1::Secret};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, ObjectMeta},
    core::DeserializeGuard,
};

use super::cluster_client::{ClusterClient, KubeconfigSource, ensure_namespace, list_own};
use crate::api::worker_cluster::WorkerCluster;
use crate::client::pages::Listed;

/// The tenants that a command is about. By default all of them.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Their namespaces. If empty, all.
    pub namespaces: Vec<String>,
    /// The label selector of their WorkerClusters.
    pub labels: Option<String>,
    /// True if the namespaces are those that the manager watches, some of which may have no tenant
    /// yet.
    pub is_watched: bool,
    /// The namespaces that the manager does not watch.
    pub except: Vec<String>,
}

impl Selection {
    /// Returns true if it is all tenants.
    pub(super) fn is_all(&self) -> bool {
        self.namespaces.is_empty() && self.labels.is_none()
    }

    /// Returns true if the tenant in a namespace is not among them, wherever it was read.
    pub(super) fn excepts(&self, namespace: Option<&String>) -> bool {
        namespace.is_some_and(|namespace| self.except.contains(namespace))
    }

    /// Returns the APIs to read, each with the namespace that it is limited to.
    pub(super) fn apis<K>(&self, client: &Client) -> Vec<(Option<String>, Api<DeserializeGuard<K>>)>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + 'static,
    {
        if self.namespaces.is_empty() {
            return vec![(None, Api::all(client.clone()))];
        }
        let namespaces = self.namespaces.iter();
        let api = |namespace: &String| Api::namespaced(client.clone(), namespace);
        namespaces.map(|it| (Some(it.clone()), api(it))).collect()
    }

    /// Returns the parameters that select their WorkerClusters.
    pub(super) fn params(&self) -> ListParams {
        ListParams {
            label_selector: self.labels.clone(),
            ..ListParams::default()
        }
    }

    /// Lists their WorkerClusters.
    ///
    /// # Errors
    ///
    /// Returns an error if they cannot be listed, or if a namespace does not exist.
    pub(super) async fn worker_clusters(
        &self,
        client: &Client,
    ) -> anyhow::Result<Listed<WorkerCluster>> {
        let mut all = Listed {
            objects: Vec::new(),
            unreadable: Vec::new(),
            version: String::new(),
        };
        for (namespace, api) in self.apis(client) {
            let listed = list_own(&api, self.params()).await?;
            let is_missing = listed.is_empty() && !self.is_watched;
            if let (Some(namespace), true) = (namespace, is_missing) {
                ensure_namespace(client, &namespace).await?;
            }
            let objects = listed.objects.into_iter();
            let is_one = |own: &WorkerCluster| !self.excepts(own.metadata.namespace.as_ref());
            all.objects.extend(objects.filter(is_one));
            let unreadable = listed.unreadable.into_iter();
            let is_one = |it: &ObjectMeta| !self.excepts(it.namespace.as_ref());
            all.unreadable.extend(unreadable.filter(is_one));
        }
        Ok(all)
    }
}

/// Returns the namespace and the name of a WorkerCluster's registration.
pub(super) fn registration_of(own: &WorkerCluster) -> (Option<String>, String) {
    let name = own.spec.kubeconfig_secret_ref.name.clone();
    (own.namespace(), name)
}

/// Returns the namespace and the name of each registration that has a WorkerCluster.
///
/// # Errors
///
/// The WorkerClusters cannot be listed, or one of them cannot be decoded.
pub async fn registrations(
    source: &KubeconfigSource,
    selection: &Selection,
) -> anyhow::Result<Vec<(String, String)>> {
    let client = ClusterClient::management(source).await?.client;
    let listed = selection.worker_clusters(&client).await?;
    if let Some(unreadable) = listed.unreadable.first() {
        bail!(
            "WorkerCluster {}/{} cannot be decoded: use the version of osm that wrote it",
            unreadable.namespace.as_deref().unwrap_or_default(),
            unreadable.name.as_deref().unwrap_or_default()
        );
    }
    let names = listed.objects.iter().map(registration_of);
    let names = names.map(|(namespace, name)| (namespace.unwrap_or_default(), name));
    Ok(names.collect())
}

/// Returns a Secret that consists of metadata only, in place of one that cannot be decoded.
pub(super) fn bare_secret(metadata: ObjectMeta) -> Secret {
    Secret {
        metadata,
        ..Secret::default()
    }
}
