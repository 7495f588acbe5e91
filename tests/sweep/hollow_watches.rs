//! Watches that are answered, and bring nothing: a redirect, 204, an empty body.

use std::{sync::Arc, time::Duration};

use fake_cluster::{Cluster, Fault, Matcher, Verb, object};
use serde_json::Value;

use crate::{
    fixtures,
    scenarios::{BOOTSTRAP, Scenario},
    snapshot::boot_secret,
    wire::Life,
    world::{World, put},
};

/// The reason and the message of the condition `Connected`.
fn connected(world: &World) -> (String, String) {
    let own = object("workerclusters", "berlin", "berlin");
    let own = world.management.get(own).expect("berlin is registered");
    let conditions = own.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|it| it["type"] == "Connected");
    let field = |name: &str| found.and_then(|it| it[name].as_str()).unwrap_or_default();
    (field("reason").to_owned(), field("message").to_owned())
}

fn faults() -> [(Fault, &'static str); 3] {
    let status = Fault::status;
    [
        (status(302), "the server answers 302 Found"),
        (status(204), "the server answers 204 No Content"),
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
        let (reason, message) = connected(&world);
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
        let statuses = life
            .writes()
            .iter()
            .filter(|it| it.line().contains("workerclusters"))
            .count();
        assert!(
            statuses < 4,
            "{name}: {statuses} writes of the status in an hour"
        );
        berlin.clear_fault(hollow);
        tokio::time::sleep(Duration::from_mins(3)).await;
        assert_eq!(connected(&world).0, "Healthy", "{name}");
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
