//! Watches that are answered, and bring nothing: a redirect, 204, an empty body.

use std::{sync::Arc, time::Duration};

use fake_cluster::{Cluster, Fault, Matcher, Verb};

use crate::{
    fixtures,
    scenarios::{BOOTSTRAP, Scenario},
    snapshot::{boot_secret, text},
    wire::Life,
    world::{World, put},
};

/// The reason and the message of the condition `Connected`.
fn connected(world: &World) -> [String; 2] {
    let found = world.condition("berlin", "Connected");
    ["/reason", "/message"].map(|field| text(&found, field).to_owned())
}

fn faults() -> [(Fault, &'static str); 3] {
    [
        (Fault::status(302), "the server answers 302 Found"),
        (Fault::status(204), "the server answers 204 No Content"),
        (
            Fault::Body(Arc::new(|| Box::new(std::iter::empty()))),
            "it ends within 5 s",
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_brings_nothing_is_begun_again_with_care_and_reported() {
    for (fault, expected) in faults() {
        let name = format!("{fault:?}");
        let world = Scenario::Provisioning.world();
        let berlin: &Cluster = world.worker("berlin");
        let life = Life::new();
        let process = world.start_settled_as(&life).await;
        let hollow = berlin.inject(Matcher::on(&[Verb::Watch], "machinedeployments"), fault);
        berlin.close_watches();
        tokio::time::sleep(Duration::from_mins(2)).await;
        let [reason, message] = connected(&world);
        assert!(
            ["WatchFailed", "Degraded"].contains(&&*reason),
            "{name}: {reason}"
        );
        assert!(
            message.contains(expected) || reason == "Degraded",
            "{name}: {message}"
        );
        life.forget();
        tokio::time::sleep(Duration::from_hours(1)).await;
        let sent = life.sent();
        let asked = sent.iter().filter(|sent| sent.to == "berlin").count();
        assert!(asked < 800, "{name}: {asked} requests in an hour");
        let mut statuses = life.lines();
        statuses.retain(|line| line.contains("workerclusters"));
        let statuses = statuses.len();
        assert!(
            statuses < 4,
            "{name}: {statuses} writes of the status in an hour"
        );
        berlin.clear_fault(hollow);
        tokio::time::sleep(Duration::from_mins(3)).await;
        assert_eq!(connected(&world)[0], "Healthy", "{name}");
        put(berlin, fixtures::a_machine_deployment("later"));
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert!(
            boot_secret(berlin, "later-kube-system-bootstrap-config").is_some(),
            "{name}"
        );
        assert!(boot_secret(berlin, BOOTSTRAP).is_some(), "{name}");
        process.stop().await;
    }
}
