//! Whether machines can join, checked for hours as a machine would do it.

use std::{collections::BTreeSet, time::Duration};

use fake_cluster::{Fault, Matcher, Verb, object};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::{
    fixtures,
    registry::condition,
    world::{Process, World, put},
};

const INTERVAL: Duration = Duration::from_mins(10);
/// An interval with its jitter, and the wait before a failure is believed.
const CHECKED_AGAIN: Duration = Duration::from_mins(12);
const FETCHER: &str = "system:serviceaccount:cloud-init-settings:cloud-init-getter";

/// A world with machines that reach their cluster, and machine deployments of these names.
async fn a_settled_world(names: &[&str]) -> (World, Process) {
    let mut world = World::with_berlin();
    world.settings.join_check = true;
    let berlin = world.worker("berlin");
    let binding = include_str!("../../tenants-example/worker-crds/kubelet-bootstrap.yaml");
    berlin.apply_yaml(binding).expect("the example is right");
    for name in names {
        put(berlin, fixtures::a_machine_deployment(name));
    }
    let reached = json!({"apiServerOverride": fixtures::server("berlin")});
    world.configure("berlin", &reached);
    let process = world.start_settled().await;
    assert_eq!(can_join(&world), ["True", "CanJoin"]);
    (world, process)
}

fn can_join(world: &World) -> [String; 2] {
    condition(world, "berlin", "MachinesCanJoin")
}

