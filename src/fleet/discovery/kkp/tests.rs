//! What is said about user clusters as they change.

use std::time::Duration;

use fake_cluster::{Cluster, Fault, Matcher, Verb, object};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::api::names::WORKER_CLUSTER_LABEL;

/// Longer than all delays of a read that fails a few times.
const PATIENCE: Duration = Duration::from_mins(2);

fn a_secret(namespace: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": namespace, "labels": labels},
        "data": {"kubeconfig": "aw=="},
    })
}

fn a_deployment(namespace: &str, replicas: i32, line: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": DEPLOYMENT, "namespace": namespace, "generation": 1},
        "spec": {
            "replicas": replicas, "selector": {},
            "template": {"spec": {"containers": [{"name": "a", "command": [line]}]}},
        },
    })
}

/// Reads a pause image from the command, and refuses `wrong`.
fn read() -> ReadSettings {
    Arc::new(|deployment, secret| {
        let pod = deployment.spec.template.spec.clone();
        let line = pod.unwrap().containers[0].command.clone().unwrap().concat();
        if line == "wrong" {
            return Err("it is wrong".to_owned());
        }
        let spec = json!({
            "kubeconfigSecretRef": {"name": secret}, "home": "Worker", "pauseImage": line,
        });
        Ok(serde_json::from_value(spec).unwrap())
    })
}

struct Seed {
    cluster: Cluster,
    changes: BoxStream<'static, Discovered>,
}

impl Seed {
    fn with(objects: &[Value]) -> Self {
        let cluster = Cluster::default();
        for object in objects {
            cluster.put_raw(object.clone()).unwrap();
        }
        let changes = discover(&cluster.client(), &Scope::All, (cluster.client(), read())).boxed();
        Self { cluster, changes }
    }

    async fn next(&mut self) -> String {
        let next = timeout(PATIENCE, self.changes.next()).await;
        match next.expect("something is said").unwrap() {
            Discovered::Present(it) => {
                let settings = match it.settings {
                    Settings::Inventory(own) => own.spec.pause_image.clone().unwrap(),
                    Settings::Unusable(why) => why,
                    Settings::Operator => "?".to_owned(),
                };
                format!("{}: {settings}", it.id)
            }
            Discovered::Gone(Gone { id, why, .. }) => {
                format!("{id} is gone: {}", why.expect("it is known"))
            }
            Discovered::Complete { seen, .. } => format!("{} in all", seen.len()),
        }
    }

    async fn says_nothing(&mut self) {
        let next = timeout(PATIENCE, self.changes.next()).await;
        assert!(next.is_err(), "{next:?}");
    }

