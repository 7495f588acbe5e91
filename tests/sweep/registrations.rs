//! The kubeconfigs of registrations: whose they are, and who renews them.

use std::time::Duration;

use fake_cluster::{Cluster, Fault, Matcher, Verb, object};
use osm::{client::token, tenant::access::renewal::ServiceAccountName};
use serde_json::{Value, json};

use crate::{
    fixtures,
    registry::condition,
    scenarios::{change, set},
    snapshot::text,
    wire::Life,
    world::{ACCOUNT, World, account, put, settings},
};

/// Shorter than any delay that is waited for here.
const MOMENT: Duration = Duration::from_secs(10);

/// A token that says whose it is, for a day.
async fn a_day_long_token(worker: &Cluster) -> String {
    let osm = ServiceAccountName {
        namespace: "kube-system".to_owned(),
        name: ACCOUNT.to_owned(),
    };
    let token = token::request(&worker.client(), &osm, None, 24 * 3600).await;
    token.expect("it is granted").expose().to_owned()
}

/// Another cluster behind the same address: a new token of the same user is no reason to serve
/// it.
#[tokio::test(start_paused = true)]
async fn a_renewed_credential_that_leads_to_another_cluster_is_refused() {
    let world = World::with_berlin();
    let berlin = world.worker("berlin");
    let renew = async || {
        let mut renewed = fixtures::a_registration("berlin", &a_day_long_token(berlin).await);
        change(
            &world.management,
            ("secrets", "berlin", "berlin"),
            |secret| {
                set(secret, "/data", renewed["data"].take());
            },
        );
    };
    renew().await;
    let process = world.start_settled().await;
    assert_eq!(condition(&world, "berlin", "Claimed")[0], "True");
    change(berlin, ("namespaces", "", "kube-system"), |found| {
        set(found, "/metadata/uid", json!("another"));
    });
    world.settle().await;
    let claimed = condition(&world, "berlin", "Claimed");
    assert_eq!(claimed[0], "True", "nobody looks without a reason");
    renew().await;
    world.settle().await;
    let claimed = condition(&world, "berlin", "Claimed");
    assert_eq!(claimed, ["False", "ClusterChanged"]);
    process.stop().await;
}

/// The Secret with the kubeconfig of `prod` that Cluster API would make, in tenant `berlin`.
fn of_cluster_api(token: &str) -> Value {
    let mut secret = fixtures::a_registration("berlin", token);
    let kubeconfig = secret.pointer("/data/kubeconfig").cloned();
    for (field, value) in [
        ("/metadata/name", json!("prod-kubeconfig")),
        ("/metadata/labels", json!({})),
        ("/type", json!("cluster.x-k8s.io/secret")),
        ("/data", json!({"value": kubeconfig})),
    ] {
        set(&mut secret, field, value);
    }
    secret
}

/// A Secret is made again under its name: until a watch reports it, its kubeconfig is not used.
#[tokio::test(start_paused = true)]
async fn a_kubeconfig_is_that_of_the_secret_that_was_found() {
    let mut world = World::new(&["berlin"]);
    world.settings = settings(&["--inventory=label,cluster-api"]);
    let management = &world.management;
    let token = world.worker("berlin").token(&account("kube-system"));
    put(management, of_cluster_api(&token));
    let reads = Matcher {
        name: Some("prod-kubeconfig".to_owned()),
        ..Matcher::on(&[Verb::Get], "secrets")
    };
    management.inject_times(reads, Fault::Delay(MOMENT), 1);
    let life = Life::new();
    let process = world.start_as(&life);
    tokio::time::sleep(MOMENT / 2).await;
    let again = Matcher::on(&[Verb::List, Verb::Watch], "secrets");
    let late = management.inject(again, Fault::Delay(MOMENT * 12));
    management.close_watches();
    assert!(management.delete_raw(object("secrets", "berlin", "prod-kubeconfig")));
    put(management, of_cluster_api(&token));
    tokio::time::sleep(MOMENT * 6).await;
    assert!(!life.has_called("berlin"), "{:?}", life.lines());
    management.clear_fault(late);
    world.settle().await;
    assert!(life.has_called("berlin"), "it is served as it is now");
    process.stop().await;
}

/// Who made the Secret renews what is in it.
#[tokio::test(start_paused = true)]
async fn a_token_in_a_secret_of_another_program_is_not_renewed() {
    let mut world = World::new(&["berlin"]);
    world.settings = settings(&["--inventory=label,cluster-api", "--renew-tokens-after=1h"]);
    let berlin = world.worker("berlin");
    let token = a_day_long_token(berlin).await;
    put(&world.management, of_cluster_api(&token));
    let process = world.start_settled().await;
    change(
        &world.management,
        ("workerclusters", "berlin", "prod"),
        |own| {
            set(own, "/spec/credentials", json!("Renewed"));
        },
    );
    world.clear_audits();
    tokio::time::sleep(Duration::from_mins(90)).await;
    let audit = berlin.audit();
    let requested = audit.iter().filter(|it| it.target.subresource == "token");
    assert_eq!(requested.count(), 0);
    let own = world
        .management
        .get(object("workerclusters", "berlin", "prod"));
    let conditions = own.expect("it is registered")["status"]["conditions"].take();
    let mut conditions = conditions.as_array().into_iter().flatten();
    let valid = conditions.find(|it| it["type"] == "CredentialValid");
    let message = text(valid.expect("it is reported"), "/message");
    assert!(
        message.ends_with("belongs to another program, which renews it"),
        "{message}"
    );
    process.stop().await;
}
