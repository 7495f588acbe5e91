//! The order of writes, and what each of them carries so that a late one does no harm.

use http::Method;
use serde_json::{Value, json};

use crate::{
    scenarios::{BOOTSTRAP, KUBELET_KUBECONFIG, PROVISIONING, Scenario},
    wire::{Life, Sent},
    world::put,
};

const CONFIG: &str = "workers-kube-system-config";
/// The digest of what something was rendered from, the renderer's generation among it.
const INPUTS: &str = "/metadata/annotations/operatingsystemmanager.k8c.io~1inputs";

/// What is written because of a scenario's event, in order.
async fn writes(scenario: Scenario) -> Vec<Sent> {
    let world = scenario.world();
    let life = Life::new();
    let process = world.start_as(&life);
    if scenario.begins_settled() {
        world.settle().await;
        tokio::time::sleep(scenario.lead()).await;
        life.forget();
    }
    scenario.happen(&world).await;
    tokio::time::sleep(scenario.takes()).await;
    world.settle().await;
    process.stop().await;
    life.writes()
}

async fn check(scenario: Scenario, expected: &[String]) {
    let writes = writes(scenario).await;
    let lines: Vec<String> = writes.iter().map(Sent::line).collect();
    assert_eq!(lines, expected, "{scenario:?}");
    for write in &writes {
        assert!(is_guarded(write), "{scenario:?}: {write:?}");
    }
}

/// An update or deletion names the object that it is about, not only its name, and its process has
/// a Lease.
fn is_guarded(write: &Sent) -> bool {
    let has = |pointer: &str| write.body.pointer(pointer).is_some_and(Value::is_string);
    let names_object = match write.method {
        Method::POST => true,
        Method::PUT => has("/metadata/resourceVersion") && has("/metadata/uid"),
        Method::DELETE => has("/preconditions/uid"),
        _ => match &write.body {
            Value::Array(operations) => operations
                .iter()
                .any(|operation| operation.get("op").is_some_and(|op| op == "test")),
            _ => has("/metadata/resourceVersion"),
        },
    };
    names_object && write.leased.is_some()
}

fn lines(writes: &[(&str, &str)]) -> Vec<String> {
    let lines = writes.iter().map(|(verb, name)| format!("{verb} {name}"));
    lines.collect()
}

#[tokio::test(start_paused = true)]
async fn a_token_is_written_first_and_the_bootstrap_document_last() {
    let all = writes(Scenario::Create).await;
    let mut made: Vec<String> = all.iter().map(Sent::line).collect();
    let is_token = |line: &String| line.starts_with("POST secrets bootstrap-token-");
    let first = made.iter().position(is_token);
    made.drain(..=first.expect("a token is made"));
    // The default profile is installed beside.
    made.retain(|line| !line.contains("operatingsystemprofiles"));
    let expected = lines(&[
        ("POST secrets", KUBELET_KUBECONFIG),
        ("POST operatingsystemconfigs", CONFIG),
        ("POST secrets", PROVISIONING),
        ("POST secrets", BOOTSTRAP),
    ]);
    assert_eq!(made, expected);
}

#[tokio::test(start_paused = true)]
async fn the_same_bytes_are_stamped_and_nothing_is_deleted() {
    let expected = lines(&[
        ("PATCH operatingsystemconfigs", CONFIG),
        ("PUT secrets", PROVISIONING),
        ("PUT secrets", BOOTSTRAP),
    ]);
    check(Scenario::Revision, &expected).await;
    check(Scenario::ProfileVersion, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_generation_stamps_the_same_bytes_and_replaces_no_machine() {
    let (world, process) = Scenario::Provisioning.settled().await;
    process.stop().await;
    let made = [
        (world.worker("berlin"), "secrets"),
        (&world.management, "operatingsystemconfigs"),
    ];
    for (cluster, resource) in made {
        for mut object in cluster.objects(resource) {
            if let Some(inputs) = object.pointer_mut(INPUTS) {
                *inputs = json!("of another generation");
                put(cluster, object);
            }
        }
    }
    let life = Life::new();
    let process = world.start_settled_as(&life).await;
    process.stop().await;
    let expected = lines(&[
        ("PATCH operatingsystemconfigs", CONFIG),
        ("PUT secrets", PROVISIONING),
        ("PUT secrets", BOOTSTRAP),
    ]);
    assert_eq!(life.lines(), expected);
}

#[tokio::test(start_paused = true)]
async fn other_bytes_take_the_bootstrap_document_away_first() {
    let expected = lines(&[
        ("DELETE secrets", BOOTSTRAP),
        ("DELETE operatingsystemconfigs", CONFIG),
        ("POST operatingsystemconfigs", CONFIG),
        ("DELETE secrets", PROVISIONING),
        ("POST secrets", PROVISIONING),
        ("POST secrets", BOOTSTRAP),
    ]);
    check(Scenario::RevisionAndProvisioning, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn the_bootstrap_document_stays_where_only_the_other_one_differs() {
    let expected = lines(&[
        // What the change takes on machines that run.
        ("PUT secrets", KUBELET_KUBECONFIG),
        ("DELETE operatingsystemconfigs", CONFIG),
        ("POST operatingsystemconfigs", CONFIG),
        ("DELETE secrets", PROVISIONING),
        ("POST secrets", PROVISIONING),
        ("PUT secrets", BOOTSTRAP),
    ]);
    check(Scenario::Provisioning, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn the_kubelet_kubeconfig_is_updated_in_place() {
    let expected = lines(&[
        ("PUT secrets", KUBELET_KUBECONFIG),
        ("DELETE secrets", BOOTSTRAP),
        ("DELETE operatingsystemconfigs", CONFIG),
        ("POST operatingsystemconfigs", CONFIG),
        ("PUT secrets", PROVISIONING),
        ("POST secrets", BOOTSTRAP),
    ]);
    check(Scenario::Settings, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_edit_is_undone_and_nothing_else_is_touched() {
    let expected = lines(&[
        ("DELETE secrets", PROVISIONING),
        ("POST secrets", PROVISIONING),
    ]);
    check(Scenario::Tampering, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn a_renewed_token_changes_its_secret_alone() {
    let writes = writes(Scenario::Renewal).await;
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert!(writes[0].line().starts_with("PUT secrets bootstrap-token-"));
    assert!(is_guarded(&writes[0]));
}

#[tokio::test(start_paused = true)]
async fn a_rotated_kubeconfig_writes_nothing() {
    check(Scenario::Kubeconfig, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_takes_the_bootstrap_document_first_and_the_finalizer_last() {
    let writes = writes(Scenario::Deletion).await;
    let lines: Vec<String> = writes.iter().map(Sent::line).collect();
    let token = lines
        .iter()
        .position(|line| line.starts_with("DELETE secrets bootstrap-token-"));
    assert_eq!(token, Some(3), "{lines:?}");
    let expected = [
        (0, format!("DELETE secrets {BOOTSTRAP}")),
        (1, format!("DELETE secrets {PROVISIONING}")),
        (2, format!("DELETE secrets {KUBELET_KUBECONFIG}")),
        (4, format!("DELETE operatingsystemconfigs {CONFIG}")),
        (5, "PATCH machinedeployments workers".to_owned()),
    ];
    for (place, line) in expected {
        assert_eq!(lines[place], line);
    }
    assert_eq!(lines.len(), 6, "{lines:?}");
    for write in &writes {
        assert!(is_guarded(write), "{write:?}");
    }
}
