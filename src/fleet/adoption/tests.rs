//! Tests of what is read in a worker cluster, and what is reported about it.

use fake_cluster::{Cluster, Options, User, object};
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use super::*;

fn noon() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn put(cluster: &Cluster, object: Value) {
    cluster.put_raw(object).unwrap();
}

fn a_cluster() -> Cluster {
    let cluster = Cluster::new(Options {
        started_at: noon(),
        ..Options::default()
    });
    let definition = include_str!("../../../tenants-example/worker-crds/machinedeployments.yaml");
    cluster.apply_yaml(definition).unwrap();
    cluster
}

fn with_profiles() -> Cluster {
    let cluster = a_cluster();
    let definition = include_str!("../../../manifests/crds/operatingsystemprofiles.yaml");
    cluster.apply_yaml(definition).unwrap();
    cluster
}

fn a_lease(name: &str, renewed: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": KUBE_SYSTEM},
        "spec": {
            "holderIdentity": "pod_1", "leaseDurationSeconds": 15,
            "renewTime": format!("2026-01-01T{renewed}.000000Z"),
        },
    })
}

async fn look_at(cluster: &Cluster) -> Result<Predecessor, Obstacle> {
    find_predecessor(&cluster.client(), &Clock::tokio(noon())).await
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_nobody_served_costs_two_reads() {
    let cluster = a_cluster();
    cluster.clear_audit();
    assert_eq!(look_at(&cluster).await.unwrap(), Predecessor::None);
    assert_eq!(cluster.audit().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_renews_its_lease_is_reported_with_its_name() {
    for (lease, layout) in [
        (LEASE, Predecessor::InWorker),
        (WORKER_LEASE, Predecessor::InManagement),
    ] {
        let cluster = with_profiles();
        put(&cluster, a_lease(lease, "11:59:55"));
        cluster.clear_audit();
        let obstacle = look_at(&cluster).await.unwrap_err();
        assert_eq!(obstacle.reason(), "UpstreamRunning");
        let text = obstacle.to_string();
        assert!(text.contains("pod_1") && text.contains(lease), "{text}");
        assert_eq!(cluster.writes().len(), 0);
        put(&cluster, a_lease(lease, "11:00:00"));
        assert_eq!(look_at(&cluster).await.unwrap(), layout);
    }
}

#[tokio::test(start_paused = true)]
async fn webhooks_that_would_refuse_writes_are_reported_with_the_command_that_removes_them() {
    let cluster = with_profiles();
    let webhook = |policy: &str, path: &str| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration", "metadata": {"name": "left"},
            "webhooks": [{
                "name": "a.b.c", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": policy,
                "clientConfig": {"url": format!("https://webhook.seed:443{path}")},
            }],
        })
    };
    let its = "/mutate-v1alpha1-machinedeployment";
    put(&cluster, webhook("Fail", its));
    let obstacle = look_at(&cluster).await.unwrap_err();
    assert_eq!(obstacle.reason(), "LeftoverWebhooks");
    let text = obstacle.to_string();
    assert!(
        text.contains("kubectl delete mutatingwebhookconfiguration left"),
        "{text}"
    );
    for (policy, path) in [("Ignore", its), ("Fail", "/machinedeployments")] {
        put(&cluster, webhook(policy, path));
        assert_eq!(
            look_at(&cluster).await.unwrap(),
            Predecessor::InWorker,
            "{path}"
        );
    }
}

fn restricted(cluster: &Cluster) -> Client {
    let roles = include_str!("../../../manifests/rbac/worker.yaml");
    cluster.apply_yaml(roles).unwrap();
    let user = User::service_account(KUBE_SYSTEM, "operating-system-manager");
    cluster.front_as(&user).client()
}

#[tokio::test(start_paused = true)]
async fn who_may_not_look_goes_on_only_where_there_is_no_sign() {
    let cluster = a_cluster();
    let client = restricted(&cluster);
    let looked = find_predecessor(&client, &Clock::tokio(noon())).await;
    assert_eq!(looked.unwrap(), Predecessor::None);
    put(
        &cluster,
        json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": {
                "name": "workers", "namespace": KUBE_SYSTEM,
                "finalizers": [crate::api::names::FINALIZER],
            },
        }),
    );
    let obstacle = find_predecessor(&client, &Clock::tokio(noon()))
        .await
        .unwrap_err();
    assert_eq!(obstacle.reason(), "AdoptionForbidden");
    assert!(obstacle.to_string().contains("osm rbac worker-adoption"));
    // Somebody has removed our claim.
    let mut document = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "workers", "namespace": CLOUD_INIT_SETTINGS, "annotations": {}},
    });
    put(&cluster, document.clone());
    assert!(
        find_predecessor(&client, &Clock::tokio(noon()))
            .await
            .is_err()
    );
    document["metadata"]["annotations"] = json!({ INPUTS: "digest" });
    put(&cluster, document);
    let looked = find_predecessor(&client, &Clock::tokio(noon())).await;
    assert_eq!(looked.unwrap(), Predecessor::None, "the document is ours");
    assert!(cluster.delete_raw(object("secrets", CLOUD_INIT_SETTINGS, "workers")));
    let claimed = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": CLOUD_INIT_SETTINGS, "annotations": {CLAIM: "m/berlin"}},
    });
    put(&cluster, claimed);
    let looked = find_predecessor(&client, &Clock::tokio(noon())).await;
    assert_eq!(looked.unwrap(), Predecessor::None, "the finalizer is ours");
}
