//! The registration in the management cluster: checks for conflicts, and its objects.

use anyhow::{Context as _, bail, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::{Value, json};

use super::{Params, Rights, TenantAddition, labels};
use crate::api::{
    names::{CLAIM, CLOUD_INIT_SETTINGS, KUBECONFIG_KEY, WORKER_CLUSTER_LABEL},
    worker_cluster::{Credentials, Home, NodeCredentials, WorkerCluster},
};
use crate::commands::cluster_client;
use crate::tenant::secret_text::SecretText;

/// The existing objects of the tenant.
pub(super) struct Own {
    /// The WorkerCluster's name.
    pub(super) name: String,
    /// True if the namespace exists.
    has_namespace: bool,
    /// True if this tenant already holds the claim on the worker cluster.
    pub(super) has_claim: bool,
    /// The node credentials that the WorkerCluster specifies.
    node_credentials: Option<NodeCredentials>,
    /// How the manager gets its credential.
    credentials: Credentials,
}

impl Own {
    /// Returns the rights to grant: those requested now, and those that the WorkerCluster requires.
    pub(super) fn rights(&self, asked: &[Rights]) -> Vec<Rights> {
        let mut rights = asked.to_vec();
        let is_asked = rights.contains(&Rights::NodeCredentials);
        if !is_asked && self.node_credentials == Some(NodeCredentials::PerMachineDeployment) {
            rights.push(Rights::NodeCredentials);
        }
        rights
    }

    /// Returns how the manager gets its credential: as requested now, or as before.
    pub(super) fn credentials(&self, asked: Option<Credentials>) -> Credentials {
        asked.unwrap_or(self.credentials)
    }
}

/// Refuses a name, a namespace or a worker cluster that belongs to another tenant.
pub(super) async fn check(addition: &TenantAddition) -> anyhow::Result<Own> {
    let Params {
        name, namespace, ..
    } = &addition.params;
    let management = &addition.management.client;
    let all = cluster_client::worker_clusters(management, namespace).await?;
    let own = all
        .iter()
        .find(|it| it.spec.kubeconfig_secret_ref.name == *name);
    if let Some(own) = own {
        ensure!(
            own.spec.home == Home::Management,
            "WorkerCluster {namespace}/{} has spec.home: Worker; this command registers no such \
             cluster: create the Secret by hand, with the kubeconfig of the manager that the \
             cluster has (docs/adopt.md)",
            own.name_any()
        );
        refuse_another_cluster(addition, own)?;
    }
    let by_name = all.iter().find(|it| it.name_any() == *name);
    if let (None, Some(other)) = (own, by_name) {
        bail!(
            "WorkerCluster {namespace}/{name} is about Secret {}; choose another name",
            other.spec.kubeconfig_secret_ref.name
        );
    }
    refuse_another_registration(addition).await?;
    let has_claim = refuse_claimed(addition).await?;
    let namespaces: Api<Namespace> = Api::all(management.clone());
    let found = namespaces.get_metadata_opt(namespace).await;
    let found = found.with_context(|| format!("cannot look for namespace {namespace}"))?;
    Ok(Own {
        name: own.map_or_else(|| name.clone(), ResourceExt::name_any),
        has_namespace: found.is_some(),
        has_claim,
        node_credentials: own.and_then(|own| own.spec.node_credentials),
        credentials: own.map(|own| own.spec.credentials).unwrap_or_default(),
    })
}

fn refuse_another_cluster(addition: &TenantAddition, own: &WorkerCluster) -> anyhow::Result<()> {
    let known = own.status.as_ref().and_then(|it| it.cluster_uid.as_ref());
    let found = &addition.worker_uid;
    let is_confirmed = own.spec.confirmed_cluster_uid.as_ref() == Some(found);
    ensure!(
        known.is_none_or(|known| known == found) || is_confirmed,
        "{}/{} is another worker cluster: WorkerCluster {} has status.clusterUid {}, and \
         --worker-kubeconfig leads to {found}; choose another name, or set \
         spec.confirmedClusterUid to it if the cluster was rebuilt",
        addition.params.namespace,
        addition.params.name,
        own.name_any(),
        known.map_or("", String::as_str)
    );
    Ok(())
}

/// Refuses a second registration. A namespace is one tenant, and a tenant has one worker cluster.
async fn refuse_another_registration(addition: &TenantAddition) -> anyhow::Result<()> {
    let Params {
        name, namespace, ..
    } = &addition.params;
    let secrets: Api<Secret> = Api::namespaced(addition.management.client.clone(), namespace);
    let selector = ListParams::default().labels(WORKER_CLUSTER_LABEL);
    let found = secrets.list_metadata(&selector).await;
    let found = found.with_context(|| format!("cannot list the registrations of {namespace}"))?;
    if let Some(other) = found.items.iter().find(|it| it.name_any() != *name) {
        bail!(
            "namespace {namespace} is the tenant of registration {}; a tenant has one worker \
             cluster: choose another --namespace",
            other.name_any()
        );
    }
    let same = secrets.get_metadata_opt(name).await;
    let same = same.with_context(|| format!("cannot look for Secret {namespace}/{name}"))?;
    let is_foreign = |found: &kube::api::PartialObjectMeta<Secret>| {
        !found.labels().contains_key(WORKER_CLUSTER_LABEL)
    };
    ensure!(
        !same.as_ref().is_some_and(is_foreign),
        "Secret {namespace}/{name} is there, and is no registration (it has no label \
         {WORKER_CLUSTER_LABEL}); choose another name"
    );
    Ok(())
}

/// Refuses a worker cluster that another tenant has claimed. Returns true if this tenant has
/// claimed it.
async fn refuse_claimed(addition: &TenantAddition) -> anyhow::Result<bool> {
    let namespaces: Api<Namespace> = Api::all(addition.worker.client.clone());
    let found = namespaces.get_metadata_opt(CLOUD_INIT_SETTINGS).await;
    let found = found.context("cannot read namespace cloud-init-settings of the worker cluster")?;
    let Some(holder) = found.and_then(|it| it.annotations().get(CLAIM).cloned()) else {
        return Ok(false);
    };
    let (management, tenant) = holder.split_once('/').unwrap_or((&holder, ""));
    if management == addition.management_uid {
        if tenant == addition.params.namespace {
            return Ok(true);
        }
        let secrets: Api<Secret> = Api::namespaced(addition.management.client.clone(), tenant);
        let selector = ListParams::default().labels(WORKER_CLUSTER_LABEL).limit(1);
        let held = secrets.list_metadata(&selector).await;
        let held = held.with_context(|| format!("cannot list the registrations of {tenant}"))?;
        if held.items.is_empty() {
            return Ok(false);
        }
        bail!(
            "the worker cluster is tenant {tenant} of this management cluster; remove that one \
             first: osm tenant remove {} --namespace {tenant}",
            held.items
                .first()
                .map(ResourceExt::name_any)
                .unwrap_or_default()
        );
    }
    bail!(
        "the worker cluster is tenant {tenant} of another management cluster (uid {management}); \
         remove it there first; if that cluster is gone for good, start osm run with \
         --former-management-cluster={management}, or take the annotation {CLAIM} off its \
         namespace {CLOUD_INIT_SETTINGS}"
    );
}

/// Returns the namespace if it does not exist, the WorkerCluster, and then the registration.
pub(super) fn documents(
    addition: &TenantAddition,
    own: &Own,
    kubeconfig: &SecretText,
) -> Vec<Value> {
    let params = &addition.params;
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": params.namespace },
    });
    let mut documents = vec![
        worker_cluster(params, own),
        secret(params, kubeconfig.expose()),
    ];
    if !own.has_namespace {
        documents.insert(0, namespace);
    }
    documents
}

/// Returns the registration.
fn secret(params: &Params, kubeconfig: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {
            "name": params.name, "namespace": params.namespace, "labels": labels(params),
        },
        "data": { KUBECONFIG_KEY: STANDARD.encode(kubeconfig) },
    })
}

/// Returns the WorkerCluster with the settings from the flags. Previous settings are kept.
fn worker_cluster(params: &Params, own: &Own) -> Value {
    let mut spec = json!({ "kubeconfigSecretRef": { "name": params.name } });
    let asked = params.rights.contains(&Rights::NodeCredentials);
    let node_credentials = match own.node_credentials {
        _ if asked => Some(NodeCredentials::PerMachineDeployment),
        before => before,
    };
    if let (Some(node_credentials), Some(fields)) = (node_credentials, spec.as_object_mut()) {
        fields.insert("nodeCredentials".to_owned(), json!(node_credentials));
    }
    let credentials = own.credentials(params.credentials);
    if let (true, Some(fields)) = (
        credentials != Credentials::AsRegistered,
        spec.as_object_mut(),
    ) {
        fields.insert("credentials".to_owned(), json!(credentials));
    }
    json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "WorkerCluster",
        "metadata": { "name": own.name, "namespace": params.namespace }, "spec": spec,
    })
}
