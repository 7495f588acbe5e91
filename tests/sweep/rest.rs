//! Nothing changed, nothing done.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc, time::Duration};

use serde_json::json;

use crate::{
    scenarios::{Scenario, change_machine_deployment, set},
    wire::{Life, Sent},
    world::World,
};

/// Three machine deployments, settled.
async fn a_settled_world(life: &Arc<Life>) -> (World, crate::world::Process) {
    let world = Scenario::Renewal.world();
    for name in ["others", "more"] {
        world.deploy("berlin", name);
    }
    let process = world.start_settled_as(life).await;
    life.forget();
    (world, process)
}

/// What was asked for, and how often; names of tokens are left out.
fn counted(sent: &[Sent]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for sent in sent {
        let path = match sent.path.split_once("bootstrap-token-") {
            Some((before, _)) => format!("{before}bootstrap-token-"),
            None => sent.path.clone(),
        };
        *counts
            .entry(format!("{} {} {path}", sent.to, sent.method))
            .or_default() += 1;
    }
    counts
}

#[tokio::test(start_paused = true)]
async fn a_day_at_rest_costs_watches_tokens_and_cluster_info_only() {
    let life = Life::new();
    let (_world, process) = a_settled_world(&life).await;
    tokio::time::sleep(Duration::from_hours(24)).await;
    let counts = counted(&life.sent());
    process.stop().await;
    let allowed = of_a_day();
    for (request, count) in counts {
        let range = allowed.get(&request);
        assert!(
            range.is_some_and(|range| range.contains(&count)),
            "{request}: {count} times, not {range:?}"
        );
    }
}

/// Where the roles of the Secrets' namespace are.
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/cloud-init-settings";

/// What a day of one tenant may cost, by kind of request.
fn of_a_day() -> BTreeMap<String, RangeInclusive<usize>> {
    // Cluster info every ten minutes, tokens of three machine deployments every 33, watches every
    // 290 s, and two requests when a watch starts over with a list: for profiles every six hours,
    // for others every 45 minutes.
    let cluster_info = 130..=160;
    let tokens = 3 * 38..=3 * 49;
    let reads = 2 * 3 * 38..=2 * 3 * 49;
    let watches = 320..=410;
    let profiles = 290..=320;
    let group = "/apis/operatingsystemmanager.k8c.io/v1alpha1";
    let in_settings = "berlin GET /api/v1/namespaces/cloud-init-settings";
    let in_kube_system = "/api/v1/namespaces/kube-system/secrets";
    let allowed = [
        (
            format!("berlin GET {ROLES}/roles/cloud-init-getter"),
            &cluster_info,
        ),
        (
            format!("berlin GET {ROLES}/rolebindings/cloud-init-getter"),
            &cluster_info,
        ),
        ("management GET /api/v1/secrets".to_owned(), &watches),
        (
            format!("management GET {group}/operatingsystemconfigs"),
            &watches,
        ),
        (
            format!("management GET {group}/operatingsystemprofiles"),
            &profiles,
        ),
        (format!("management GET {group}/workerclusters"), &watches),
        (
            "berlin GET /apis/cluster.k8s.io/v1alpha1/machinedeployments".to_owned(),
            &watches,
        ),
        (format!("{in_settings}/secrets"), &watches),
        // Its content, and whose it is.
        (
            format!("{in_settings}/secrets/cloud-init-getter-token"),
            &(260..=320),
        ),
        (
            format!("{in_settings}/serviceaccounts/cloud-init-getter"),
            &cluster_info,
        ),
        // The claim is read together with the cluster info.
        (in_settings.to_owned(), &cluster_info),
        (
            "berlin GET /api/v1/namespaces/kube-public/configmaps/cluster-info".to_owned(),
            &cluster_info,
        ),
        (
            "berlin GET /apis/discovery.k8s.io/v1/namespaces/default/endpointslices".to_owned(),
            &cluster_info,
        ),
        (format!("berlin GET {in_kube_system}"), &cluster_info),
        (
            format!("berlin GET {in_kube_system}/bootstrap-token-"),
            &reads,
        ),
        (
            format!("berlin PUT {in_kube_system}/bootstrap-token-"),
            &tokens,
        ),
    ];
    allowed
        .map(|(request, range)| (request, range.clone()))
        .into()
}

#[tokio::test(start_paused = true)]
async fn a_restart_writes_nothing() {
    let (world, mut process) = a_settled_world(&Life::new()).await;
    let versions = |world: &World| -> Vec<u64> {
        let clusters = world.clusters();
        let revisions = clusters.map(|(_, cluster)| {
            let writes = cluster.writes();
            // The replica's Lease is given up and taken over.
            let of_leases = writes
                .iter()
                .filter(|it| it.target.resource == "leases" && it.code < 300);
            cluster.revision() - u64::try_from(of_leases.count()).expect("a few")
        });
        revisions.collect()
    };
    for _ in 0..3 {
        process.stop().await;
        let before = versions(&world);
        let life = Life::new();
        process = world.start_settled_as(&life).await;
        assert_eq!(life.writes().len(), 0, "{:?}", life.writes());
        assert_eq!(versions(&world), before, "{:#?}", world.last_requests(10));
        tokio::time::sleep(Duration::from_mins(3)).await;
    }
    process.kill().await;
    let life = Life::new();
    let process = world.start_settled_as(&life).await;
    assert_eq!(life.writes().len(), 0, "{:?}", life.writes());
    process.stop().await;
}

/// The initial sync is a list; beyond it a reconcile of what is current reads nothing.
#[tokio::test(start_paused = true)]
async fn a_reconcile_that_changes_nothing_reads_nothing() {
    let life = Life::new();
    let (world, process) = a_settled_world(&life).await;
    let berlin = world.worker("berlin");
    for index in 0..5 {
        change_machine_deployment(berlin, "workers", |found| {
            let labels = json!({"touched": index.to_string()});
            set(found, "/metadata/labels", labels);
        });
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(counted(&life.sent()), BTreeMap::new());
    process.stop().await;
}
