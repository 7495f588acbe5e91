//! What the clusters of a KKP seed need to be served from here: for each Deployment of an
//! operating-system-manager, a WorkerCluster with the same settings.

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, ResourceExt, api::ListParams, core::DeserializeGuard};

use super::cluster_client::{ClusterClient, KubeconfigSource};
use crate::api::worker_cluster::{
    DefaultProfiles, Home, ProfileAnnotation, SecretReference, WorkerCluster, WorkerClusterSpec,
};
use crate::client::pages;
use crate::settings::drop_in::{DefaultProfileInstallation, DropInSettings, deployed::settings_of};
use crate::telemetry::chain::chain;
use crate::tenant::mode::NamespacedName;

/// What KKP calls the Deployment.
const DEPLOYMENT: &str = "operating-system-manager";
/// What KKP calls the Secret with its kubeconfig, in the same namespace.
pub const SECRET: &str = "operatingsystemmanager-kubeconfig";
/// What the namespaces of user clusters begin with.
const PREFIX: &str = "cluster-";

/// A user cluster.
#[derive(Debug)]
pub struct UserCluster {
    /// KKP's name of it.
    pub id: String,
    /// The replicas of its manager.
    pub replicas: i32,
    /// The settings of its manager, or why they cannot be used.
    pub found: Result<Found, String>,
}

/// What the command line of a manager says.
#[derive(Debug)]
pub struct Found {
    /// The WorkerCluster.
    pub worker_cluster: WorkerCluster,
    /// The Secret with registry credentials, in the user cluster.
    pub registry_credentials: Option<NamespacedName>,
}

impl UserCluster {
    /// Returns its namespace in the seed.
    pub fn namespace(&self) -> String {
        format!("{PREFIX}{}", self.id)
    }
}

/// Returns the user clusters of a seed: these, or all.
///
/// # Errors
///
/// The Deployments cannot be listed, or one of these clusters has none.
pub async fn user_clusters(
    source: &KubeconfigSource,
    ids: &[String],
) -> anyhow::Result<Vec<UserCluster>> {
    let seed = ClusterClient::management(source).await?;
    let all: Api<DeserializeGuard<Deployment>> = Api::all(seed.client.clone());
    let params = ListParams::default().fields(&format!("metadata.name={DEPLOYMENT}"));
    let listed = pages::all(&all, params).await;
    let listed = listed.context("cannot list Deployments")?;
    let readable = listed.objects.iter().filter_map(user_cluster);
    let unreadable = listed.unreadable.iter().filter_map(|metadata| {
        let id = metadata.namespace.as_deref()?.strip_prefix(PREFIX)?;
        Some(UserCluster {
            id: id.to_owned(),
            replicas: 0,
            found: Err("its Deployment cannot be decoded".to_owned()),
        })
    });
    let mut clusters: Vec<UserCluster> = readable.chain(unreadable).collect();
    clusters.retain(|it| ids.is_empty() || ids.contains(&it.id));
    for id in ids {
        let is_there = clusters.iter().any(|it| it.id == *id);
        anyhow::ensure!(
            is_there,
            "namespace {PREFIX}{id} has no Deployment {DEPLOYMENT}"
        );
    }
    clusters.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(clusters)
}

fn user_cluster(deployment: &Deployment) -> Option<UserCluster> {
    let namespace = deployment.namespace()?;
    let id = namespace.strip_prefix(PREFIX)?.to_owned();
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    let found = settings_of(deployment).map_err(|error| chain(&error).to_string());
    Some(UserCluster {
        // Kubernetes' default.
        replicas: replicas.unwrap_or(1),
        found: found.map(|settings| found_for((&id, &namespace), settings)),
        id,
    })
}

fn found_for((id, namespace): (&str, &str), settings: DropInSettings) -> Found {
    let registry_credentials = settings.registry_credentials.clone();
    let mut worker_cluster = WorkerCluster::new(id, spec(settings));
    worker_cluster.metadata.namespace = Some(namespace.to_owned());
    Found {
        worker_cluster,
        registry_credentials,
    }
}

/// Returns the spec with which the same documents are made, whatever the fleet's defaults are.
fn spec(settings: DropInSettings) -> WorkerClusterSpec {
    let DropInSettings {
        tenant,
        registry_credentials,
        default_profiles,
        ..
    } = settings;
    WorkerClusterSpec {
        kubeconfig_secret_ref: SecretReference {
            name: SECRET.to_owned(),
        },
        home: Home::Worker,
        default_profiles: match default_profiles {
            DefaultProfileInstallation::Kept => DefaultProfiles::Keep,
            DefaultProfileInstallation::Disabled => DefaultProfiles::Disabled,
        },
        profile_annotation: ProfileAnnotation::RequireAnnotation,
        cluster_dns: Some(tenant.cluster_dns.iter().map(ToString::to_string).collect()),
        external_cloud_provider: Some(tenant.external_cloud_provider),
        http_proxy: Some(tenant.http_proxy.unwrap_or_default()),
        no_proxy: Some(tenant.no_proxy.unwrap_or_default()),
        host_ca_bundle: Some(tenant.host_ca_bundle),
        kubernetes_ca_bundle: Some(tenant.kubernetes_ca_bundle.unwrap_or_default()),
        pause_image: Some(tenant.pause_image),
        initial_taints: Some(tenant.initial_taints),
        kubelet_feature_gates: Some(tenant.kubelet_feature_gates),
        device_ownership_from_security_context: Some(tenant.device_ownership_from_security_context),
        insecure_registries: Some(tenant.insecure_registries),
        registry_mirrors: Some(tenant.registry_mirrors),
        registry_credentials_secret_ref: registry_credentials
            .map(|named| SecretReference { name: named.name }),
        api_server_override: Some(tenant.api_server_override.unwrap_or_default()),
        node_credentials: Some(tenant.node_credentials),
        stored_config: Some(tenant.stored_config),
        ..WorkerClusterSpec::default()
    }
}