#[tokio::test(start_paused = true)]
async fn one_refusal_is_an_accident_and_two_are_not() {
    let (world, process) = a_settled_world(&["workers"]).await;
    let berlin = world.worker("berlin");
    let refused = Fault::status(403);
    let fetches = Matcher {
        user: Some(FETCHER.to_owned()),
        ..Matcher::on(&[Verb::Get], "secrets")
    };
    let once = Matcher {
        nth: Some(1),
        ..fetches.clone()
    };
    berlin.inject(once, refused.clone());
    tokio::time::sleep(CHECKED_AGAIN).await;
    assert_eq!(can_join(&world), ["True", "CanJoin"]);

    let fault = berlin.inject(fetches, refused);
    tokio::time::sleep(CHECKED_AGAIN).await;
    assert_eq!(can_join(&world), ["False", "FetchRefused"]);
    assert_eq!(
        condition(&world, "berlin", "Ready"),
        ["False", "FetchRefused"]
    );
    berlin.clear_fault(fault);
    tokio::time::sleep(CHECKED_AGAIN).await;
    assert_eq!(can_join(&world), ["True", "CanJoin"]);
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_help_is_not_advised() {
    let (world, process) = a_settled_world(&["workers"]).await;
    let berlin = world.worker("berlin");
    let fetches = Matcher {
        user: Some(FETCHER.to_owned()),
        ..Matcher::on(&[Verb::Get], "secrets")
    };
    berlin.inject(fetches, Fault::status(401));
    let held = object("secrets", "cloud-init-settings", "cloud-init-getter-token");
    for (deleted, advice) in [
        (json!(null), "delete secret cloud-init-getter-token"),
        (json!("2026-01-01T00:00:00Z"), "hold it: `example.com/hold`"),
    ] {
        let mut token = berlin.get(held).expect("it is there");
        token["metadata"]["finalizers"] = json!(["example.com/hold"]);
        token["metadata"]["deletionTimestamp"] = deleted;
        put(berlin, token);
        tokio::time::sleep(CHECKED_AGAIN * 2).await;
        assert_eq!(can_join(&world), ["False", "FetchRefused"]);
        let condition = world.condition("berlin", "MachinesCanJoin");
        let message = condition["message"].as_str().unwrap_or_default();
        assert!(message.contains(advice), "{message}");
    }
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn at_a_loopback_address_machines_find_themselves() {
    let (world, process) = a_settled_world(&["workers"]).await;
    for (address, expected) in [
        ("https://127.0.0.1:6443", ["False", "AddressUnusable"]),
        // The machines' network may lead there.
        ("https://169.254.1.1", ["Unknown", "NotChecked"]),
        (&fixtures::server("berlin"), ["True", "CanJoin"]),
    ] {
        world.configure("berlin", &json!({"apiServerOverride": address}));
        tokio::time::sleep(CHECKED_AGAIN * 2).await;
        assert_eq!(can_join(&world), expected, "{address}");
    }
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn each_machine_deployment_is_checked_with_six_requests_an_interval() {
    let names = ["workers", "others", "more"];
    let (world, process) = a_settled_world(&names).await;
    world.clear_audits();
    let intervals = 12;
    tokio::time::sleep(INTERVAL * intervals).await;
    let mut all = world.worker("berlin").audit();
    all.retain(|entry| entry.user == FETCHER || entry.user.starts_with("system:bootstrap:"));
    let count = u32::try_from(all.len()).expect("it is small");
    // A renewal of a token is a change, but none within the interval of a check.
    assert!((48..=96).contains(&count), "{count} requests");
    let fetched = all.iter().filter(|entry| entry.user == FETCHER);
    let fetched: BTreeSet<&str> = fetched.map(|entry| entry.target.name.as_str()).collect();
    assert_eq!(fetched.len(), names.len(), "{fetched:?}");
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn any_answer_from_the_address_says_whether_machines_can_join() {
    let (world, process) = a_settled_world(&["workers"]).await;
    let berlin = world.worker("berlin");
    let fetches = Matcher {
        user: Some(FETCHER.to_owned()),
        ..Matcher::on(&[Verb::Get], "secrets")
    };
    let requests = Matcher::on(&[Verb::Create], "certificatesigningrequests");
    for (on, code, expected) in [
        (&fetches, 404, ["False", "UnexpectedAnswer"]),
        (&fetches, 503, ["False", "UnexpectedAnswer"]),
        // What a policy says, and what a webhook says that has no dry run.
        (&requests, 422, ["False", "JoinForbidden"]),
        (&requests, 400, ["Unknown", "NotChecked"]),
    ] {
        let fault = berlin.inject(on.clone(), Fault::status(code));
        tokio::time::sleep(CHECKED_AGAIN).await;
        assert_eq!(can_join(&world), expected, "{code}");
        berlin.clear_fault(fault);
        tokio::time::sleep(CHECKED_AGAIN).await;
        assert_eq!(can_join(&world), ["True", "CanJoin"], "after {code}");
    }
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn somebody_must_approve_what_kubelets_request() {
    let (world, process) = a_settled_world(&["workers"]).await;
    let berlin = world.worker("berlin");
    let signer = object("clusterrolebindings", "", "machine-controller-node-signer");
    let binding = berlin.get(signer).expect("it is bound");
    assert!(berlin.delete_raw(signer));
    tokio::time::sleep(CHECKED_AGAIN).await;
    assert_eq!(can_join(&world), ["False", "ApprovalForbidden"]);
    let requested = |name: &str, group: &str, conditions: &serde_json::Value| {
        let request = json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {
                "request": "", "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                "groups": [group],
            },
            "status": {"conditions": conditions},
        });
        put(berlin, request);
    };
    let answer = |kind: &str| json!([{"type": kind, "status": "True"}]);
    let ours = "system:bootstrappers:machine-controller:default-node-token";
    let strangers = "system:bootstrappers:kubeadm:default-node-token";
    requested("of-a-stranger", strangers, &answer("Approved"));
    requested("of-no-use", ours, &answer("Denied"));
    tokio::time::sleep(CHECKED_AGAIN).await;
    assert_eq!(can_join(&world), ["False", "ApprovalForbidden"]);
    requested("of-another-approver", ours, &answer("Approved"));
    tokio::time::sleep(CHECKED_AGAIN).await;
    assert_eq!(can_join(&world), ["True", "CanJoin"]);
    for (name, group, told) in [
        ("of-nobody", ours, "csrapproving?"),
        (
            "of-a-node",
            "system:nodes",
            "selfnodeclient bound to the group",
        ),
    ] {
        requested(name, group, &json!([]));
        // The first check may come before the request has waited for long.
        tokio::time::sleep(CHECKED_AGAIN * 2).await;
        assert_eq!(can_join(&world), ["Unknown", "ApprovalPending"]);
        let condition = world.condition("berlin", "MachinesCanJoin");
        let message = condition["message"].as_str().unwrap_or_default();
        assert!(
            message.contains(name) && message.contains(told),
            "{message}"
        );
        requested(name, group, &answer("Approved"));
        tokio::time::sleep(CHECKED_AGAIN).await;
        assert_eq!(can_join(&world), ["True", "CanJoin"], "after {name}");
    }
    assert_eq!(condition(&world, "berlin", "Ready"), ["True", "Ready"]);
    // A node that is there repeats its request.
    requested("of-a-node-that-has-gone", "system:nodes", &json!([]));
    tokio::time::sleep(INTERVAL * 5).await;
    assert_eq!(can_join(&world), ["True", "CanJoin"]);
    // Of more requests than are read, nothing is concluded.
    for index in 0..1_000 {
        requested(&format!("another-{index}"), strangers, &answer("Denied"));
    }
    tokio::time::sleep(CHECKED_AGAIN).await;
    assert_eq!(can_join(&world), ["Unknown", "NotChecked"]);
    requested("a-machine", ours, &json!([]));
    put(berlin, binding);
    tokio::time::sleep(CHECKED_AGAIN * 2).await;
    assert_eq!(can_join(&world), ["True", "CanJoin"]);
    process.stop().await;
}

/// This program's TLS takes an authority that has expired. Those of curl and of the kubelet do not.
#[tokio::test(start_paused = true)]
async fn an_authority_that_has_expired_is_none() {
    let (world, process) = a_settled_world(&["workers"]).await;
    let server = fixtures::server("berlin");
    let now = world.clock().now();
    for (days, expected) in [
        (-1, ["False", "AuthorityExpired"]),
        (10, ["True", "AuthorityExpiresSoon"]),
        (300, ["True", "CanJoin"]),
    ] {
        let authority = an_authority(now, [-365, days]);
        put(
            world.worker("berlin"),
            fixtures::cluster_info(&server, &authority),
        );
        tokio::time::sleep(CHECKED_AGAIN * 2).await;
        assert_eq!(can_join(&world), expected, "{days} days");
    }
    process.stop().await;
}

/// Tokens are not watched, and all of them are read every ten minutes. What the check finds is not
/// left until then.
#[tokio::test(start_paused = true)]
async fn a_token_that_the_check_finds_deleted_is_made_again_at_once() {
    let (world, process) = a_settled_world(&["workers"]).await;
    let berlin = world.worker("berlin");
    let tokens = || {
        let mut found = berlin.objects("secrets");
        found.retain(|it| it["type"] == "bootstrap.kubernetes.io/token");
        found
    };
    let name = tokens()[0]["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(berlin.delete_raw(object("secrets", "kube-system", &name)));
    let read = Matcher {
        nth: Some(1),
        ..Matcher::on(&[Verb::List], "secrets")
    };
    berlin.inject(read, Fault::status(500));
    tokio::time::sleep(CHECKED_AGAIN).await;
    assert_eq!(tokens().len(), 1, "{name} is missing");
    assert_eq!(can_join(&world), ["True", "CanJoin"]);
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_said_of_machines_that_are_gone() {
    let (world, process) = a_settled_world(&["workers"]).await;
    let berlin = world.worker("berlin");
    let binding = object(
        "clusterrolebindings",
        "",
        "machine-controller-kubelet-bootstrap",
    );
    assert!(berlin.delete_raw(binding));
    tokio::time::sleep(CHECKED_AGAIN).await;
    assert_eq!(can_join(&world), ["False", "JoinForbidden"]);
    assert!(berlin.delete_raw(object("machinedeployments", "kube-system", "workers")));
    tokio::time::sleep(CHECKED_AGAIN).await;
    assert_eq!(can_join(&world), ["Unknown", "NotChecked"]);
    assert_eq!(condition(&world, "berlin", "Ready"), ["True", "Ready"]);
    process.stop().await;
}

/// As where a tenant registers through a relay, and only the machines' network reaches the cluster.
#[tokio::test(start_paused = true)]
async fn authorities_are_compared_where_the_address_is_not_reached() {
    let mut world = World::with_berlin();
    world.settings.join_check = true;
    let berlin = world.worker("berlin");
    put(berlin, fixtures::a_machine_deployment("workers"));
    let other = rcgen::generate_simple_self_signed(["another".to_owned()]);
    let other = other.expect("a certificate can be made").cert.pem();
    let elsewhere = "https://elsewhere:6443";
    let announces = |authority| put(berlin, fixtures::cluster_info(elsewhere, authority));
    announces(&other);
    let process = world.start_settled().await;
    let differ = ["False", "AuthoritiesDiffer"];
    assert_eq!(can_join(&world), differ);
    assert_eq!(condition(&world, "berlin", "Ready"), differ);
    // As while an authority is replaced by the next.
    announces(&format!("{other}{}", fixtures::certificate()));
    tokio::time::sleep(CHECKED_AGAIN * 2).await;
    assert_eq!(can_join(&world), ["Unknown", "NotChecked"]);
    assert_eq!(condition(&world, "berlin", "Ready"), ["True", "Ready"]);
    process.stop().await;
}

/// Machine deployments of a cluster that was never claimed may be another manager's, whatever was
/// said of the cluster before it.
#[tokio::test(start_paused = true)]
async fn a_claim_on_one_cluster_says_nothing_of_another() {
    let world = World::new(&["berlin", "lisbon"]);
    world.register("berlin");
    let process = world.start_settled().await;
    assert_eq!(condition(&world, "berlin", "Claimed"), ["True", "Claimed"]);
    let lisbon = world.worker("lisbon");
    let mut theirs = fixtures::a_machine_deployment("workers");
    theirs["metadata"]["finalizers"] = json!(["kubermatic.io/cleanup-operating-system-configs"]);
    put(lisbon, theirs);
    for kind in ["rolebindings", "clusterrolebindings"] {
        for found in lisbon.objects(kind) {
            let (name, namespace) = (&found["metadata"]["name"], &found["metadata"]["namespace"]);
            let name = name.as_str().unwrap_or_default();
            if name == "operating-system-manager-worker-adoption" {
                let namespace = namespace.as_str().unwrap_or_default();
                assert!(lisbon.delete_raw(object(kind, namespace, name)));
            }
        }
    }
    let uid = lisbon.get(object("namespaces", "", "kube-system"));
    let uid = uid.expect("each cluster has it")["metadata"]["uid"].clone();
    world.configure("berlin", &json!({"confirmedClusterUid": uid}));
    let token = lisbon.token(&crate::world::account("kube-system"));
    let mut leads_there = fixtures::a_registration("lisbon", &token);
    for field in ["name", "namespace"] {
        leads_there["metadata"][field] = json!("berlin");
    }
    put(&world.management, leads_there);
    // The second attempt knows no more than the first.
    tokio::time::sleep(Duration::from_mins(5)).await;
    assert_eq!(
        condition(&world, "berlin", "Adopted"),
        ["False", "AdoptionForbidden"]
    );
    assert_eq!(world.condition("berlin", "Claimed")["status"], "False");
    process.stop().await;
}

/// A certificate authority that is good from one day to another, counted from now.
pub fn an_authority(now: Timestamp, days: [i64; 2]) -> String {
    let [from, to] = days.map(|days| {
        let at = now + SignedDuration::from_hours(days * 24);
        let date = at.to_zoned(jiff::tz::TimeZone::UTC).date();
        let part = |part: i8| u8::try_from(part).expect("of a date");
        rcgen::date_time_ymd(date.year().into(), part(date.month()), part(date.day()))
    });
    let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).expect("a name");
    (params.not_before, params.not_after) = (from, to);
    let key = rcgen::KeyPair::generate().expect("a key");
    params.self_signed(&key).expect("a certificate").pem()
}