    fn put(&self, object: Value) {
        self.cluster.put_raw(object).unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_registered_while_its_manager_wants_no_replica() {
    let mut seed = Seed::with(&[
        a_secret("cluster-a", &json!({})),
        a_deployment("cluster-a", 0, "one"),
        a_secret("cluster-b", &json!({})),
        a_deployment("cluster-b", 1, "one"),
        a_secret("other", &json!({})),
        a_deployment("other", 0, "one"),
        a_deployment("cluster-c", 0, "one"),
    ]);
    assert_eq!(seed.next().await, format!("cluster-a/{SECRET}: one"));
    assert_eq!(seed.next().await, "1 in all");
    let mut scaled = a_deployment("cluster-b", 0, "two");
    scaled["metadata"]["generation"] = json!(2);
    seed.put(scaled);
    assert_eq!(seed.next().await, format!("cluster-b/{SECRET}: two"));
    seed.put(a_secret("cluster-c", &json!({})));
    assert_eq!(seed.next().await, format!("cluster-c/{SECRET}: one"));
    let mut back = a_deployment("cluster-a", 1, "one");
    back["metadata"]["generation"] = json!(2);
    seed.put(back);
    let why = "its Deployment operating-system-manager wants 1 replica";
    let gone = format!("cluster-a/{SECRET} is gone: {why}");
    assert_eq!(seed.next().await, gone);
    let gone = object("secrets", "cluster-b", SECRET);
    assert!(seed.cluster.delete_raw(gone));
    let gone = format!("cluster-b/{SECRET} is gone: it has no Secret {SECRET}");
    assert_eq!(seed.next().await, gone);
    seed.says_nothing().await;
}

#[tokio::test(start_paused = true)]
async fn a_status_is_no_change_and_what_cannot_be_used_is_said() {
    let mut seed = Seed::with(&[
        a_secret("cluster-a", &json!({})),
        a_deployment("cluster-a", 0, "one"),
    ]);
    seed.next().await;
    seed.next().await;
    let mut same = a_deployment("cluster-a", 0, "one");
    same["status"] = json!({"replicas": 0});
    seed.put(same);
    seed.says_nothing().await;
    let mut wrong = a_deployment("cluster-a", 0, "wrong");
    wrong["metadata"]["generation"] = json!(2);
    seed.put(wrong);
    let said = seed.next().await;
    assert_eq!(said, format!("cluster-a/{SECRET}: it is wrong"));
}

#[tokio::test(start_paused = true)]
async fn a_read_that_fails_says_nothing_and_is_made_again() {
    let mut seed = Seed::with(&[
        a_secret("cluster-a", &json!({})),
        a_deployment("cluster-a", 0, "one"),
    ]);
    seed.next().await;
    seed.next().await;
    let fault = Fault::Status {
        code: 500,
        retry_after: None,
    };
    let failure = seed
        .cluster
        .inject(Matcher::on(&[Verb::Get], "deployments"), fault);
    seed.put(a_secret("cluster-a", &json!({"changed": "true"})));
    seed.says_nothing().await;
    seed.cluster.clear_fault(failure);
    assert_eq!(seed.next().await, format!("cluster-a/{SECRET}: one"));
}

/// Nothing is released by a list, only by what is certainly not there.
#[tokio::test(start_paused = true)]
async fn a_list_that_lacks_a_cluster_releases_nothing() {
    let mut hints = Hints::new(&Scope::All);
    let seen = |part| Hint::Seen(part, "cluster-a".to_owned(), "1".to_owned());
    assert_eq!(hints.changed(seen(hints::Part::Secret)), ["cluster-a"]);
    assert!(hints.changed(seen(hints::Part::Secret)).is_empty());
    let empty = Hint::Listed(hints::Part::Secret, None, BTreeSet::new());
    assert_eq!(hints.changed(empty), ["cluster-a"], "it is looked for");
    assert!(!hints.are_complete());
}

#[tokio::test(start_paused = true)]
async fn one_with_the_label_is_the_operators() {
    let labels = json!({WORKER_CLUSTER_LABEL: "true"});
    let mut seed = Seed::with(&[
        a_secret("cluster-a", &labels),
        a_deployment("cluster-a", 0, "one"),
    ]);
    assert_eq!(seed.next().await, "0 in all");
}

/// Who may make such Secrets costs the seed two lists.
#[tokio::test(start_paused = true)]
async fn thousands_of_secrets_without_a_manager_cost_no_read() {
    let secrets = (0..3_000).map(|it| a_secret(&format!("cluster-{it}"), &json!({})));
    let mut objects: Vec<Value> = secrets.collect();
    objects.push(a_deployment("cluster-7", 0, "one"));
    let mut seed = Seed::with(&objects);
    assert_eq!(seed.next().await, format!("cluster-7/{SECRET}: one"));
    assert_eq!(seed.next().await, "1 in all");
    let gets = |it: &fake_cluster::AuditEntry| it.verb == Verb::Get;
    assert_eq!(seed.cluster.count_requests(gets), 2);
}

/// What was read before a change is never said after it.
#[tokio::test(start_paused = true)]
async fn what_changes_during_a_slow_read_is_read_again() {
    let mut seed = Seed::with(&[
        a_secret("cluster-a", &json!({})),
        a_deployment("cluster-a", 0, "one"),
    ]);
    seed.next().await;
    seed.next().await;
    let slow = Fault::Delay(Duration::from_secs(5));
    seed.cluster
        .inject(Matcher::on(&[Verb::Get], "deployments"), slow);
    // The Secret is read at once, and the Deployment later.
    seed.put(a_secret("cluster-a", &json!({"turn": "1"})));
    let early = timeout(Duration::from_secs(1), seed.changes.next()).await;
    assert!(early.is_err(), "{early:?}");
    let mut renewed = a_secret("cluster-a", &json!({"turn": "2"}));
    renewed["data"]["kubeconfig"] = json!("bmV3");
    seed.put(renewed);
    let said = timeout(PATIENCE, seed.changes.next()).await;
    let Some(Discovered::Present(registration)) = said.expect("something is said") else {
        panic!("it is registered");
    };
    let kubeconfig = registration.kubeconfig.text().expect("it has one");
    assert_eq!(kubeconfig.expose(), b"new");
    seed.says_nothing().await;
}

/// What cannot be decoded is no reason to leave a cluster.
#[tokio::test(start_paused = true)]
async fn a_deployment_that_cannot_be_decoded_releases_nothing() {
    let mut seed = Seed::with(&[
        a_secret("cluster-a", &json!({})),
        a_deployment("cluster-a", 0, "one"),
    ]);
    seed.next().await;
    seed.next().await;
    let mut torn = a_deployment("cluster-a", 0, "one");
    torn["metadata"]["generation"] = json!(2);
    torn["spec"] = json!("text");
    seed.put(torn);
    let said = seed.next().await;
    assert!(said.contains("cannot be decoded"), "{said}");
}
