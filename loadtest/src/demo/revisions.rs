//! Raises the revision of a machine deployment when its template changes, as machine-controller
//! does. In a cluster without machine-controller, an edit of a template would never be served.

use std::collections::HashMap;
use std::pin::pin;

use futures::StreamExt as _;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::cluster::DemoCluster;

/// The annotation that machine-controller keeps.
pub(crate) const REVISION: &str = "machinedeployment.clusters.k8s.io/revision";

/// Keeps the revisions in worker clusters until it is dropped.
///
/// # Errors
///
/// A kubeconfig cannot be used.
pub(super) async fn keep_in(workers: &[DemoCluster]) -> anyhow::Result<JoinSet<()>> {
    let mut keeping = JoinSet::new();
    for worker in workers {
        keeping.spawn(keep(worker.client().await?));
    }
    Ok(keeping)
}

/// Keeps the revisions in a worker cluster until it is dropped. What fails is tried again with the
/// next change, as nobody waits for it.
async fn keep(client: Client) {
    let kind = GroupVersionKind::gvk("cluster.k8s.io", "v1alpha1", "MachineDeployment");
    let resource = ApiResource::from_gvk(&kind);
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let events = watcher(all, watcher::Config::default()).default_backoff();
    let mut events = pin!(events.applied_objects());
    let mut templates = HashMap::new();
    while let Some(event) = events.next().await {
        let Ok(found) = event else { continue };
        let Some(revision) = next(&mut templates, &found) else {
            continue;
        };
        let namespace = found.namespace().unwrap_or_default();
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource);
        let patch = json!({ "metadata": { "annotations": { REVISION: revision.to_string() } } });
        let (name, params) = (found.name_any(), PatchParams::default());
        drop(api.patch(&name, &params, &Patch::Merge(patch)).await);
    }
}

/// Returns the revision that a machine deployment should have, if it has another.
fn next(templates: &mut HashMap<String, Value>, found: &DynamicObject) -> Option<u64> {
    let template = found.data.pointer("/spec/template").cloned();
    let template = template.unwrap_or_default();
    let has_changed = templates
        .insert(found.uid().unwrap_or_default(), template.clone())
        .is_some_and(|before| before != template);
    let annotation = found.annotations().get(REVISION);
    match annotation.and_then(|it| it.parse::<u64>().ok()) {
        None => Some(1),
        Some(revision) => has_changed.then_some(revision + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(revision: Option<&str>, kubelet: &str) -> DynamicObject {
        let annotations = revision.map(|it| json!({ REVISION: it }));
        serde_json::from_value(json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": { "name": "a", "uid": "u", "annotations": annotations },
            "spec": { "template": { "spec": { "versions": { "kubelet": kubelet } } } },
        }))
        .expect("it is well formed")
    }

    #[test]
    fn another_template_is_another_revision() {
        let mut templates = HashMap::new();
        let mut next = |revision, kubelet| next(&mut templates, &found(revision, kubelet));
        assert_eq!(next(None, "1.34.1"), Some(1));
        assert_eq!(next(Some("1"), "1.34.1"), None);
        assert_eq!(next(Some("1"), "1.35.0"), Some(2));
        assert_eq!(next(Some("2"), "1.35.0"), None);
    }
}
