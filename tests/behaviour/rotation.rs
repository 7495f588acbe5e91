//! What is rewritten, what only gets other annotations, and what nodes see meanwhile.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::Api;
use loadtest::control_plane::client_of;
use osm::api::names::{
    CLOUD_INIT_SETTINGS, FETCHER, FETCHER_TOKEN, MADE_FOR_ANNOTATIONS, MADE_FOR_PROFILE_VERSION,
    REVISION,
};
use osm::api::worker_cluster::WorkerCluster;
use osm::render::annotation_hash::annotation_hash;
use tokio_util::sync::CancellationToken;

use crate::administrator::{create, get, merge};
use crate::audit::{Request, told};
use crate::fixtures::{
    self, PROFILE_NAME, a_little_machine_deployment, a_machine_deployment, a_profile,
    has_annotation, stamp,
};
use crate::process::Manager;
use crate::server::ok;
use crate::stage::{Made, Stage, Tenant, WORKER};
use crate::wait;
use crate::world::{IN_WORKER, World};

pub async fn a_new_revision_with_equal_bytes_deletes_nothing(world: &'static World) {
    let (tenant, manager) = Manager::with_registered(&Stage::open(world, "equal-bytes")).await;
    let before = tenant.serve(&a_machine_deployment("workers")).await;
    let raised = Timestamp::now();
    tenant.annotate("workers", (REVISION, "2")).await;
    let after = tenant.made("workers", "2").await;
    assert_eq!(after.uids(), before.uids());
    check_stamps(&tenant, "workers", &after).await;
    manager.stop().await;
    let deletions = of_verb(&tenant.writes(raised), "delete");
    assert!(deletions.is_empty(), "{}", told(&deletions));
}

pub async fn a_changed_annotation_is_stamped_on_everything(world: &'static World) {
    let (tenant, manager) = Manager::with_registered(&Stage::open(world, "annotation")).await;
    drop(tenant.serve(&a_machine_deployment("workers")).await);
    tenant
        .annotate("workers", ("example.com/note", "<other>"))
        .await;
    let found = get(&tenant.machine_deployments(), "workers").await;
    let hash = annotation_hash(found.metadata.annotations.as_ref());
    let after = tenant.made_when("workers", |secret| {
        secret.annotations().get(MADE_FOR_ANNOTATIONS) == Some(&hash)
    });
    check_stamps(&tenant, "workers", &after.await).await;
    manager.stop().await;
}

pub async fn another_profile_version_with_equal_bytes_deletes_nothing(world: &'static World) {
    let (tenant, manager) = Manager::with_registered(&Stage::open(world, "profile-version")).await;
    install(&tenant, &a_profile("v1.0.0", "first")).await;
    let before = tenant.serve(&a_little_machine_deployment("workers")).await;
    change_profile(&tenant, "v1.0.1", "first").await;
    let after = made_of_version(&tenant, "v1.0.1").await;
    assert_eq!(after.uids(), before.uids());
    check_stamps(&tenant, "workers", &after).await;
    manager.stop().await;
}

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
    manager.stop().await;
}

pub async fn with_a_new_revision_and_other_bytes_bootstrap_goes_first_and_comes_last(
    world: &'static World,
) {
    let (tenant, manager) = Manager::with_registered(&Stage::open(world, "order")).await;
    install(&tenant, &a_profile("v1.0.0", "{{ KubeVersion }}")).await;
    let made = tenant.serve(&a_little_machine_deployment("workers")).await;
    let changed = Timestamp::now();
    let kubelet = serde_json::json!({
        "metadata": { "annotations": { REVISION: "2" } },
        "spec": { "template": { "spec": { "versions": { "kubelet": "1.36.0" } } } },
    });
    tenant.change("workers", kubelet).await;
    let after = tenant.made("workers", "2").await;
    manager.stop().await;
    tenant.worker.settle_audit().await;
    let secrets = tenant.writes(changed).into_iter();
    let secrets: Vec<Request> = secrets.filter(|it| it.resource == "secrets").collect();
    let steps: Vec<(&str, &str)> = secrets
        .iter()
        .map(|it| (it.verb.as_str(), it.name.as_str()))
        .collect();
    let (bootstrap, provisioning) = (&*made.names.bootstrap, &*made.names.provisioning);
    assert_eq!(
        steps,
        [
            ("delete", bootstrap),
            ("delete", provisioning),
            ("create", provisioning),
            ("create", bootstrap),
        ]
    );
    assert_eq!(
        after.uids()[3],
        made.uids()[3],
        "the kubelet kubeconfig stays"
    );
}

