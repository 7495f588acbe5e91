//! Default profiles in tenants' namespaces are thin: their content is in the manager's namespace.

use std::collections::BTreeMap;
use std::time::Duration;

use fake_cluster::{Cluster, Fault, Matcher, Verb, object};
use serde_json::{Value, json};

use crate::{
    fixtures,
    rollout::at,
    scenarios::{PROVISIONING, annotate, document, set},
    world::{ACCOUNT, World, put},
};

const PROFILES: &str = "operatingsystemprofiles";
const UBUNTU: &str = "osp-ubuntu";

fn profile(world: &World, namespace: &str, name: &str) -> Value {
    let found = world.management.get(object(PROFILES, namespace, name));
    found.unwrap_or_default()
}

/// The contents in the manager's namespace.
fn contents(world: &World) -> Vec<Value> {
    let all = world.management.objects(PROFILES).into_iter();
    all.filter(|it| at(it, "/metadata/namespace") == ACCOUNT)
        .collect()
}

/// The default profile and version that a tenant's one names, without the digest; null if it is
/// whole.
fn content(world: &World, tenant: &str) -> Value {
    let found = profile(world, tenant, UBUNTU);
    let content = at(&found, "/spec/extends");
    let content = content.as_str().and_then(|it| it.split('/').next());
    let content = json!(content);
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

/// The tenant stays with the version that it has.
fn manual() -> Value {
    json!({"rollout": {"defaultProfiles": "Manual"}})
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
    let named = ["berlin", "lisbon"].map(|it| content(&world, it));
    assert_eq!(named, [json!("osp-ubuntu@v1.0.0"), Value::Null]);
    let shared = contents(&world).pop().unwrap()["spec"].take();
    assert_eq!(shared, profile(&world, "lisbon", UBUNTU)["spec"]);
    for tenant in ["berlin", "lisbon"] {
        let worker = world.worker(tenant);
        assert!(document(worker, PROVISIONING).contains("text"), "{tenant}");
    }
    let before = secrets(world.worker("berlin"));
    world.change_own("berlin", |own| {
        set(own, "/spec/defaultProfileContent", json!("Whole"));
        // Also where none is installed any more.
        set(own, "/spec/defaultProfiles", json!("Disabled"));
    });
    world.settle().await;
    assert_eq!(profile(&world, "berlin", UBUNTU)["spec"], shared);
    assert_eq!(secrets(world.worker("berlin")), before);
    let installed = world.condition("berlin", "ProfilesInstalled");
    assert_eq!(installed["reason"], "Disabled", "{installed}");
    process.stop().await;
}

/// Going to a newer release, and back.
#[tokio::test(start_paused = true)]
async fn a_version_of_another_release_is_read_in_the_managers_namespace() {
    let mut world = World::new(&["berlin"]);
    a_tenant(&world, "berlin", manual());
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

/// As when somebody deletes the namespace. Returns one of them.
fn lose_contents(world: &World) -> Value {
    let all = contents(world);
    for content in &all {
        let name = at(content, "/metadata/name");
        let target = object(PROFILES, ACCOUNT, name.as_str().unwrap_or_default());
        assert!(world.management.delete_raw(target));
    }
    all.into_iter().next_back().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn where_a_content_is_gone_what_stands_is_kept_until_it_is_back() {
    let mut world = World::new(&["berlin"]);
    a_tenant(&world, "berlin", manual());
    let process = world.start_settled().await;
    process.stop().await;
    let before = secrets(world.worker("berlin"));
    let gone = lose_contents(&world);

    world.default_profiles = fixtures::default_profiles("v2.0.0", "newer\n");
    let process = world.start_settled().await;
    deploy(world.worker("berlin"), "others");
    world.settle().await;
    let ready = world.condition("berlin", "Ready");
    let why = "the content osp-ubuntu@v1.0.0/";
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

/// A manager that is installed again, or in another place.
#[tokio::test(start_paused = true)]
async fn a_content_is_written_again_by_a_release_that_has_it() {
    let world = World::new(&["berlin"]);
    a_tenant(&world, "berlin", json!({}));
    let process = world.start_settled().await;
    process.stop().await;
    let gone = lose_contents(&world);
    let process = world.start_settled().await;
    let back = contents(&world).pop().unwrap_or_default();
    assert_eq!(at(&back, "/spec"), at(&gone, "/spec"));
    process.stop().await;
}

/// A hotfix without a new version of the profiles, say.
#[tokio::test(start_paused = true)]
async fn another_content_of_the_same_version_rotates_nothing() {
    let mut world = World::new(&["berlin"]);
    a_tenant(&world, "berlin", json!({}));
    let process = world.start_settled().await;
    process.stop().await;
    let before = secrets(world.worker("berlin"));
    world.default_profiles = fixtures::default_profiles("v1.0.0", "other\n");
    let process = world.start_settled().await;
    assert_eq!(secrets(world.worker("berlin")), before);
    assert!(document(world.worker("berlin"), PROVISIONING).contains("text"));
    process.stop().await;
}

/// An API server that has just started answers so.
#[tokio::test(start_paused = true)]
async fn contents_are_waited_for_before_anything_is_reconciled() {
    let mut world = World::new(&["berlin"]);
    a_tenant(&world, "berlin", manual());
    let process = world.start_settled().await;
    process.stop().await;
    world.default_profiles = fixtures::default_profiles("v2.0.0", "newer\n");
    let mut matcher = Matcher::on(&[Verb::List], PROFILES);
    matcher.namespace = Some(ACCOUNT.to_owned());
    world.management.inject(
        matcher,
        Fault::Status {
            code: 503,
            retry_after: None,
        },
    );
    let process = world.start();
    deploy(world.worker("berlin"), "others");
    tokio::time::sleep(Duration::from_secs(20)).await;
    let told = world.condition("berlin", "Ready");
    assert!(!told.to_string().contains("is not known here"), "{told}");
    world.management.clear_faults();
    world.settle().await;
    let others = "others-kube-system-provisioning-config";
    assert!(document(world.worker("berlin"), others).contains("text"));
    let events = json!(world.worker("berlin").objects("events")).to_string();
    assert!(!events.contains("is not known here"), "{events}");
    process.stop().await;
}

/// How many tenants have the version, whenever that changes, until all have it.
async fn upgrade(world: &World, tenants: &[&str], version: &str) -> Vec<usize> {
    let thin = json!(format!("{UBUNTU}@{version}"));
    let mut counts = vec![0];
    while counts.last() != Some(&tenants.len()) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let named = tenants.iter().map(|it| content(world, it));
        let count = named.filter(|it| *it == thin).count();
        if counts.last() != Some(&count) {
            counts.push(count);
        }
    }
    counts
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
    let counts = upgrade(&world, &names, "v2.0.0").await;
    assert_eq!(counts.get(1), Some(&1), "{counts:?}");
    assert_eq!(contents(&world).len(), 2, "one for each version");
    world.settle().await;
    process.stop().await;
}

/// They use the default profile, although nobody knows what it was.
#[tokio::test(start_paused = true)]
async fn tenants_whose_content_is_gone_are_upgraded_in_waves_as_well() {
    let names = ["t-1", "t-2", "t-3", "t-4", "t-5", "t-6"];
    let mut world = World::new(&names);
    for tenant in &names {
        a_tenant(&world, tenant, json!({}));
    }
    let process = world.start_settled().await;
    process.stop().await;
    lose_contents(&world);
    world.default_profiles = fixtures::default_profiles("v2.0.0", "newer\n");
    let process = world.start();
    let counts = upgrade(&world, &names, "v2.0.0").await;
    assert_eq!(counts.get(1), Some(&1), "{counts:?}");
    process.stop().await;
}
