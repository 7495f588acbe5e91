//! Bootstrap tokens over days: renewed by the clock, found again when they are gone, and kept apart
//! from those of others.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use fake_cluster::{Cluster, Options, object};
use jiff::{SignedDuration, Timestamp};
use osm::plan::bootstrap::AUTH_GROUPS;
use serde_json::{Value, json};

use crate::{
    registry::condition,
    scenarios::{KUBELET_KUBECONFIG, Scenario},
    snapshot::{boot_secret, decoded, text},
    world::{put, settings},
};

fn tokens(worker: &Cluster) -> Vec<Value> {
    let mut secrets = worker.objects("secrets");
    secrets.retain(|secret| text(secret, "/type") == "bootstrap.kubernetes.io/token");
    secrets
}

fn the_token(worker: &Cluster) -> Value {
    let mut tokens = tokens(worker);
    assert_eq!(tokens.len(), 1, "one token for one machine deployment");
    tokens.remove(0)
}

fn name(secret: &Value) -> String {
    text(secret, "/metadata/name").to_owned()
}

fn expires(secret: &Value) -> Timestamp {
    decoded(secret, "expiration")
        .parse()
        .expect("a token has an end")
}

/// The token that nodes are given is the one that stands in `kube-system`.
fn check_kubeconfig(worker: &Cluster) {
    let token = the_token(worker);
    let full = ["token-id", "token-secret"]
        .map(|key| decoded(&token, key))
        .join(".");
    let kubeconfig = boot_secret(worker, KUBELET_KUBECONFIG).expect("nodes have a kubeconfig");
    assert!(decoded(&kubeconfig, "kubeconfig").contains(&full));
}

fn a_token(id: &str, expires: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {
            "name": format!("bootstrap-token-{id}"),
            "namespace": "kube-system",
            "labels": labels,
        },
        "data": {
            "token-id": STANDARD.encode(id),
            "token-secret": STANDARD.encode("0123456789abcdef"),
            "expiration": STANDARD.encode(expires),
            "usage-bootstrap-authentication": STANDARD.encode("true"),
            "auth-extra-groups": STANDARD.encode(AUTH_GROUPS),
        },
    })
}