pub async fn nodes_miss_the_provisioning_secret_for_one_round_trip_even_without_budget(
    world: &'static World,
) {
    let stage = Stage::open(world, "gap");
    let tenant = stage.tenant().await;
    // Two requests at once and two a second: each waits for its turn by then, and a turn is far
    // longer than a round trip on a busy machine.
    let flags = ["--worker-requests", "2", "--worker-burst", "2"];
    let manager = Manager::start(&stage, &flags).await;
    tenant.register().await;
    install(&tenant, &a_profile("v1.0.0", "first")).await;
    let made = tenant.serve(&a_little_machine_deployment("workers")).await;
    let more = ["one", "two", "three"].map(a_little_machine_deployment);
    for machine_deployment in &more {
        drop(tenant.serve(machine_deployment).await);
    }
    let changed = Timestamp::now();
    let stop = CancellationToken::new();
    let rotate = async {
        change_profile(&tenant, "v1.0.1", "second").await;
        for name in ["workers", "one", "two", "three"] {
            drop(made_with_version(&tenant, name, "v1.0.1").await);
        }
        stop.cancel();
    };
    let (seen, ()) = tokio::join!(poll_as_a_node(&tenant, &made, &stop), rotate);
    manager.stop().await;
    tenant.worker.settle_audit().await;
    check_gaps(&seen);
    check_pairs(&tenant.worker.requests(IN_WORKER, changed));
}

/// What a node saw, at each look.
struct Look {
    provisioning: bool,
    kubelet_kubeconfig: bool,
}

/// Looks every millisecond, with the fetcher's token, as nodes do.
async fn poll_as_a_node(tenant: &Tenant, made: &Made, stop: &CancellationToken) -> Vec<Look> {
    let token = get(&tenant.secrets(), FETCHER_TOKEN).await;
    let (url, authority) = (tenant.worker.url(), tenant.worker.authority());
    let kubeconfig = fixtures::a_kubeconfig(&url, &authority, &fixtures::text(&token, "token"));
    let node = ok(client_of(&kubeconfig).await, "the fetcher's token works");
    let secrets: Api<Secret> = Api::namespaced(node, CLOUD_INIT_SETTINGS);
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(1));
    let mut seen = Vec::new();
    while !stop.is_cancelled() {
        ticks.tick().await;
        let (provisioning, kubelet_kubeconfig) = tokio::join!(
            secrets.get_opt(&made.names.provisioning),
            secrets.get_opt(&made.names.kubelet_kubeconfig),
        );
        seen.push(Look {
            provisioning: ok(provisioning, FETCHER).is_some(),
            kubelet_kubeconfig: ok(kubelet_kubeconfig, FETCHER).is_some(),
        });
    }
    seen
}

fn check_gaps(seen: &[Look]) {
    assert!(
        seen.iter().all(|look| look.kubelet_kubeconfig),
        "it is never absent"
    );
    let edges = seen.windows(2).filter(|pair| match pair {
        [before, after] => before.provisioning && !after.provisioning,
        _ => false,
    });
    assert!(edges.count() <= 1, "it is absent once at most");
}

/// Between a deletion and its creation the manager sends nothing else, and does not wait for its
/// budget: the other requests show how long that would have been.
fn check_pairs(requests: &[Request]) {
    let mut spacings: Vec<jiff::SignedDuration> = Vec::new();
    let mut pairs = 0;
    for two in requests.windows(2) {
        let [first, second] = two else { continue };
        let between = second.received.duration_since(first.answered);
        if first.verb == "delete" && first.name.ends_with("-provisioning-config") {
            assert!(
                second.is("create", "secrets", &first.name),
                "{}",
                told(requests)
            );
            spacings.push(between);
            pairs += 1;
        }
    }
    assert_eq!(pairs, 4, "{}", told(requests));
    let first = requests.first().expect("there were pairs").received;
    let last = requests.last().expect("there were pairs").answered;
    let requests_count = i32::try_from(requests.len()).expect("a few");
    let turn = last.duration_since(first) / requests_count;
    // Every pair would wait for the budget. A busy machine delays one or the other.
    spacings.sort();
    let median = *spacings.get(1).expect("there were four");
    assert!(
        median < turn * 3 / 4,
        "{median:?} between the two, {turn:?} for each request"
    );
}

pub async fn a_restart_with_everything_current_writes_nothing(world: &'static World) {
    let stage = Stage::open(world, "restart");
    let [berlin, lisbon] = stage.tenants(["berlin", "lisbon"]).await;
    let manager = Manager::start(&stage, &[]).await;
    for tenant in [&berlin, &lisbon] {
        tenant.register().await;
        drop(tenant.serve(&a_machine_deployment("workers")).await);
        drop(tenant.serve(&a_machine_deployment("others")).await);
        tenant.says("Ready", "True", "Ready").await;
        // Ready does not wait for entries, which are reported after the Secrets are there.
        for name in ["kube-system/workers", "kube-system/others"] {
            tenant.entry(name, ("Served", "Current")).await;
        }
    }
    manager.stop().await;
    let restarted = Timestamp::now();
    let manager = Manager::start(&stage, &[]).await;
    manager.has_reconciled("served", 4.0).await;
    // What it still meant to write is written at its end.
    manager.stop().await;
    for tenant in [&berlin, &lisbon] {
        tenant.worker.settle_audit().await;
        world.management.settle_audit().await;
        let writes = tenant.writes(restarted);
        assert!(writes.is_empty(), "{}", told(&writes));
        assert!(!tenant.requests(restarted).is_empty(), "it looked");
    }
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

fn of_verb(requests: &[Request], verb: &str) -> Vec<Request> {
    let found = requests.iter().filter(|request| request.verb == verb);
    found.cloned().collect()
}
