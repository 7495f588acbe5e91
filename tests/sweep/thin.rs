//! Default profiles in tenants' namespaces are thin: their content is in the manager's namespace.

use std::collections::BTreeMap;
use std::time::Duration;

use fake_cluster::{Cluster, object};
use serde_json::{Value, json};

use crate::{
    fixtures,
    rollout::at,
    scenarios::{BOOTSTRAP, PROVISIONING, annotate, document, set},
    snapshot::boot_secret,
    world::{ACCOUNT, World, put},
};

const PROFILES: &str = "operatingsystemprofiles";
const UBUNTU: &str = "osp-ubuntu";

fn profile(world: &World, namespace: &str, name: &str) -> Value {
    let found = world.management.get(object(PROFILES, namespace, name));
    found.unwrap_or_default()
}

/// What a tenant's default profile extends; null if it is whole.
fn content(world: &World, tenant: &str) -> Value {
    let found = profile(world, tenant, UBUNTU);
    let content = at(&found, "/spec/extends");
    let has_files = |half: &str| !at(&found, &format!("/spec/{half}/files")).is_null();
    let halves = ["bootstrapConfig", "provisioningConfig"].map(has_files);
    assert_eq!(halves, [content.is_null(); 2], "{found}");
    content
}

/// A tenant with one default profile, and a machine deployment that uses it.
fn a_tenant(world: &World, tenant: &str, spec: Value) {
    let mut settings = json!({"defaultProfileNames": [UBUNTU]});
    if let (Some(settings), Value::Object(spec)) = (settings.as_object_mut(), spec) {
        settings.extend(spec);
    }
    world.configure(tenant, &settings);
    world.register(tenant);
    deploy(world.worker(tenant), "workers");
}

fn deploy(worker: &Cluster, name: &str) {
    let mut machine_deployment = fixtures::a_machine_deployment(name);
    annotate(&mut machine_deployment, fixtures::PROFILE, UBUNTU);
    put(worker, machine_deployment);
}

fn secrets(worker: &Cluster) -> BTreeMap<String, Value> {
    let all = worker.objects("secrets").into_iter();
    let named = all.map(|it| (at(&it, "/metadata/name").to_string(), at(&it, "/metadata")));
    let is_document = |name: &str| name.contains("-config");
    named.filter(|(name, _)| is_document(name)).collect()
}

#[tokio::test(start_paused = true)]
async fn tenants_share_one_content_and_become_whole_without_a_rotation() {
    let world = World::new(&["berlin", "lisbon"]);
    a_tenant(&world, "berlin", json!({}));
    a_tenant(&world, "lisbon", json!({"defaultProfileContent": "Whole"}));
    let process = world.start_settled().await;
    let contents = ["berlin", "lisbon"].map(|it| content(&world, it));
    assert_eq!(contents, [json!("osp-ubuntu@v1.0.0"), Value::Null]);
    let shared = profile(&world, ACCOUNT, "osp-ubuntu-v1.0.0")["spec"].take();
    assert_eq!(shared, profile(&world, "lisbon", UBUNTU)["spec"]);
    for tenant in ["berlin", "lisbon"] {
        let worker = world.worker(tenant);
        assert!(document(worker, PROVISIONING).contains("text"), "{tenant}");
    }
    let before = secrets(world.worker("berlin"));
    world.change_own("berlin", |own| {
        set(own, "/spec/defaultProfileContent", json!("Whole"));
    });
    world.settle().await;
    assert_eq!(profile(&world, "berlin", UBUNTU)["spec"], shared);
    assert_eq!(secrets(world.worker("berlin")), before);
    let installed = world.condition("berlin", "ProfilesInstalled");
    assert_eq!(installed["reason"], "Installed", "{installed}");
    process.stop().await;
}

