//! Tenants that come and go, and kubeconfigs that change, leave nothing behind in the process.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use fake_cluster::Cluster;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams};
use osm::telemetry::metrics::Metrics;
use serde_json::json;
use tokio::runtime::Handle;

use crate::{
    fixtures,
    wire::Life,
    world::{Process, World, account, put},
};

const ROUNDS: usize = 5;
const ROTATIONS: usize = 1_000;
/// A budget that no rotation waits for, and no token that is renewed meanwhile for the first time.
const UNHURRIED: [&str; 6] = [
    "--lease-duration=1h",
    "--token-lifetime=24h",
    "--worker-requests=1000",
    "--worker-burst=1000",
    "--management-requests=1000",
    "--management-burst=1000",
];
const TENANTS: [&str; 20] = [
    "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "b0", "b1", "b2", "b3", "b4", "b5",
    "b6", "b7", "b8", "b9",
];

/// What a process holds that can be counted.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    tasks: usize,
    /// Ways to clusters: each client, and each engagement that has one, holds its own.
    transports: usize,
    watches: BTreeMap<String, usize>,
    series: BTreeSet<String>,
}

/// A process to be looked at.
struct Looked {
    world: World,
    life: Arc<Life>,
    metrics: Metrics,
}

impl Looked {
    /// Starts a process in a world.
    fn start(world: World) -> (Self, Process) {
        let (life, metrics) = (Life::new(), Metrics::new());
        let process = world.start_measured(&life, &metrics);
        let looked = Self {
            world,
            life,
            metrics,
        };
        (looked, process)
    }

    fn held(&self) -> Held {
        let watches = self.world.clusters();
        let page = self.metrics.encode();
        let series = page.lines().filter(|line| !line.starts_with('#'));
        Held {
            tasks: Handle::current().metrics().num_alive_tasks(),
            transports: Arc::strong_count(&self.life),
            watches: watches
                .map(|(name, cluster)| (name.to_owned(), cluster.open_watches()))
                .collect(),
            series: series
                .filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned()))
                .collect(),
        }
    }

    /// Settled, with nothing of the requests so far kept.
    async fn settle(&self) {
        self.world.settle().await;
        self.world.clear_audits();
        self.life.forget();
    }

    fn join(&self, name: &str) {
        let management = &self.world.management;
        // As a server makes it: who deletes it deletes all that is in it.
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name},
            "spec": {"finalizers": ["kubernetes"]},
        });
        put(management, namespace);
        // Each tenant's content is its own: nobody else keeps it alive.
        let text = format!("text of {name}\n");
        put(management, fixtures::a_profile(name, "v1.0.0", &text));
        self.world.register(name);
    }
}

/// Removes the namespace, and by that everything of the tenant in the management cluster.
async fn leave(management: &Cluster, name: &str) {
    let namespaces: Api<Namespace> = Api::all(management.client());
    let gone = namespaces.delete(name, &DeleteParams::default()).await;
    gone.expect("the namespace is there");
}

#[tokio::test(start_paused = true)]
async fn tenants_that_come_and_go_leave_nothing_behind() {
    let world = World::new(&TENANTS);
    for name in TENANTS {
        world.deploy(name, "workers");
    }
    let (looked, process) = Looked::start(world);
    looked.settle().await;
    let begun = looked.held();
    let mut none = None;
    for round in 1..=ROUNDS {
        for name in TENANTS {
            looked.join(name);
        }
        looked.settle().await;
        let full = looked.held();
        assert!(full.tasks >= begun.tasks + TENANTS.len(), "{full:?}");
        assert!(full.series.iter().any(|name| name.contains("/b9\"")));
        for name in TENANTS {
            assert!(full.watches[name] >= 2, "{name}: {full:?}");
            leave(&looked.world.management, name).await;
        }
        looked.settle().await;
        let left = looked.held();
        assert_eq!(left.watches, begun.watches, "round {round}");
        assert_eq!(left.transports, begun.transports, "round {round}");
        assert_eq!(left.tasks, begun.tasks, "round {round}");
        // The first round brings what is counted for the first time: writes, and their answers.
        let first = none.get_or_insert(left.series);
        assert!(first.iter().all(|name| !name.contains("cluster=\"")));
        assert_eq!(*first, looked.held().series, "round {round}");
    }
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_changes_over_and_over_leaves_nothing_behind() {
    let mut world = World::with_berlin();
    world.settings = crate::world::settings(&UNHURRIED);
    let berlin = world.worker("berlin").clone();
    put(&berlin, fixtures::a_machine_deployment("workers"));
    let (looked, process) = Looked::start(world);
    let mut before = None;
    for turn in 0..=ROTATIONS {
        assert!(turn == 0 || berlin.revoke_token(&berlin.token(&account("kube-system"))));
        looked.world.register("berlin");
        tokio::time::sleep(Duration::from_secs(3)).await;
        // By half of them all that there is to count has been counted.
        if turn == ROTATIONS / 2 || turn == ROTATIONS {
            looked.settle().await;
            let held = looked.held();
            assert_eq!(held.watches["berlin"], 2, "it is watched after {turn}");
            assert_eq!(*before.get_or_insert_with(|| looked.held()), held);
        }
    }
    process.stop().await;
}
