//! Tests of registrations of which a watch brings metadata: what is read, and when.

use fake_cluster::{AuditEntry, Cluster, Fault, Matcher, Verb};
use kube::runtime::watcher;
use serde_json::json;

use super::moving_on::{a_kubeconfig, an_empty_management_cluster, put, run};
use crate::fleet::supervisor::*;
use crate::tenant::inventory::Inventory;

/// Longer than any delay of a retry.
const LONG: Duration = Duration::from_mins(1);

/// Creates or changes the Secret of a cluster of Cluster API.
fn has(management: &Cluster, kubeconfig: &str, note: &str) {
    put(
        management,
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
            "metadata": {
                "name": "prod-kubeconfig", "namespace": "berlin", "uid": "a",
                "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {"note": note},
            },
            "data": {"value": kubeconfig},
        }),
    );
}

#[tokio::test(start_paused = true)]
async fn each_version_is_read_once_and_until_then_a_cluster_is_served_as_before() {
    let (management, worker) = (an_empty_management_cluster(), Cluster::default());
    let [first, second] = ["a-token", "another"].map(|token| a_kubeconfig(&worker, token));
    has(&management, &first, "");
    let rule = Inventory::built_in("cluster-api").unwrap();
    let selected = watcher::Config::default().fields("type=cluster.x-k8s.io/secret");
    let mut fleet = run((&management, &worker), (rule, selected));
    let reads = || {
        let is_read = |it: &AuditEntry| it.verb == Verb::Get && it.target.resource == "secrets";
        management.count_requests(is_read)
    };
    let engagement = fleet.engaged().await;
    tokio::time::sleep(LONG).await;
    assert_eq!(reads(), 1, "what it was engaged with is read once");

    has(&management, &first, "only metadata");
    tokio::time::sleep(LONG).await;
    assert_eq!(reads(), 2);
    assert!(!engagement.cancel.is_cancelled(), "nothing has changed");

    let reading = || Matcher::on(&[Verb::Get], "secrets");
    management.inject(reading(), Fault::status(500));
    has(&management, &second, "another credential");
    tokio::time::sleep(LONG).await;
    let tried = reads() - 2;
    assert!(
        (3..100).contains(&tried),
        "tried {tried} times, with delays"
    );
    assert!(!engagement.cancel.is_cancelled(), "it is served as before");
    management.clear_faults();
    drop(fleet.engaged().await);
    assert!(engagement.cancel.is_cancelled());
}
