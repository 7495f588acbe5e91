//! Connects commands to clusters. The management cluster's kubeconfig is the user's own, and is
//! read as kubectl reads it. A worker cluster's kubeconfig may be written by its tenant, and may
//! only contain what a registration may: a server and a credential.

mod patience;

use std::{fmt::Debug, path::PathBuf, time::Duration};

use anyhow::{Context as _, anyhow};
use http::Uri;
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    core::v1::Namespace,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams},
    core::DeserializeGuard,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tower::{Layer, retry::RetryLayer, util::BoxCloneSyncService};

use self::patience::Patience;
use crate::api::{names::KUBE_SYSTEM, worker_cluster::WorkerCluster};
use crate::app::{FLEET_REQUESTS, management};
use crate::client::{
    connect::{self, ClientParts},
    pages::{self, Listed},
    transport::{self, Transport},
};
use crate::telemetry::metrics::{ClusterKind, Metrics};
use crate::tenant::{
    access::{AccessRules, ClusterAccess},
    address::Loopback,
    policy::RequestBudget,
    secret_text::SecretBytes,
};

/// The timeout of one call. A person waits for it.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// The user's own kubeconfig, and the context in it.
#[derive(Clone, Debug, Default)]
pub struct KubeconfigSource {
    /// The file; by default the one that kubectl uses.
    pub kubeconfig: Option<PathBuf>,
    /// The context; by default the current one.
    pub context: Option<String>,
}

/// The kubeconfig of a worker cluster, and the context in it.
#[derive(Clone, Debug)]
pub struct WorkerKubeconfigSource {
    /// The file.
    pub kubeconfig: PathBuf,
    /// The context; by default the current one.
    pub context: Option<String>,
    /// The possible author of the file.
    pub author: Author,
}

/// The possible author of a kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// Anyone. Its commands are not run, and no files are read for it.
    Anybody,
    /// The user. Its commands are run and its files are read, as kubectl does.
    ClusterClient,
}

/// A connection to a cluster.
#[derive(Clone)]
pub(super) struct ClusterClient {
    pub(super) client: Client,
    /// The API server.
    pub(super) server: Uri,
    /// The name in the server's certificate, if it is not the server's host.
    pub(super) tls_server_name: Option<String>,
    /// The certificate authority in PEM, if the kubeconfig has one.
    pub(super) certificate_authority: Option<Vec<u8>>,
}

fn patient(transport: Transport) -> Transport {
    let retry = RetryLayer::new(Patience::default());
    BoxCloneSyncService::new(retry.layer(transport))
}

impl ClusterClient {
    /// Connects to the management cluster. Sends no request yet.
    pub(super) async fn management(source: &KubeconfigSource) -> anyhow::Result<Self> {
        Self::management_within(source, FLEET_REQUESTS).await
    }

    /// As [`Self::management`], with a budget of requests.
    pub(super) async fn management_within(
        source: &KubeconfigSource,
        budget: RequestBudget,
    ) -> anyhow::Result<Self> {
        Self::trusted(source, (ClusterKind::Management, budget)).await
    }

    /// Connects to a worker cluster. Sends no request yet.
    pub(super) async fn worker(source: &WorkerKubeconfigSource) -> anyhow::Result<Self> {
        let connected = match source.author {
            Author::Anybody => Self::untrusted(source),
            Author::ClusterClient => {
                let own = KubeconfigSource {
                    kubeconfig: Some(source.kubeconfig.clone()),
                    context: source.context.clone(),
                };
                Self::trusted(&own, (ClusterKind::Worker, FLEET_REQUESTS)).await
            }
        };
        connected.with_context(|| format!("--worker-kubeconfig {}", source.kubeconfig.display()))
    }

