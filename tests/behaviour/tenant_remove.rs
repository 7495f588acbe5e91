//! What `osm tenant remove` leaves where it is asked to keep, and how that ends; and how tenants
//! are removed that no manager serves any more.

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _};
use osm::api::names::{CLAIM, CLOUD_INIT_SETTINGS, FINALIZER};
use serde_json::json;

use crate::administrator::{get, list, merge};
use crate::commands::Admin;
use crate::fixtures::a_machine_deployment;
use crate::process::Manager;
use crate::stage::{Stage, Tenant};
use crate::wait;
use crate::world::{IN_WORKER, World};

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

/// The page's commands, after somebody has uninstalled the manager first.
pub async fn tenants_of_a_manager_that_is_gone_are_removed_with_their_own_kubeconfigs(
    world: &'static World,
) {
    let page = include_str!("../../docs/uninstall.md");
    let stage = Stage::open(world, "uninstall");
    let [berlin, lisbon, oslo] = stage.tenants(["berlin", "lisbon", "oslo"]).await;
    let manager = Manager::start(&stage, &[]).await;
    for tenant in [&berlin, &lisbon, &oslo] {
        tenant.register().await;
        drop(tenant.serve(&a_machine_deployment("workers")).await);
        tenant.is_current("workers").await;
    }
    manager.stop().await;
    nothing_is_changed_in_another_cluster(&berlin, &lisbon).await;
    what_is_claimed_for_another_stays(&oslo).await;
    for tenant in &[berlin, lisbon] {
        let admin = Admin::of(tenant);
        let osm = async |line: &str| {
            assert!(page.lines().any(|it| it == line), "the page has {line}");
            let words: Vec<&str> = line.split(' ').skip(1).collect();
            // The clusters have tenants of other scenarios.
            admin
                .osm(&[&words[..], &["-n", &tenant.namespace]].concat())
                .await
        };
        let dry = osm("osm tenant remove --all --dry-run").await;
        assert_eq!(dry.code, Some(0), "{dry:?}");
        let why = "no replica of fleet uninstall has renewed its Lease";
        assert!(dry.out.contains(why), "{dry:?}");
        assert_eq!(list(&tenant.registrations()).await.len(), 1, "{dry:?}");
        let removed = osm("osm tenant remove --all --yes").await;
        assert_eq!(removed.code, Some(0), "{removed:?}");
        assert!(
            removed.out.contains("machine deployment was released"),
            "{removed:?}"
        );

        assert!(list(&tenant.registrations()).await.is_empty());
        assert!(list(&tenant.worker_clusters()).await.is_empty());
        let workers = get(&tenant.machine_deployments(), "workers").await;
        assert!(!workers.finalizers().contains(&FINALIZER.to_owned()));
        let namespaces: Api<Namespace> = Api::all(tenant.admin.clone());
        let there = get(&namespaces, CLOUD_INIT_SETTINGS).await;
        assert!(!there.annotations().contains_key(CLAIM));
        assert!(
            !list(&tenant.secrets()).await.is_empty(),
            "machines can still join"
        );
        tenant.delete("workers").await;
        wait::for_absence(&tenant.machine_deployments(), "workers").await;
    }
}

/// Somebody else serves it by now, and what has our finalizer there is theirs.
async fn what_is_claimed_for_another_stays(tenant: &Tenant) {
    let namespaces: Api<Namespace> = Api::all(tenant.admin.clone());
    let claimed = json!({ "metadata": { "annotations": { CLAIM: "another/tenant" } } });
    merge(&namespaces, CLOUD_INIT_SETTINGS, claimed).await;
    let remove = [
        "tenant",
        "remove",
        "--all",
        "--yes",
        "-n",
        &tenant.namespace,
    ];
    let removed = Admin::of(tenant).osm(&remove).await;
    assert_eq!(removed.code, Some(0), "{removed:?}");
    let stays = "it is not claimed for this tenant, and stays as it is";
    assert!(removed.out.contains(stays), "{removed:?}");
    let workers = get(&tenant.machine_deployments(), "workers").await;
    assert!(workers.finalizers().contains(&FINALIZER.to_owned()));
    assert!(list(&tenant.registrations()).await.is_empty());
}

/// Somebody has put the kubeconfig of another cluster into a registration.
async fn nothing_is_changed_in_another_cluster(berlin: &Tenant, lisbon: &Tenant) {
    let remove = [
        "tenant",
        "remove",
        "--all",
        "--yes",
        "-n",
        &berlin.namespace,
    ];
    let right = berlin.worker.kubeconfig(IN_WORKER).await;
    let wrong = lisbon.worker.kubeconfig(IN_WORKER).await;
    berlin.set_kubeconfig(&wrong).await;
    let refused = Admin::of(berlin).osm(&remove).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.err.contains("leads to another cluster"),
        "{refused:?}"
    );
    berlin.set_kubeconfig(&right).await;
    for tenant in [berlin, lisbon] {
        assert_eq!(list(&tenant.registrations()).await.len(), 1);
        let workers = get(&tenant.machine_deployments(), "workers").await;
        assert!(workers.finalizers().contains(&FINALIZER.to_owned()));
    }
}
