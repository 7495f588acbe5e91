//! KKP's Clusters, and what KKP does when an operator changes one.

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinSet;

use crate::suite::administrator::{create, find, get, merge};
use crate::suite::server::Server;

/// What KKP calls the Deployment.
pub const DEPLOYMENT: &str = "operating-system-manager";

/// KKP's definition, without its schema.
const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusters.kubermatic.k8c.io}
spec:
  group: kubermatic.k8c.io
  scope: Cluster
  names: {kind: Cluster, listKind: ClusterList, plural: clusters, singular: cluster}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
";

/// KKP in a seed.
pub struct Kkp {
    api: Api<DynamicObject>,
    _task: JoinSet<()>,
}

impl Kkp {
    pub async fn start(seed: &Server) -> Self {
        seed.apply(DEFINITION).await;
        let client = seed.admin().await;
        let api = clusters(&client);
        let mut task = JoinSet::new();
        task.spawn(follow(client, api.clone()));
        Self { api, _task: task }
    }

    /// Creates a user cluster whose manager has this number of replicas.
    pub async fn has(&self, id: &str, replicas: i32) {
        let kind = kind();
        let spec = json!({ "spec": { "componentsOverride": {
            "operatingSystemManager": { "replicas": replicas },
        } } });
        create(&self.api, &DynamicObject::new(id, &kind).data(spec)).await;
    }

    /// The number of replicas that its operator has set.
    pub async fn replicas(&self, id: &str) -> Option<i64> {
        replicas(&get(&self.api, id).await)
    }
}

fn kind() -> ApiResource {
    let kind = GroupVersionKind::gvk("kubermatic.k8c.io", "v1", "Cluster");
    ApiResource::from_gvk_with_plural(&kind, "clusters")
}

fn clusters(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &kind())
}

fn replicas(cluster: &DynamicObject) -> Option<i64> {
    let field = "/spec/componentsOverride/operatingSystemManager/replicas";
    cluster.data.pointer(field)?.as_i64()
}

/// Scales each Deployment as its Cluster says, which is one replica if it says nothing.
async fn follow(client: Client, clusters: Api<DynamicObject>) {
    let changes = watcher(clusters, watcher::Config::default());
    let changes = changes.default_backoff().applied_objects();
    pin_mut!(changes);
    while let Some(change) = changes.next().await {
        let Ok(cluster) = change else { continue };
        let namespace = format!("cluster-{}", cluster.name_any());
        let api: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
        let wanted = replicas(&cluster).unwrap_or(1);
        if find(&api, DEPLOYMENT).await.is_some() {
            let patch = json!({ "spec": { "replicas": wanted } });
            merge(&api, DEPLOYMENT, patch).await;
        }
    }
}