    async fn trusted(
        source: &KubeconfigSource,
        (kind, budget): (ClusterKind, RequestBudget),
    ) -> anyhow::Result<Self> {
        let found =
            management::way_in(source.kubeconfig.as_deref(), source.context.as_deref()).await?;
        let agent = transport::user_agent("command");
        let bounds = transport::Patience::of(CALL_TIMEOUT);
        let transport = patient(management::transport(&found.config, agent, bounds)?);
        Ok(Self {
            client: client(transport, budget, (kind, Metrics::new())),
            server: found.config.cluster_url,
            tls_server_name: found.config.tls_server_name,
            certificate_authority: found.certificate_authority,
        })
    }

    fn untrusted(source: &WorkerKubeconfigSource) -> anyhow::Result<Self> {
        let bytes = SecretBytes::new(std::fs::read(&source.kubeconfig).context("cannot read it")?);
        let mut rules = AccessRules::default();
        // The user's machine connects, and worker clusters for development run on it.
        rules.addresses.loopback = Loopback::Allowed;
        let access =
            ClusterAccess::parse_context(bytes.expose(), source.context.as_deref(), &rules)
                .context(
                    "only server, certificate authority, and token or client certificate are taken \
                 from it, each inline: write files into it by kubectl config view --raw --flatten \
                 --minify, or trust it as kubectl does by --allow-exec if you wrote it yourself",
                )?;
        let metrics = Metrics::new();
        let transport = patient(as_the_manager_dials(&access, &rules, &metrics)?);
        Ok(Self {
            client: client(transport, FLEET_REQUESTS, (ClusterKind::Worker, metrics)),
            server: access.server.url().parse()?,
            tls_server_name: access.tls_server_name,
            certificate_authority: Some(access.certificate_authority),
        })
    }

    /// Returns the uid of kube-system, which identifies a cluster.
    pub(super) async fn cluster_uid(&self) -> anyhow::Result<String> {
        cluster_uid(&self.client)
            .await
            .with_context(|| format!("{} does not tell who it is", self.server))
    }
}

/// Returns a client that connects by the rules, and with the transport, that the manager uses.
pub(super) fn as_the_manager(
    access: &ClusterAccess,
    rules: &AccessRules,
) -> anyhow::Result<Client> {
    let metrics = Metrics::new();
    let transport = as_the_manager_dials(access, rules, &metrics)?;
    let counted = (ClusterKind::Worker, metrics);
    Ok(client(transport, FLEET_REQUESTS, counted))
}

fn as_the_manager_dials(
    access: &ClusterAccess,
    rules: &AccessRules,
    metrics: &Metrics,
) -> anyhow::Result<Transport> {
    let caller = transport::Caller {
        user_agent: transport::user_agent("command"),
        audience: transport::Audience::Operator,
        metrics: metrics.clone(),
    };
    let patience = transport::Patience::of(CALL_TIMEOUT);
    transport::connect(access, rules, &caller, patience).map_err(|error| anyhow!(error))
}

fn client(transport: Transport, budget: RequestBudget, counted: (ClusterKind, Metrics)) -> Client {
    connect::client(ClientParts::new(transport, budget, CALL_TIMEOUT, counted))
}

/// Returns the uid of kube-system, which identifies a cluster.
pub(super) async fn cluster_uid(client: &Client) -> Result<String, kube::Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let found = namespaces.get_metadata(KUBE_SYSTEM).await?;
    Ok(found.uid().unwrap_or_default())
}

/// A verb on a kind of object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Permission<'a> {
    pub(super) verb: &'a str,
    pub(super) group: &'a str,
    pub(super) resource: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

/// Returns true if the user has the permission.
pub(super) async fn can_i(client: &Client, permission: &Permission<'_>) -> anyhow::Result<bool> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = reviews
        .create(&PostParams::default(), &review(permission))
        .await;
    let answer = answer.context("cannot ask what the kubeconfig may do")?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Returns the review that asks whether the current user may do this.
pub(super) fn review(permission: &Permission<'_>) -> SelfSubjectAccessReview {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let (resource, subresource) = permission
        .resource
        .split_once('/')
        .unwrap_or((permission.resource, ""));
    SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: text(permission.verb),
                group: text(permission.group),
                resource: text(resource),
                subresource: text(subresource),
                namespace: text(permission.namespace),
                name: text(permission.name),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    }
}

