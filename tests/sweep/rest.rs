//! Nothing changed, nothing done.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{
    fixtures,
    scenarios::Scenario,
    wire::{Life, Sent},
    world::{World, put},
};

/// Three machine deployments, settled.
async fn a_settled_world(life: &Arc<Life>) -> (World, crate::world::Process) {
    let world = Scenario::Renewal.world();
    for name in ["others", "more"] {
        put(world.worker("berlin"), fixtures::a_machine_deployment(name));
    }
    let process = world.start_as(life);
    world.settle().await;
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
async fn a_day_at_rest_costs_watches_tokens_and_facts_only() {
    let life = Life::new();
    let (_world, process) = a_settled_world(&life).await;
    tokio::time::sleep(Duration::from_hours(24)).await;
    let counts = counted(&life.sent());
    process.stop().await;
    // Facts every ten minutes, tokens of three machine deployments every 33, watches every 290 s.
    let facts = 130..=160;
    let tokens = 3 * 38..=3 * 49;
    let reads = 2 * 3 * 38..=2 * 3 * 49;
    let watches = 290..=305;
    let group = "/apis/operatingsystemmanager.k8c.io/v1alpha1";
    let allowed = [
        ("management GET /api/v1/secrets".to_owned(), &watches),
        (
            format!("management GET {group}/operatingsystemconfigs"),
            &watches,
        ),
        (
            format!("management GET {group}/operatingsystemprofiles"),
            &watches,
        ),
        (format!("management GET {group}/workerclusters"), &watches),
        (
            "berlin GET /apis/cluster.k8s.io/v1alpha1/machinedeployments".to_owned(),
            &watches,
        ),
        (
            "berlin GET /api/v1/namespaces/cloud-init-settings/secrets".to_owned(),
            &watches,
        ),
        (
            "berlin GET /api/v1/namespaces/cloud-init-settings/secrets/cloud-init-getter-token"
                .to_owned(),
            &facts,
        ),
        // The claim is looked at beside the facts.
        (
            "berlin GET /api/v1/namespaces/cloud-init-settings".to_owned(),
            &facts,
        ),
        (
            "berlin GET /api/v1/namespaces/cloud-init-settings".to_owned(),
            &facts,
        ),
        (
            "berlin GET /api/v1/namespaces/kube-public/configmaps/cluster-info".to_owned(),
            &facts,
        ),
        (
            "berlin GET /apis/discovery.k8s.io/v1/namespaces/default/endpointslices".to_owned(),
            &facts,
        ),
        (
            "berlin GET /api/v1/namespaces/kube-system/secrets/bootstrap-token-".to_owned(),
            &reads,
        ),
        (
            "berlin PUT /api/v1/namespaces/kube-system/secrets/bootstrap-token-".to_owned(),
            &tokens,
        ),
    ];
    let allowed: BTreeMap<_, _> = allowed.into_iter().collect();
    for (request, count) in counts {
        let range = allowed.get(&request);
        assert!(
            range.is_some_and(|range| range.contains(&count)),
            "{request}: {count} times, not {range:?}"
        );
    }
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
        process = world.start_as(&life);
        world.settle().await;
        assert_eq!(life.writes().len(), 0, "{:?}", life.writes());
        assert_eq!(versions(&world), before, "{:#?}", world.last_requests(10));
        tokio::time::sleep(Duration::from_mins(3)).await;
    }
    process.kill().await;
    let life = Life::new();
    let process = world.start_as(&life);
    world.settle().await;
    assert_eq!(life.writes().len(), 0, "{:?}", life.writes());
    process.stop().await;
}

/// The inventory is a list; beyond it a reconcile of what is current reads nothing.
#[tokio::test(start_paused = true)]
async fn a_reconcile_that_changes_nothing_reads_nothing() {
    let life = Life::new();
    let (world, process) = a_settled_world(&life).await;
    let berlin = world.worker("berlin");
    for index in 0..5 {
        crate::scenarios::change(
            berlin,
            ("machinedeployments", "kube-system", "workers"),
            |found| {
                crate::scenarios::set(
                    found,
                    "/metadata/labels",
                    serde_json::json!({"touched": index.to_string()}),
                );
            },
        );
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(counted(&life.sent()), BTreeMap::new());
    process.stop().await;
}
