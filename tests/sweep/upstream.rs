//! Defects of the program that users run today, one test for each that no other test names; the
//! table in `docs/testing.md` has them all.

use std::time::Duration;

use fake_cluster::{Fault, Matcher, Verb, object};
use osm::client::watch::RELIST;
use serde_json::{Value, json};

use crate::{
    fixtures,
    scenarios::{
        self, BOOTSTRAP, PROVISIONING, Scenario, annotations, change_machine_deployment,
        delete_machine_deployment, profile, raise_revision, set,
    },
    snapshot::{self, boot_secret, text},
    world::{World, put},
};

const CONFIG: &str = "workers-kube-system-config";

fn document(world: &World, tenant: &str, name: &str) -> String {
    scenarios::document(world.worker(tenant), name)
}

fn config() -> fake_cluster::ObjectRef<'static> {
    object("operatingsystemconfigs", "berlin", CONFIG)
}

/// The one before deleted the config, died, and took the Secrets of before for current ever after.
#[tokio::test(start_paused = true)]
async fn a_rotation_that_ended_after_the_configs_deletion_goes_on_with_the_secrets() {
    let (world, process) = Scenario::RevisionAndProvisioning.settled().await;
    process.kill().await;
    assert!(world.management.delete_raw(config()));
    Scenario::RevisionAndProvisioning.happen(&world).await;
    let process = world.start_settled().await;
    process.stop().await;
    for name in [BOOTSTRAP, PROVISIONING] {
        let secret = boot_secret(world.worker("berlin"), name).expect("it is there");
        let revision = "/metadata/annotations/k8c.io~1machine-deployment-revision";
        assert_eq!(text(&secret, revision), "2", "{name}");
    }
    assert!(document(&world, "berlin", PROVISIONING).contains("another text"));
}

/// A list shows what was deleted; nothing is rendered from what it shows, and the next list tells.
#[tokio::test(start_paused = true)]
async fn a_config_that_only_an_old_list_shows_is_recreated() {
    let (world, process) = Scenario::Provisioning.settled().await;
    let before = snapshot::take(&world);
    process.stop().await;
    assert!(world.management.delete_raw(config()));
    let stale = Fault::StaleList { revisions: 1 };
    let lists = Matcher::on(&[Verb::List], "operatingsystemconfigs");
    world.management.inject_times(lists, stale, 2);
    let process = world.start();
    tokio::time::sleep(RELIST * 4 / 3 + Duration::from_secs(30)).await;
    process.stop().await;
    assert_eq!(snapshot::difference(&before, &snapshot::take(&world)), None);
}

/// It waited for an event of the machine deployment, or ten hours.
#[tokio::test(start_paused = true)]
async fn a_changed_profile_waits_for_no_event_of_a_machine_deployment() {
    let (world, process) = Scenario::Provisioning.settled().await;
    profile(&world, "another text\n");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(document(&world, "berlin", PROVISIONING).contains("another text"));
    process.stop().await;
}

/// Each `kubectl apply` deleted and made everything, for the same bytes.
#[tokio::test(start_paused = true)]
async fn what_kubectl_notes_of_itself_deletes_nothing() {
    let (world, process, life) = Scenario::Provisioning.settled_with_life().await;
    change_machine_deployment(world.worker("berlin"), "workers", |found| {
        let note = "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration";
        set(found, note, json!("{}"));
    });
    world.settle().await;
    process.stop().await;
    let lines = life.lines();
    assert_ne!(lines, [""; 0], "the annotations are part of what is noted");
    let deletes = lines.iter().any(|line| line.starts_with("DELETE"));
    assert!(!deletes, "{lines:?}");
}

/// Without the annotation it was seen no more, and its finalizer stayed.
#[tokio::test(start_paused = true)]
async fn a_machine_deployment_that_lost_its_annotation_can_still_be_deleted() {
    let world = Scenario::Deletion.world();
    let spec = json!({"profileAnnotation": "RequireAnnotation"});
    world.configure("berlin", &spec);
    let process = world.start_settled().await;
    let berlin = world.worker("berlin");
    assert!(boot_secret(berlin, BOOTSTRAP).is_some());
    change_machine_deployment(berlin, "workers", |found| annotations(found).clear());
    world.settle().await;
    delete_machine_deployment(berlin, "workers").await;
    world.settle().await;
    process.stop().await;
    assert_eq!(berlin.objects("machinedeployments"), [Value::Null; 0]);
    assert!(boot_secret(berlin, BOOTSTRAP).is_none());
}

/// They were kept in what all reconciles share, and stayed there.
#[tokio::test(start_paused = true)]
async fn credentials_of_registries_reach_no_other_tenant_and_go_with_their_reference() {
    let world = World::new(&["berlin", "lisbon"]);
    let print = "{{ ContainerRuntimeConfig }}\n";
    for name in ["berlin", "lisbon"] {
        world.register(name);
        world.add_profile(name, "v1.0.0", print);
        world.deploy(name, "workers");
    }
    world.give_registry_credentials(r#"{"username":"u","password":"of-berlin"}"#);
    let process = world.start_settled().await;
    assert!(document(&world, "berlin", PROVISIONING).contains("of-berlin"));
    assert!(!document(&world, "lisbon", PROVISIONING).contains("of-berlin"));
    assert!(!document(&world, "lisbon", PROVISIONING).is_empty());
    world.change_own("berlin", |own| {
        if let Some(spec) = own.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("registryCredentialsSecretRef");
        }
    });
    world.settle().await;
    process.stop().await;
    assert!(!document(&world, "berlin", PROVISIONING).contains("of-berlin"));
}

/// It dereferenced what was not there, and panicked.
#[tokio::test(start_paused = true)]
async fn a_machine_deployment_without_a_provider_spec_harms_no_other() {
    let world = Scenario::Create.world();
    let berlin = world.worker("berlin");
    let mut empty = fixtures::a_machine_deployment("empty");
    set(&mut empty, "/spec/template/spec/providerSpec", json!({}));
    put(berlin, empty);
    let process = world.start_settled().await;
    assert!(boot_secret(berlin, BOOTSTRAP).is_some());
    assert!(boot_secret(berlin, "empty-kube-system-bootstrap-config").is_none());
    process.stop().await;
}

/// The next pass, after a crash in the middle, must not be stopped by what is there already.
#[tokio::test(start_paused = true)]
async fn an_edge_script_that_is_there_already_stops_no_rotation() {
    let (world, process) = Scenario::EdgeSettings.settled().await;
    process.kill().await;
    assert!(world.management.delete_raw(config()));
    raise_revision(world.worker("berlin"));
    let process = world.start_settled().await;
    process.stop().await;
    assert!(world.management.get(config()).is_some());
    let secret = boot_secret(world.worker("berlin"), BOOTSTRAP).expect("it is there");
    let revision = "/metadata/annotations/k8c.io~1machine-deployment-revision";
    assert_eq!(text(&secret, revision), "2");
}