/// Going to a newer release, and back.
#[tokio::test(start_paused = true)]
async fn a_version_of_another_release_is_read_in_the_managers_namespace() {
    let mut world = World::new(&["berlin"]);
    a_tenant(
        &world,
        "berlin",
        json!({"rollout": {"defaultProfiles": "Manual"}}),
    );
    let old = world.default_profiles.clone();
    let new = fixtures::default_profiles("v2.0.0", "newer\n");
    let process = world.start_settled().await;
    let before = secrets(world.worker("berlin"));
    process.stop().await;

    world.default_profiles = new;
    let process = world.start_settled().await;
    let told = world.condition("berlin", "ProfilesInstalled");
    assert_eq!(told["reason"], "AwaitingApproval", "{told}");
    deploy(world.worker("berlin"), "others");
    world.settle().await;
    let others = "others-kube-system-provisioning-config";
    assert!(document(world.worker("berlin"), others).contains("text"));
    let mut after = secrets(world.worker("berlin"));
    after.retain(|name, _| !name.contains("others"));
    assert_eq!(after, before, "nothing was rotated");

    world.change_own("berlin", |own| {
        set(own, "/spec/rollout/defaultProfiles", json!("Immediate"));
    });
    world.settle().await;
    assert_eq!(content(&world, "berlin"), "osp-ubuntu@v2.0.0");
    let before = secrets(world.worker("berlin"));
    process.stop().await;

    world.default_profiles = old;
    let process = world.start_settled().await;
    assert_eq!(content(&world, "berlin"), "osp-ubuntu@v2.0.0");
    let told = world.condition("berlin", "ProfilesInstalled");
    let message = told["message"].to_string();
    assert!(message.contains("of a newer release, and kept"), "{told}");
    deploy(world.worker("berlin"), "last");
    world.settle().await;
    let last = "last-kube-system-provisioning-config";
    assert!(document(world.worker("berlin"), last).contains("newer"));
    let mut after = secrets(world.worker("berlin"));
    after.retain(|name, _| !name.contains("last"));
    assert_eq!(after, before, "nothing was rotated");
    process.stop().await;
}

#[tokio::test(start_paused = true)]
async fn where_a_content_is_gone_what_stands_is_kept_until_it_is_back() {
    let mut world = World::new(&["berlin"]);
    a_tenant(
        &world,
        "berlin",
        json!({"rollout": {"defaultProfiles": "Manual"}}),
    );
    let process = world.start_settled().await;
    process.stop().await;
    let before = secrets(world.worker("berlin"));
    let target = object(PROFILES, ACCOUNT, "osp-ubuntu-v1.0.0");
    let gone = profile(&world, ACCOUNT, "osp-ubuntu-v1.0.0");
    assert!(world.management.delete_raw(target));

    world.default_profiles = fixtures::default_profiles("v2.0.0", "newer\n");
    let process = world.start_settled().await;
    deploy(world.worker("berlin"), "others");
    world.settle().await;
    let ready = world.condition("berlin", "Ready");
    let why = "the content of osp-ubuntu@v1.0.0 is not known here";
    assert!(ready["message"].to_string().contains(why), "{ready}");
    assert_eq!(
        secrets(world.worker("berlin")),
        before,
        "nothing was written"
    );
    put(&world.management, gone);
    tokio::time::sleep(Duration::from_mins(11)).await;
    world.settle().await;
    let others = "others-kube-system-provisioning-config";
    assert!(document(world.worker("berlin"), others).contains("text"));
    process.stop().await;
}

/// Another build's, say.
#[tokio::test(start_paused = true)]
async fn where_another_content_has_the_name_profiles_are_whole() {
    let world = World::new(&["berlin"]);
    let mut other = fixtures::a_profile(ACCOUNT, "v1.0.0", "other\n");
    set(&mut other, "/metadata/name", json!("osp-ubuntu-v1.0.0"));
    let label = json!({"operatingsystemmanager.k8c.io/default-profile": UBUNTU});
    set(&mut other, "/metadata/labels", label);
    put(&world.management, other);
    a_tenant(&world, "berlin", json!({}));
    let process = world.start_settled().await;
    assert_eq!(content(&world, "berlin"), Value::Null);
    assert!(boot_secret(world.worker("berlin"), BOOTSTRAP).is_some());
    assert!(document(world.worker("berlin"), PROVISIONING).contains("text"));
    process.stop().await;
}

/// The first wave is one of them, and the others stay with the version that they name.
#[tokio::test(start_paused = true)]
async fn a_hundred_thin_tenants_are_upgraded_in_waves() {
    let names: Vec<String> = (0..100).map(|number| format!("t-{number:03}")).collect();
    let names: Vec<&'static str> = names.into_iter().map(|it| &*it.leak()).collect();
    let mut world = World::new(&names);
    for tenant in &names {
        a_tenant(&world, tenant, json!({}));
    }
    let process = world.start_settled().await;
    process.stop().await;
    world.default_profiles = fixtures::default_profiles("v2.0.0", "newer\n");
    let process = world.start();
    let at = |version: &str| {
        let thin = json!(format!("{UBUNTU}@{version}"));
        let contents = names.iter().map(|it| content(&world, it));
        contents.filter(|it| *it == thin).count()
    };
    let mut counts = vec![0];
    while at("v1.0.0") > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let count = at("v2.0.0");
        assert_eq!(at("v1.0.0"), 100 - count);
        if counts.last() != Some(&count) {
            counts.push(count);
        }
    }
    assert_eq!(counts.get(1), Some(&1), "{counts:?}");
    let contents = world.management.objects(PROFILES);
    let contents = contents.iter();
    let contents = contents.filter(|it| it["metadata"]["namespace"] == ACCOUNT);
    assert_eq!(contents.count(), 2, "one for each version");
    world.settle().await;
    process.stop().await;
}
