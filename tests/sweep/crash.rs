//! Crashes.
use crate::{fixtures, snapshot, world::{World, put}};

#[tokio::test(start_paused = true)]
async fn first() {
    let real = std::time::Instant::now();
    let world = World::with_berlin();
    put(world.worker("berlin"), fixtures::a_machine_deployment("workers"));
    println!("{:?}", real.elapsed());
    let process = world.start();
    world.settle().await;
    println!("{:?}", real.elapsed());
    println!("{:#?}", world.last_requests(200));
    println!("{:#?}", snapshot::take(&world).keys().collect::<Vec<_>>());
    println!("{:#}", snapshot::take(&world)["management workerclusters.operatingsystemmanager.k8c.io berlin/berlin"]);
    for (k, v) in snapshot::take(&world) { if k.contains("secrets cloud") || k.contains("secrets kube-sys") {println!("{k} {v:#}"); }}
    process.stop().await;
    println!("{:?}", real.elapsed());
}
