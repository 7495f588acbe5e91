//! A burst of machine deployments where nobody else asks for anything: a fleet serves and deletes
//! it as fast as the same program does for one cluster alone.

use std::time::Duration;

use fake_cluster::{Cluster, Fault, Matcher, Verb, object};
use kube::{Api, api::DeleteParams};
use osm::api::machine_deployment::MachineDeployment;
use tokio::time::{Instant, sleep};

use crate::{
    drop_in::Place,
    fixtures,
    snapshot::boot_secret,
    world::{QUIET, World, put},
};

const COUNT: usize = 20;
/// What an API server takes for an answer.
const TRIP: Duration = Duration::from_millis(5);
/// No slower than drop-in mode, and a little for what a fleet does besides.
const RATIO_MAX: f64 = 1.3;

fn name(index: usize) -> String {
    format!("burst-{index}")
}

fn is_served(worker: &Cluster) -> bool {
    let secrets = ["bootstrap", "provisioning"];
    (0..COUNT).all(|index| {
        secrets.iter().all(|kind| {
            let secret = format!("{}-kube-system-{kind}-config", name(index));
            boot_secret(worker, &secret).is_some()
        })
    })
}

fn is_deleted(worker: &Cluster) -> bool {
    (0..COUNT).all(|index| {
        let name = name(index);
        let found = object("machinedeployments", "kube-system", &name);
        worker.get(found).is_none()
    })
}

/// How long it takes until all are served, and until all are deleted.
async fn took(worker: &Cluster) -> [Duration; 2] {
    let begun = Instant::now();
    for index in 0..COUNT {
        put(worker, fixtures::a_machine_deployment(&name(index)));
    }
    worker.wait_until(is_served).await;
    let served = begun.elapsed();
    let api: Api<MachineDeployment> = Api::namespaced(worker.client(), "kube-system");
    let begun = Instant::now();
    let deletions = (0..COUNT).map(|index| {
        let api = api.clone();
        async move { api.delete(&name(index), &DeleteParams::default()).await }
    });
    for deleted in futures::future::join_all(deletions).await {
        deleted.expect("it is there");
    }
    worker.wait_until(is_deleted).await;
    [served, begun.elapsed()]
}

async fn took_in_a_fleet() -> [Duration; 2] {
    let world = World::with_berlin();
    let process = world.start_settled().await;
    for (_, cluster) in world.clusters() {
        cluster.inject(Matcher::any(), Fault::Delay(TRIP));
    }
    let took = took(world.worker("berlin")).await;
    process.kill().await;
    took
}

async fn took_in_drop_in_mode() -> [Duration; 2] {
    let place = Place::new();
    let process = place.start(&[]);
    sleep(QUIET).await;
    place.cluster.inject(Matcher::any(), Fault::Delay(TRIP));
    let took = took(&place.cluster).await;
    process.kill().await;
    took
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_a_lone_tenant_is_served_and_deleted_as_fast_as_in_drop_in_mode() {
    let fleet = took_in_a_fleet().await;
    let alone = took_in_drop_in_mode().await;
    for (what, (fleet, alone)) in ["served", "deleted"].iter().zip(fleet.iter().zip(&alone)) {
        assert!(
            *fleet <= alone.mul_f64(RATIO_MAX),
            "{what} in {fleet:?}, and in {alone:?} in drop-in mode"
        );
    }
}

/// Each second had one, until the last machine deployment was served.
#[tokio::test(start_paused = true)]
async fn a_first_start_that_takes_its_time_writes_few_statuses_and_the_last_at_once() {
    let world = World::with_berlin();
    let berlin = world.worker("berlin");
    for index in 0..COUNT {
        put(berlin, fixtures::a_machine_deployment(&name(index)));
    }
    let slow = Matcher::on(&[Verb::Create], "secrets");
    berlin.inject(slow, Fault::Delay(Duration::from_secs(2)));
    let process = world.start();
    let begun = Instant::now();
    berlin.wait_until(is_served).await;
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(10), "it has time: {took:?}");
    // Soon, and not with the next step.
    sleep(Duration::from_secs(5)).await;
    let status = world.own("berlin")["status"].clone();
    assert_eq!(status["served"], format!("{COUNT}/{COUNT}"), "{status}");
    let mut patches = world.management.audit();
    patches.retain(|it| it.verb == Verb::Patch);
    patches.retain(|it| it.target.subresource == "status");
    assert!((2..=4).contains(&patches.len()), "{}", patches.len());
    process.stop().await;
}
