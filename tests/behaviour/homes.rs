//! Tenants whose worker cluster is the home of their profiles and configs, with the rights of the
//! program that was there before.

use jiff::Timestamp;
use kube::api::Api;
use osm::api::machine_deployment::MachineDeployment;
use osm::api::names::{KUBE_SYSTEM, PROFILE};
use osm::api::worker_cluster::WorkerCluster;
use osm::settings::drop_in::deployed::spec_of;
use serde_json::{Value, json};

use crate::administrator::{create, get, list, merge};
use crate::audit::told;
use crate::commands::{Admin, a_file, path};
use crate::drop_in::{
    Controller, Way, a_cluster, a_cluster_without_definitions, assert_the_lease_is_free,
    every_profile_stands_as_it_was_meant, made, refused, writes,
};
use crate::fixtures::{a_machine_deployment, with_annotation};
use crate::life::has_served;
use crate::process::Manager;
use crate::server::{Server, ok};
use crate::stage::{Stage, Tenant, WORKER, entries, message};
use crate::wait;
use crate::world::{IN_WORKER, World};

/// The flags of the program that was there before.
pub const LINE: &[&str] = &[
    "-namespace",
    "kube-system",
    "-cluster-dns",
    "169.254.20.10",
    "-container-runtime",
    "containerd",
    "-external-cloud-provider",
    "-pause-image",
    "registry.example/pause:3.10",
    "-node-http-proxy",
    "http://proxy.example:3128",
    "-node-no-proxy",
    ".svc,10.0.0.0/8",
];

fn spec() -> Value {
    json!({ "home": "Worker" })
}

/// The user cluster, by KKP's name, and the Secret with its kubeconfig.
const CLUSTER: &str = "home-tenant";
pub const SECRET: &str = "operatingsystemmanager-kubeconfig";

/// The Deployment of KKP: another program waits for the API server, and then starts the manager.
pub fn deployment(namespace: &str, (replicas, line): (i32, &[&str])) -> String {
    let line = json!({ "command": "/usr/local/bin/osm-controller", "args": line }).to_string();
    let labels = json!({ "app": "operating-system-manager" });
    let container = json!({
        "name": "operating-system-manager", "image": "quay.io/kubermatic/osm:v1",
        "command": ["/http-prober-bin/http-prober"],
        "args": ["-endpoint", "https://api/healthz", "-insecure", "-command", line],
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "operating-system-manager", "namespace": namespace },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": { "containers": [container] } },
        },
    })
    .to_string()
}

pub async fn a_user_cluster_of_kkp_goes_back_and_forth_without_a_write(world: &'static World) {
    let stage = Stage::open(world, "cluster-home");
    let tenant = stage.tenant().await;
    let home = a_cluster(world, "home").await;
    let begun = Timestamp::now();
    let manager = Manager::start(&stage, &[]).await;
    adopt(&tenant).await;
    let kubeconfig = home.kubeconfig(IN_WORKER).await;
    tenant.register_as(SECRET, &kubeconfig).await;
    let all: Api<MachineDeployment> = Api::namespaced(home.admin().await, KUBE_SYSTEM);
    let named = with_annotation(a_machine_deployment("workers"), (PROFILE, "osp-ubuntu"));
    create(&all, &named).await;
    made(&home, "1").await;
    let ready = ("Ready", "True", "Ready");
    tenant.says_of(CLUSTER, ready).await;
    every_profile_stands_as_it_was_meant(&home).await;
    // `Ready` may be from before it was served.
    let is_current = |found: &WorkerCluster| entries(found).iter().any(|it| it.reason == "Current");
    wait::for_object(
        &tenant.worker_clusters(),
        CLUSTER,
        "it is current",
        is_current,
    )
    .await;
    the_commands_look_there(&stage, &tenant).await;
    let here = (
        list(&tenant.profiles()).await,
        list(&tenant.configs()).await,
    );
    assert!(here.0.is_empty() && here.1.is_empty(), "{here:?}");

    home.settle_audit().await;
    let settled = Timestamp::now();
    let previous = Controller::start(&home, Way::Flag, LINE).await;
    logs(&previous, "waiting to be the leader").await;
    release(&tenant, &home).await;
    logs(&previous, "\"leading\"").await;
    has_served(&previous.address().await).await;
    let again = json!({ "spec": { "paused": false } });
    merge(&tenant.worker_clusters(), CLUSTER, again).await;
    let waits = ("Adopted", "False", "UpstreamRunning");
    tenant.says_of(CLUSTER, waits).await;
    drop(previous.stop().await);
    let taken = ("Adopted", "True", "NothingToAdopt");
    tenant.says_of(CLUSTER, taken).await;
    tenant.says_of(CLUSTER, ready).await;
    writes_nothing(&home, settled).await;

    remove(&tenant).await;
    assert_the_lease_is_free(&home, "operating-system-manager").await;
    writes_nothing(&home, settled).await;
    manager.stop().await;
    let refused = refused(&home, begun).await;
    assert!(refused.is_empty(), "{}", told(&refused));
}