/// Returns the kind of a document as a resource of the API.
pub(super) fn kind_of(document: &Value) -> Option<ApiResource> {
    let text = |key: &str| document.get(key).and_then(Value::as_str);
    let (group, version) = match text("apiVersion")?.split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", text("apiVersion")?),
    };
    let kind = GroupVersionKind::gvk(group, version, text("kind")?);
    Some(ApiResource::from_gvk(&kind))
}

/// Returns a field of a document's metadata, or an empty string.
pub(super) fn metadata<'a>(document: &'a Value, field: &str) -> &'a str {
    let found = document.pointer(&format!("/metadata/{field}"));
    found.and_then(Value::as_str).unwrap_or_default()
}

/// Returns the API for the object in a document.
pub(super) fn api_of(client: &Client, document: &Value) -> anyhow::Result<Api<DynamicObject>> {
    let resource = kind_of(document).context("a manifest has no kind")?;
    let namespace = metadata(document, "namespace");
    Ok(if namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    })
}

/// Lists objects of a kind that this program defines.
///
/// # Errors
///
/// Returns an error if the list cannot be read. A missing CRD has its own message.
pub(super) async fn list_own<K>(
    api: &Api<DeserializeGuard<K>>,
    params: ListParams,
) -> anyhow::Result<Listed<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug,
{
    let listed = pages::all(api, params).await;
    listed.map_err(cannot_list::<K>)
}

/// Returns the error of a list of a kind that this program defines.
pub(super) fn cannot_list<K: Resource<DynamicType = ()>>(error: kube::Error) -> anyhow::Error {
    let what = format!("{}s", K::kind(&()));
    if pages::is_not_served(&error) {
        return anyhow!(
            "the cluster does not serve {what}: install the custom resource definitions \
             (osm crds | kubectl apply --server-side -f -), or choose another --context"
        );
    }
    anyhow::Error::new(error).context(format!("cannot list {what}"))
}

/// Refuses a namespace that does not exist. Called only if a list in it was empty. If the user may
/// not read namespaces, the namespace is assumed to exist.
///
/// # Errors
///
/// Returns an error if the namespace does not exist.
pub(super) async fn ensure_namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match namespaces.get_metadata_opt(name).await {
        Ok(None) => anyhow::bail!(
            "there is no namespace {name} in the management cluster; osm tenants lists the \
             namespaces of tenants"
        ),
        _ => Ok(()),
    }
}

/// Returns the WorkerCluster of a registration.
pub(super) async fn worker_cluster(
    client: &Client,
    namespace: &str,
    name: &str,
) -> anyhow::Result<WorkerCluster> {
    let all = worker_clusters(client, namespace).await?;
    let mut all = all.into_iter();
    let own = all.find(|it| it.spec.kubeconfig_secret_ref.name == name);
    own.with_context(|| {
        format!(
            "namespace {namespace} has no WorkerCluster of registration {name}; osm tenants lists \
             those that there are, and --namespace says where it is"
        )
    })
}

/// Returns the WorkerClusters of a namespace.
pub(super) async fn worker_clusters(
    client: &Client,
    namespace: &str,
) -> anyhow::Result<Vec<WorkerCluster>> {
    let api: Api<DeserializeGuard<WorkerCluster>> = Api::namespaced(client.clone(), namespace);
    match list_own(&api, ListParams::default()).await {
        Ok(list) => match list.unreadable.first() {
            None => Ok(list.objects),
            Some(unreadable) => anyhow::bail!(
                "WorkerCluster {namespace}/{} cannot be read by this version of osm: correct it \
                 (osm crds has its schema), or use the version that wrote it",
                unreadable.name.as_deref().unwrap_or_default()
            ),
        },
        Err(error) => Err(error).with_context(|| format!("namespace {namespace}")),
    }
}
