//! What all tenants share is short, and one of them asks for a hundred times as much as each of
//! the others: those hardly notice.

use std::time::Duration;

use fake_cluster::{Cluster, Fault, Matcher, Verb, object};
use tokio::time::Instant;

use crate::{
    fixtures,
    scenarios::{BOOTSTRAP, annotate, change_machine_deployment},
    world::{World, settings},
};

const QUIET: [&str; 16] = [
    "q00", "q01", "q02", "q03", "q04", "q05", "q06", "q07", "q08", "q09", "q10", "q11", "q12",
    "q13", "q14", "q15",
];
const NOISY: &str = "noisy";
/// How many times as much as a quiet tenant asks for.
const LOAD: usize = 100;
const ROUNDS: usize = 6;
/// Long enough for what the quiet tenants ask for, too short for what the noisy one does.
const PERIOD: Duration = Duration::from_secs(3);

/// Whatever a tenant may have of its own is no limit here: what all share is.
const LIMITS: [&str; 8] = [
    "--tenant-reconciles=64",
    "--worker-requests=10000",
    "--worker-burst=10000",
    "--management-requests=10000",
    "--management-burst=10000",
    "--concurrent-renders=1000",
    "--fleet-management-requests=60",
    "--fleet-management-burst=1",
];

fn a_world(load: usize) -> World {
    let mut names = QUIET.to_vec();
    names.push(NOISY);
    let mut world = World::new(&names);
    world.settings = settings(&LIMITS);
    for name in names {
        world.register(name);
        world.add_profile(name, "v1.0.0", "text\n");
        let count = if name == NOISY { load } else { 1 };
        for index in 0..count {
            world.deploy(name, &machine_deployment(index));
        }
    }
    world
}

fn machine_deployment(index: usize) -> String {
    match index {
        0 => "workers".to_owned(),
        more => format!("workers-{more}"),
    }
}

fn raise(worker: &Cluster, name: &str, revision: usize) {
    change_machine_deployment(worker, name, |found| {
        annotate(found, fixtures::REVISION, &revision.to_string());
    });
}

/// How long each change of a quiet tenant took until its last Secret was written, sorted.
async fn latencies(load: usize) -> Vec<Duration> {
    let world = a_world(load);
    let process = world.start_settled().await;
    for (_, cluster) in world.clusters() {
        let verbs = [Verb::Create, Verb::Update, Verb::Patch, Verb::Delete];
        let writes = Matcher::on(&verbs, "secrets");
        cluster.inject(writes, Fault::Delay(Duration::from_millis(20)));
    }
    let mut begun = Vec::new();
    for round in 0..ROUNDS {
        begun.push(Instant::now());
        for index in 0..load {
            raise(world.worker(NOISY), &machine_deployment(index), round + 2);
        }
        for name in QUIET {
            raise(world.worker(name), "workers", round + 2);
        }
        tokio::time::sleep(PERIOD).await;
    }
    let mut took = Vec::new();
    for name in QUIET {
        let secret = object("secrets", "cloud-init-settings", BOOTSTRAP);
        let history = world.worker(name).history(secret);
        for begun in &begun {
            let of_round = |at: &Instant| *at > *begun && *at < *begun + PERIOD;
            let times = history.iter().map(|moment| moment.at);
            let last = times.filter(of_round).max();
            took.push(last.expect("each change is served in its round") - *begun);
        }
    }
    process.kill().await;
    took.sort();
    took
}

fn p99(sorted: &[Duration]) -> Duration {
    let place = sorted.len() * 99 / 100;
    *sorted.get(place).expect("there were changes")
}

#[tokio::test(start_paused = true)]
async fn a_hundredfold_load_leaves_the_p99_of_others_where_the_shared_budget_is_short() {
    let alone = p99(&latencies(1).await);
    let beside = p99(&latencies(LOAD).await);
    assert!(alone > Duration::from_millis(100), "it is not short");
    assert!(beside <= alone.mul_f64(1.25), "{beside:?}, {alone:?} alone");
}