/// Hands the cluster to the previous manager, and before that says that it would.
async fn release(tenant: &Tenant, home: &Server) {
    let admin = Admin::of(tenant);
    let kubeconfig = a_file(&home.admin_in("default"));
    let words = ["tenant", "release", SECRET, "-n", &tenant.namespace];
    let words = [&words[..], &["--worker-kubeconfig", path(&kubeconfig)]].concat();
    let would = admin.osm(&[&words[..], &["--dry-run"]].concat()).await;
    assert_eq!(would.code, Some(0), "{would:?}");
    assert!(would.all().contains("would release the Lease"), "{would:?}");
    let own = get(&tenant.worker_clusters(), CLUSTER).await;
    assert!(!own.spec.paused, "{would:?}");
    let released = admin.osm(&words).await;
    assert_eq!(released.code, Some(0), "{released:?}");
    assert!(
        released
            .all()
            .contains("profiles and configs stay in the worker cluster")
    );
}

/// Removes the registration; first without the consent that this needs.
async fn remove(tenant: &Tenant) {
    let admin = Admin::of(tenant);
    let words = ["tenant", "remove", SECRET, "-n", &tenant.namespace];
    let asked = admin.osm(&words).await;
    assert_eq!(asked.code, Some(1), "{asked:?}");
    assert!(asked.all().contains("everything in it stays"), "{asked:?}");
    let removed = admin.osm(&[&words[..], &["--yes"]].concat()).await;
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert!(removed.all().contains("what is in it stays"), "{removed:?}");
}

/// Creates the WorkerCluster with the settings that a Deployment of KKP has.
async fn adopt(tenant: &Tenant) {
    let deployment = deployment(&tenant.namespace, (1, LINE));
    let deployment = ok(serde_json::from_str(&deployment), "it is a Deployment");
    let spec = ok(spec_of(&deployment, SECRET), "its settings can be used");
    create(
        &tenant.worker_clusters(),
        &WorkerCluster::new(CLUSTER, spec),
    )
    .await;
}

pub async fn a_cluster_that_is_the_home_of_two_is_served_for_the_first(world: &'static World) {
    let stage = Stage::open(world, "homes");
    let [first, second] = stage.tenants(["first", "second"]).await;
    let home = a_cluster(world, "home-of-two").await;
    let kubeconfig = home.kubeconfig(IN_WORKER).await;
    let manager = Manager::start(&stage, &[]).await;
    first.configure(spec()).await;
    first.register_as(WORKER, &kubeconfig).await;
    first.says("Ready", "True", "Ready").await;
    second.configure(spec()).await;
    second.register_as(WORKER, &kubeconfig).await;
    let own = second.says("Adopted", "False", "UpstreamRunning").await;
    let holder = format!("/{} holds Lease", first.namespace);
    assert!(message(&own, "Adopted").contains(&holder), "{own:?}");
    first.says("Ready", "True", "Ready").await;
    first.leave().await;
    second.says("Ready", "True", "Ready").await;
    manager.stop().await;
}

/// `osm plan` and `osm explain` read the profiles and configs of the worker cluster.
async fn the_commands_look_there(stage: &Stage, tenant: &Tenant) {
    let admin = Admin::of(tenant);
    let plan = admin.osm_about((stage, tenant), &["plan"]).await;
    assert_eq!(plan.code, Some(0), "{plan:?}");
    assert!(plan.out.ends_with("workers: unchanged\n"), "{plan:?}");
    let explain = ["explain", "kube-system/workers"];
    let explained = admin.osm_about((stage, tenant), &explain).await;
    assert_eq!(explained.code, Some(0), "{explained:?}");
    assert!(explained.out.contains("osp-ubuntu"), "{explained:?}");
    let doctor = admin.osm_about((stage, tenant), &["doctor"]).await;
    for check in ["identity", "rights"] {
        let mut lines = doctor.out.lines();
        let line = lines.find(|line| line.contains(&tenant.namespace) && line.contains(check));
        assert!(line.is_some_and(|line| line.contains("ok")), "{doctor:?}");
    }
    let add = ["tenant", "add", SECRET, "-n", &tenant.namespace];
    let add = [&add[..], &["--allow-loopback-servers"]].concat();
    let added = admin.osm_in_both(&add).await;
    assert_eq!(added.code, Some(1), "{added:?}");
    assert!(added.err.contains("spec.home: Worker"), "{added:?}");
}

pub async fn logs(controller: &Controller, text: &str) {
    let what = format!("it logs {text}");
    wait::until(&what, async || {
        controller.process.log().contains(text).then_some(())
    })
    .await;
}

pub async fn writes_nothing(home: &Server, since: Timestamp) {
    let written = writes(home, since).await;
    assert!(written.is_empty(), "{}", told(&written));
}

pub async fn a_home_without_the_definitions_says_what_is_missing(world: &'static World) {
    let stage = Stage::open(world, "bare-home");
    let tenant = stage.tenant().await;
    let home = a_cluster_without_definitions(world, "bare-home").await;
    let manager = Manager::start(&stage, &[]).await;
    tenant.configure(spec()).await;
    let kubeconfig = home.kubeconfig(IN_WORKER).await;
    tenant.register_as(WORKER, &kubeconfig).await;
    let own = tenant.says("Prepared", "False", "ProfileNotServed").await;
    let said = message(&own, "Ready");
    assert!(said.contains("OperatingSystemProfile"), "{said}");
    home.apply(include_str!("../drop_in/definitions.yaml"))
        .await;
    tenant.says("Ready", "True", "Ready").await;
    manager.stop().await;
}
