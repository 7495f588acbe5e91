//! What all tenants share is short, and one of them asks for a hundred times as much as each of
//! the others: those hardly notice. Nor does the rest of a tenant wait for its renders that are
//! stopped.

use std::{os::unix::fs::PermissionsExt as _, sync::Arc, time::Duration};

use fake_cluster::{Cluster, Fault, Matcher, Verb, object};
use osm::render_worker::{DEADLINE, Pool, Renderer};
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

/// A worker that never answers is stopped at the deadline of a render, and one renders at a time
/// for a tenant with such renders. Retries would keep it from those that come after them.
#[tokio::test(start_paused = true)]
async fn every_machine_deployment_is_tried_before_stopped_renders_are_tried_again() {
    const COUNT: u32 = 40;
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("never-answers");
    std::fs::write(&program, "#!/bin/sh\nexec /bin/sleep 600\n").expect("the folder is ours");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, executable).expect("the file is ours");
    let mut world = World::with_berlin();
    world.renderer = Renderer::Workers(Arc::new(Pool::new(program)));
    for index in 0..COUNT {
        world.deploy("berlin", &format!("workers-{index}"));
    }
    let process = world.start();
    // The tenant is engaged before, and its status is written afterwards.
    let rest = Duration::from_mins(1);
    tokio::time::sleep(COUNT * DEADLINE + rest).await;
    let condition = world.condition("berlin", "MachineDeploymentsServed");
    let message = condition["message"].as_str().unwrap_or_default();
    let expected = format!("{COUNT} not served");
    assert!(message.starts_with(&expected), "{condition}");
    assert!(message.contains("took longer than 2 s"), "{condition}");
    process.kill().await;
}