/// As long as it takes until the tokens have been listed again.
const LISTED_AGAIN: Duration = Duration::from_mins(12);

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_before_it_expires_for_days() {
    let (world, process) = Scenario::Renewal.settled().await;
    let berlin = world.worker("berlin");
    let token = name(&the_token(berlin));
    tokio::time::sleep(Duration::from_hours(72)).await;
    let history = berlin.history(object("secrets", "kube-system", &token));
    let started = history[0].at;
    let begun = expires(history[0].object.as_ref().unwrap()) - Duration::from_hours(1);
    let mut lives = Vec::new();
    for pair in history.windows(2) {
        let life = pair[1].at - pair[0].at;
        let now = begun + (pair[1].at - started);
        let end = expires(pair[0].object.as_ref().unwrap());
        assert!(end > now, "renewed at {now}, expired at {end}");
        assert!(
            life >= Duration::from_mins(29) && life <= Duration::from_mins(37),
            "{life:?}"
        );
        lives.push(life);
    }
    assert!(lives.len() >= 115, "{} renewals", lives.len());
    lives.dedup();
    assert!(lives.len() > 100, "the renewals are not jittered");
    check_kubeconfig(berlin);
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn tokens_follow_the_worker_clusters_clock_if_the_managers_is_wrong() {
    for hours in [-2, 2] {
        let mut world = Scenario::Renewal.world();
        world.ahead = SignedDuration::from_hours(hours);
        let process = world.start_settled().await;
        let begun = Options::default().started_at;
        let end = expires(&the_token(world.worker("berlin")));
        let lifetime = end.duration_since(begun).as_mins();
        assert!((60..=61).contains(&lifetime), "{lifetime} min");
        let connected = condition(&world, "berlin", "Connected");
        assert_eq!(connected, ["True", "ClocksDiffer"]);
        check_kubeconfig(world.worker("berlin"));
        process.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_somebody_writes_into_a_token_is_what_machines_join_with() {
    let (world, process) = Scenario::Renewal.settled().await;
    let berlin = world.worker("berlin");
    let mut token = the_token(berlin);
    token["data"]["token-secret"] = json!(STANDARD.encode("fedcba9876543210"));
    put(berlin, token);
    tokio::time::sleep(LISTED_AGAIN).await;
    check_kubeconfig(berlin);
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_token_that_no_machine_can_join_with_is_replaced() {
    let (world, process) = Scenario::Renewal.settled().await;
    let berlin = world.worker("berlin");
    let long = "a".repeat(600 << 10);
    for (field, value) in [
        ("usage-bootstrap-authentication", "false"),
        ("token-id", "abcdef"),
        ("token-secret", &long),
        ("expiration", "2027-01-01T00:00:00"),
    ] {
        let mut token = the_token(berlin);
        token["data"][field] = json!(STANDARD.encode(value));
        let broken = put(berlin, token);
        tokio::time::sleep(LISTED_AGAIN).await;
        let after = the_token(berlin);
        assert_ne!(
            text(&after, "/metadata/uid"),
            text(&broken, "/metadata/uid"),
            "{field}"
        );
        check_kubeconfig(berlin);
    }
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_being_deleted_or_anothers_is_left_alone_and_another_takes_its_place() {
    for case in ["held", "anothers", "unlabelled"] {
        let (world, process) = Scenario::Renewal.settled().await;
        let berlin = world.worker("berlin");
        let mut token = the_token(berlin);
        let (field, value) = match case {
            "held" => ("deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            "anothers" => ("annotations", json!({})),
            _ => ("labels", json!({})),
        };
        token["metadata"][field] = value;
        if case == "held" {
            token["metadata"]["finalizers"] = json!(["a.example/b"]);
        } else if case == "anothers" {
            token["data"]["usage-bootstrap-authentication"] = json!(STANDARD.encode("false"));
        }
        let left = name(&put(berlin, token));
        tokio::time::sleep(LISTED_AGAIN).await;
        let mut others = tokens(berlin);
        others.retain(|token| name(token) != left);
        let [other] = &*others else {
            panic!("{case}: {} others", others.len());
        };
        let kubeconfig = boot_secret(berlin, KUBELET_KUBECONFIG).expect("it is there");
        let id = format!("{}.", decoded(other, "token-id"));
        assert!(decoded(&kubeconfig, "kubeconfig").contains(&id));
        process.stop().await;
    }
}

/// Its renewal finds it, and does not extend it over and over.
#[tokio::test(start_paused = true)]
async fn a_token_that_no_machine_can_join_with_is_not_extended() {
    let mut world = Scenario::Renewal.world();
    world.settings = settings(&["--lease-duration", "1h", "--facts-interval", "6h"]);
    let process = world.start_settled().await;
    let berlin = world.worker("berlin");
    let mut token = the_token(berlin);
    token["data"]["usage-bootstrap-authentication"] = json!(STANDARD.encode("false"));
    let broken = name(&put(berlin, token));
    let token = object("secrets", "kube-system", &broken);
    let before = berlin.history(token).len();
    tokio::time::sleep(Duration::from_mins(40)).await;
    let history = berlin.history(token);
    assert!(
        history[before].object.is_none(),
        "it is deleted, not extended"
    );
    check_kubeconfig(berlin);
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_token_is_made_again_within_an_interval() {
    let (world, process) = Scenario::Renewal.settled().await;
    let berlin = world.worker("berlin");
    let before = the_token(berlin);
    assert!(berlin.delete_raw(object("secrets", "kube-system", &name(&before))));
    tokio::time::sleep(LISTED_AGAIN).await;
    let after = the_token(berlin);
    assert_eq!(name(&before), name(&after), "the id is drawn from the key");
    let [before, after] = [before, after].map(|token| decoded(&token, "token-secret"));
    assert_ne!(before, after);
    check_kubeconfig(berlin);
    let kubeconfig = object("secrets", "cloud-init-settings", KUBELET_KUBECONFIG);
    let mut history = berlin.history(kubeconfig).into_iter();
    assert!(history.all(|moment| moment.object.is_some()));
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn of_two_tokens_the_one_that_lives_longer_is_kept() {
    for (expiry, is_kept) in [
        ("2026-01-01T00:20:00Z", false),
        ("2026-01-01T05:00:00Z", true),
    ] {
        let (world, process) = Scenario::Renewal.settled().await;
        process.stop().await;
        let berlin = world.worker("berlin");
        let own = name(&the_token(berlin));
        let labels = json!({"machinedeployment.k8s.io/name": "kube-system-workers"});
        put(berlin, a_token("aaaaaa", expiry, &labels));
        let process = world.start_settled().await;
        let kept = name(&the_token(berlin));
        assert_eq!(kept == "bootstrap-token-aaaaaa", is_kept, "{own} {kept}");
        check_kubeconfig(berlin);
        process.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_that_somebody_else_holds_is_left_to_him() {
    let (world, process) = Scenario::Renewal.settled().await;
    let id = decoded(&the_token(world.worker("berlin")), "token-id");
    process.stop().await;

    let world = Scenario::Renewal.world();
    let berlin = world.worker("berlin");
    let foreign = put(berlin, a_token(&id, "2027-01-01T00:00:00Z", &json!({})));
    let process = world.start_settled().await;
    let (others, own): (Vec<_>, Vec<_>) = tokens(berlin)
        .into_iter()
        .partition(|token| decoded(token, "token-id") == id);
    assert_eq!(others, [foreign]);
    assert_eq!(own.len(), 1);
    let full = format!("{}.", decoded(&own[0], "token-id"));
    let kubeconfig = boot_secret(berlin, KUBELET_KUBECONFIG).unwrap();
    assert!(decoded(&kubeconfig, "kubeconfig").contains(&full));
    process.stop().await;

    berlin.clear_audit();
    let process = world.start_settled().await;
    assert_eq!(berlin.writes().len(), 0, "{:?}", berlin.writes());
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn tokens_of_one_tenant_are_not_renewed_at_once() {
    // A resync renews together what is due already. With this seed, none comes in between.
    osm::client::jitter::begin(1);
    let world = Scenario::Renewal.world();
    let berlin = world.worker("berlin");
    for index in 0..8 {
        world.deploy("berlin", &format!("workers-{index}"));
    }
    let process = world.start_settled().await;
    berlin.clear_audit();
    tokio::time::sleep(Duration::from_mins(40)).await;
    let mut seconds: Vec<u64> = berlin
        .writes()
        .iter()
        .map(|entry| entry.at.elapsed().as_secs())
        .collect();
    assert_eq!(seconds.len(), 9);
    seconds.dedup();
    assert!(seconds.len() > 4, "{seconds:?}");
    process.stop().await;
}
