//! What is rewritten, what only gets other annotations, and what nodes see meanwhile.

use jiff::Timestamp;
use kube::ResourceExt;
use osm::api::names::{MADE_FOR_ANNOTATIONS, MADE_FOR_PROFILE_VERSION, REVISION};
use osm::api::worker_cluster::WorkerCluster;
use osm::render::annotation_hash::annotation_hash;

use crate::administrator::{create, get, merge};
use crate::audit::told;
use crate::fixtures::{
    self, PROFILE_NAME, a_little_machine_deployment, a_machine_deployment, a_profile,
    has_annotation, stamp,
};
use crate::process::Manager;
use crate::stage::{Made, Stage, Tenant, WORKER};
use crate::wait;
use crate::world::{IN_WORKER, World};

pub async fn another_profile_content_makes_new_secrets_but_keeps_the_kubelet_kubeconfig(
    world: &'static World,
) {
    let (tenant, manager) = Manager::with_registered(&Stage::open(world, "profile-content")).await;
    install(&tenant, &a_profile("v1.0.0", "first")).await;
    let before = tenant.serve(&a_little_machine_deployment("workers")).await;
    change_profile(&tenant, "v1.0.1", "second").await;
    let after = made_of_version(&tenant, "v1.0.1").await;
    let same: Vec<bool> = before
        .uids()
        .iter()
        .zip(after.uids())
        .map(|(a, b)| *a == b)
        .collect();
    // The config and the provisioning document changed; the bootstrap document did not.
    assert_eq!(same, [false, false, true, true]);
    assert_ne!(before.provisioning_text(), after.provisioning_text());
    check_stamps(&tenant, "workers", &after).await;
    // Whatever else is noted of a machine deployment is noted of what is made for it.
    tenant
        .annotate("workers", ("example.com/note", "<other>"))
        .await;
    let found = get(&tenant.machine_deployments(), "workers").await;
    let hash = annotation_hash(found.metadata.annotations.as_ref());
    let noted = tenant.made_when("workers", |secret| {
        secret.annotations().get(MADE_FOR_ANNOTATIONS) == Some(&hash)
    });
    check_stamps(&tenant, "workers", &noted.await).await;
    manager.stop().await;
}

/// Also after a restart: nothing that was rendered from the text before is touched.
pub async fn a_comment_beside_a_certificate_authority_writes_nothing(world: &'static World) {
    let stage = Stage::open(world, "comment");
    let (tenant, manager) = Manager::with_registered(&stage).await;
    drop(tenant.serve(&a_machine_deployment("workers")).await);
    tenant.is_current("workers").await;
    let before = tenant.says("Ready", "True", "Ready").await;
    let fingerprint = |of: &WorkerCluster| of.status.clone()?.observed_kubeconfig;
    let commented = tenant.worker.commented_authority();
    let token = tenant.worker.token(IN_WORKER).await;
    let kubeconfig = fixtures::a_kubeconfig(&tenant.worker.url(), &commented, &token);
    let changed = Timestamp::now();
    tenant.set_kubeconfig(&kubeconfig).await;
    wait::for_object(&tenant.worker_clusters(), WORKER, "it is taken", |found| {
        fingerprint(found) != fingerprint(&before)
    })
    .await;
    manager.has_reconciled("served", 2.0).await;
    manager.stop().await;
    let manager = Manager::start(&stage, &[]).await;
    manager.has_reconciled("served", 1.0).await;
    manager.stop().await;
    tenant.worker.settle_audit().await;
    let mut writes = tenant.writes(changed);
    // The fingerprint of the new kubeconfig stands in it.
    writes.retain(|it| it.resource != "workerclusters/status");
    assert!(writes.is_empty(), "{}", told(&writes));
}

/// Makes a profile in the tenant's namespace.
pub async fn install(tenant: &Tenant, profile: &osm::api::profile::OperatingSystemProfile) {
    create(&tenant.profiles(), profile).await;
}

/// Changes version and content of the profile.
pub async fn change_profile(tenant: &Tenant, version: &str, text: &str) {
    let spec = serde_json::to_value(a_profile(version, text).spec).expect("plain values");
    let patch = serde_json::json!({ "spec": spec });
    merge(&tenant.profiles(), PROFILE_NAME, patch).await;
}

pub async fn made_of_version(tenant: &Tenant, version: &str) -> Made {
    made_with_version(tenant, "workers", version).await
}

async fn made_with_version(tenant: &Tenant, name: &str, version: &str) -> Made {
    tenant
        .made_when(name, |secret| {
            has_annotation(secret, (MADE_FOR_PROFILE_VERSION, version))
        })
        .await
}

/// All three say the same, and what the machine deployment is.
async fn check_stamps(tenant: &Tenant, name: &str, made: &Made) {
    let found = get(&tenant.machine_deployments(), name).await;
    let [revision, hash, version] = stamp(made.bootstrap.annotations());
    assert_eq!(found.annotations().get(REVISION), Some(&revision));
    assert_eq!(annotation_hash(found.metadata.annotations.as_ref()), hash);
    let expected = [revision, hash, version];
    assert_eq!(stamp(made.provisioning.annotations()), expected);
    assert_eq!(stamp(made.config.annotations()), expected);
}
