//! KKP's Clusters, and what KKP does when an operator changes one.

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;

/// What KKP calls the Deployment.
const DEPLOYMENT: &str = "operating-system-manager";

/// KKP's definition, without its schema.
pub const DEFINITION: &str = "
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

fn kind() -> ApiResource {
    let kind = GroupVersionKind::gvk("kubermatic.k8c.io", "v1", "Cluster");
    ApiResource::from_gvk_with_plural(&kind, "clusters")
}

pub fn clusters(client: &Client) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &kind())
}

/// A Cluster whose operator has set this number of replicas.
pub fn cluster(id: &str, replicas: Option<i32>) -> DynamicObject {
    let spec = json!({ "spec": { "componentsOverride": {
        "operatingSystemManager": { "replicas": replicas },
    } } });
    DynamicObject::new(id, &kind()).data(spec)
}

/// The number of replicas that its operator has set.
pub fn replicas(cluster: &DynamicObject) -> Option<i64> {
    let field = "/spec/componentsOverride/operatingSystemManager/replicas";
    cluster.data.pointer(field)?.as_i64()
}

/// Scales each Deployment as its Cluster says, which is one replica if it says nothing.
pub async fn follow(client: Client) {
    let changes = watcher(clusters(&client), watcher::Config::default());
    let changes = changes.default_backoff().applied_objects();
    pin_mut!(changes);
    while let Some(change) = changes.next().await {
        let Ok(cluster) = change else { continue };
        let namespace = format!("cluster-{}", cluster.name_any());
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
        let found = deployments.get_opt(DEPLOYMENT).await;
        if found.expect("the server answers").is_some() {
            let scaled = json!({ "spec": { "replicas": replicas(&cluster).unwrap_or(1) } });
            let (parameters, scaled) = (PatchParams::default(), Patch::Merge(scaled));
            let patched = deployments.patch(DEPLOYMENT, &parameters, &scaled).await;
            patched.expect("it is there");
        }
    }
}
