//! What `osm tenant remove` leaves where it is asked to keep, and how that ends.

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _};
use osm::api::names::{CLAIM, CLOUD_INIT_SETTINGS, FINALIZER};
use serde_json::json;

use crate::administrator::{get, merge};
use crate::commands::Admin;
use crate::stage::Tenant;

/// Only on request do machine deployments keep the finalizer. It is said how that ends.
pub async fn keep((admin, tenant): (&Admin, &Tenant), remove: &[&str]) {
    let kept = [remove, &["--on-removal", "keep"]].concat();
    let kept = admin.osm_in_both(&kept).await;
    assert_eq!(kept.code, Some(0), "{kept:?}");
    for text in [
        "1 machine deployment still has our finalizer, so that deleting one hangs: \
         kube-system/workers",
        "osm tenant remove worker -n ",
        "--on-removal release --worker-kubeconfig FILE` gives the cluster back",
        "the WorkerCluster stay as they are",
    ] {
        assert!(kept.out.contains(text), "{text}: {kept:?}");
    }
    // The manager has no kubeconfig any more.
    let alone = admin.osm(remove).await;
    assert_eq!(alone.code, Some(1), "{alone:?}");
    assert!(alone.err.contains("with --worker-kubeconfig"), "{alone:?}");
    // Meanwhile the cluster may serve another tenant.
    let namespaces: Api<Namespace> = Api::all(tenant.admin.clone());
    let ours = get(&namespaces, CLOUD_INIT_SETTINGS).await;
    let ours = &ours.annotations()[CLAIM];
    let claimed = |by: &str| json!({ "metadata": { "annotations": { CLAIM: by } } });
    merge(&namespaces, CLOUD_INIT_SETTINGS, claimed("another/tenant")).await;
    let refused = admin.osm_in_both(remove).await;
    assert!(
        refused.err.contains("claimed for another tenant"),
        "{refused:?}"
    );
    let held = get(&tenant.machine_deployments(), "workers").await;
    assert!(held.finalizers().contains(&FINALIZER.to_owned()));
    merge(&namespaces, CLOUD_INIT_SETTINGS, claimed(ours)).await;
}
