//! Clusters that another operating-system-manager has served, from dumps of each layout: they are
//! adopted once it has let go, handed back, and nothing rotates on either way.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use osm::api::config::OperatingSystemConfig;
use osm::api::names::{
    CLAIM, CLOUD_INIT_SETTINGS, FETCHER_TOKEN, KEPT, KUBE_SYSTEM, MADE_FOR_ANNOTATIONS,
    MADE_FOR_PROFILE_VERSION, MADE_FOR_REVISION, PINNED, PROFILE, REVISION,
};
use osm::api::profile::OperatingSystemProfile;
use osm::render::annotation_hash::annotation_hash;
use serde_json::json;
use tokio::process::Command;

use crate::administrator::{create, find, get, list, merge};
use crate::audit::{Request, told};
use crate::fixtures;
use crate::process::Manager;
use crate::server::ok;
use crate::stage::{Stage, Tenant, WORKER, message};
use crate::wait;
use crate::world::{IN_WORKER, MANAGER, World};

/// Where the program before us kept what, and what it was called.
pub struct Layout {
    pub name: &'static str,
    pub worker: &'static str,
    pub webhooks: Option<&'static str>,
    pub lease: &'static str,
}

pub const KUBEONE: Layout = Layout {
    name: "adopt-kubeone",
    worker: include_str!("../adoption/kubeone.yaml"),
    webhooks: Some(include_str!("../adoption/kubeone-webhooks.yaml")),
    lease: "operating-system-manager",
};
const KKP: Layout = Layout {
    name: "adopt-kkp",
    worker: include_str!("../adoption/kkp.yaml"),
    webhooks: Some(include_str!("../adoption/kkp-webhooks.yaml")),
    lease: "operating-system-manager",
};
pub const MANAGEMENT: Layout = Layout {
    name: "adopt-management",
    worker: include_str!("../adoption/worker.yaml"),
    webhooks: None,
    lease: "operating-system-manager-worker-manager",
};

/// The version that the dumps' profile has; ours of that name has another.
const VERSION: &str = "v1.9.0";

pub async fn a_cluster_of_kubeone_is_adopted_without_a_rotation(world: &'static World) {
    Box::pin(adopted(world, KUBEONE)).await;
}

pub async fn a_cluster_of_kkp_is_adopted_without_a_rotation(world: &'static World) {
    Box::pin(adopted(world, KKP)).await;
}

pub async fn a_cluster_with_a_management_cluster_is_adopted_without_a_rotation(
    world: &'static World,
) {
    Box::pin(adopted(world, MANAGEMENT)).await;
}

async fn adopted(world: &'static World, layout: Layout) {
    let stage = Stage::open(world, layout.name);
    let tenant = stage.tenant().await;
    restore(&tenant, &layout).await;
    let before = secrets(&tenant).await;
    let begun = Timestamp::now();
    let manager = Manager::start(&stage, &[]).await;
    upstream_lets_go(&tenant, &layout).await;
    let said = tenant.says("Adopted", "True", "SecretsDiffer").await;
    assert!(message(&said, "Adopted").contains("kube-system/older"));
    assert!(!message(&said, "Adopted").contains("kube-system/workers"));
    tenant
        .entry("kube-system/older", ("Served", "KeptAsFound"))
        .await;
    tenant.is_current("workers").await;
    tenant.says("ProfilesInstalled", "True", "Installed").await;
    tenant.says("Ready", "True", "Ready").await;
    let after = secrets(&tenant).await;
    assert_eq!(kept(&before), kept(&after), "uids and bytes");
    each_was_written_once(&tenant, begun).await;
    if layout.webhooks.is_some() {
        the_profile_in_use_came_before_any_default((&stage, &tenant), begun).await;
    }
    let profile = get(&tenant.profiles(), "osp-ubuntu").await;
    assert_eq!(profile.spec.version, VERSION, "no default replaces it");
    assert!(profile.annotations().contains_key(PINNED));
    manager.stop().await;
    // A restart finds everything current.
    let status = async || get(&tenant.worker_clusters(), WORKER).await.status;
    let (before, restarted) = (status().await, Timestamp::now());
    let manager = Manager::start(&stage, &[]).await;
    manager.has_reconciled("served", 2.0).await;
    manager.stop().await;
    tenant.worker.settle_audit().await;
    let writes = tenant.writes(restarted);
    let now = status().await;
    assert!(writes.is_empty(), "{}\n{before:?}\n{now:?}", told(&writes));
    // What is kept goes with the next revision.
    let manager = Manager::start(&stage, &[]).await;
    tenant.annotate("older", (REVISION, "4")).await;
    let made = tenant.made("older", "4").await;
    assert!(!made.provisioning.annotations().contains_key(KEPT));
    assert!(made.provisioning_text().contains("v1.35.2"));
    tenant.says("Adopted", "True", "SecretsKept").await;
    manager.stop().await;
}

/// A default of that name in its place would rotate everything.
async fn the_profile_in_use_came_before_any_default(
    (stage, tenant): (&Stage, &Tenant),
    begun: Timestamp,
) {
    let management = &stage.world.management;
    management.settle_audit().await;
    let mut made = management.requests(MANAGER, begun);
    made.retain(|it| {
        it.namespace == tenant.namespace
            && (it.verb.as_str(), it.resource.as_str()) == ("create", "operatingsystemprofiles")
    });
    made.sort_by_key(|it| it.received);
    assert!(made.len() > 1, "defaults are installed, too");
    let first = made.first().expect("there are some");
    let (name, code) = (first.name.as_str(), first.code);
    assert_eq!((name, code), ("osp-ubuntu", 201), "{}", told(&made));
}

pub async fn an_adoption_copies_no_more_profiles_than_the_quota_has_room_for(
    world: &'static World,
) {
    let stage = Stage::open(world, "adopt-quota");
    let tenant = stage.tenant().await;
    restore(&tenant, &KUBEONE).await;
    let there: Api<OperatingSystemProfile> = Api::namespaced(tenant.admin.clone(), KUBE_SYSTEM);
    for name in ["a", "b"] {
        let profile = OperatingSystemProfile::new(name, fixtures::a_profile("v1.0.0", "text").spec);
        create(&there, &profile).await;
        let user = fixtures::a_machine_deployment(name);
        let user = fixtures::with_annotation(user, (PROFILE, name));
        tenant.create(&user).await;
    }
    renewed(&tenant, &KUBEONE, SignedDuration::from_hours(-2)).await;
    tenant.register().await;
    let manager = Manager::start(&stage, &["--tenant-profiles=1"]).await;
    let entry = |name, entry| tenant.entry(name, entry);
    entry("kube-system/a", ("Served", "Current")).await;
    entry("kube-system/b", ("Refused", "ProfileNotFound")).await;
    // Profiles that bear the name of a default one are counted nowhere.
    entry("kube-system/workers", ("Served", "Current")).await;
    let copied = find(&tenant.profiles(), "b").await;
    assert!(copied.is_none(), "it has no room");
    manager.stop().await;
}

pub async fn adoption_nothing_copies_no_profile(world: &'static World) {
    let stage = Stage::open(world, "adopt-nothing");
    let tenant = stage.tenant().await;
    restore(&tenant, &KUBEONE).await;
    let there: Api<OperatingSystemProfile> = Api::namespaced(tenant.admin.clone(), KUBE_SYSTEM);
    let profile = OperatingSystemProfile::new("a", fixtures::a_profile("v1.0.0", "text").spec);
    create(&there, &profile).await;
    let user = fixtures::a_machine_deployment("a");
    let user = fixtures::with_annotation(user, (PROFILE, "a"));
    tenant.create(&user).await;
    renewed(&tenant, &KUBEONE, SignedDuration::from_hours(-2)).await;
    tenant.register().await;
    tenant.configure(json!({ "adoption": "Nothing" })).await;
    let manager = Manager::start(&stage, &[]).await;
    let entry = |name, entry| tenant.entry(name, entry);
    entry("kube-system/a", ("Refused", "ProfileNotFound")).await;
    entry("kube-system/workers", ("Served", "Current")).await;
    let copied = find(&tenant.profiles(), "a").await;
    assert!(copied.is_none(), "nobody asked for it");
    manager.stop().await;
}

pub async fn a_cluster_that_is_handed_back_does_not_rotate(world: &'static World) {
    let layout = Layout {
        name: "tenant",
        ..KUBEONE
    };
    let stage = Stage::open(world, layout.name);
    // The namespace that `osm tenant add worker` makes: nobody has to name it.
    let [tenant] = stage.tenants([WORKER]).await;
    restore(&tenant, &layout).await;
    let manager = Manager::start(&stage, &[]).await;
    upstream_lets_go(&tenant, &layout).await;
    tenant.says("Adopted", "True", "SecretsDiffer").await;
    // A rotation under our hands: the old program's config is stale now.
    tenant.annotate("workers", (REVISION, "4")).await;
    drop(tenant.made("workers", "4").await);
    assert!(rotates(&tenant, "workers").await, "the check can fail");
    let newer = json!({ "spec": { "version": "v1.9.1" } });
    merge(&tenant.profiles(), "osp-ubuntu", newer).await;
    for name in ["workers", "older"] {
        let is_new = |secret: &k8s_openapi::api::core::v1::Secret| {
            fixtures::has_annotation(secret, (MADE_FOR_PROFILE_VERSION, "v1.9.1"))
        };
        tenant.made_when(name, is_new).await;
    }
    let before = secrets(&tenant).await;

    let dry = hand_back(&tenant, &["--dry-run"]).await;
    assert!(
        dry.contains("would hand profile osp-ubuntu v1.9.1 back"),
        "{dry}"
    );
    assert!(
        rotates(&tenant, "workers").await,
        "a dry run writes nothing"
    );
    let said = hand_back(&tenant, &[]).await;
    assert!(
        said.contains("annotate config workers-kube-system-config"),
        "{said}"
    );
    tenant.says("Registered", "False", "Paused").await;
    for name in ["workers", "older"] {
        assert!(!rotates(&tenant, name).await, "{name}");
    }
    let again = hand_back(&tenant, &[]).await;
    assert!(
        again.contains("profile osp-ubuntu is the same there"),
        "{again}"
    );
    assert!(
        again.contains("config workers-kube-system-config is current there"),
        "{again}"
    );
    let after = secrets(&tenant).await;
    assert_eq!(kept(&before), kept(&after), "uids and bytes");
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(tenant.admin.clone());
    let claimed = get(&namespaces, CLOUD_INIT_SETTINGS).await;
    assert!(!claimed.annotations().contains_key(CLAIM));
    manager.stop().await;
}

pub async fn a_cluster_of_kkp_goes_there_and_back_as_it_was(world: &'static World) {
    let layout = Layout {
        name: "hand-back-kkp",
        ..KKP
    };
    let stage = Stage::open(world, layout.name);
    let tenant = stage.tenant().await;
    restore(&tenant, &layout).await;
    let before = (secrets(&tenant).await, stamps(&tenant).await);
    let manager = Manager::start(&stage, &[]).await;
    upstream_lets_go(&tenant, &layout).await;
    tenant.says("Adopted", "True", "SecretsDiffer").await;
    let named = ["-n", tenant.namespace.as_str()];
    let (is_done, told) = try_hand_back(&tenant, &tenant.management_admin(), &named).await;
    assert!(
        !is_done && told.contains("leads to another cluster"),
        "{told}"
    );
    let told = hand_back(&tenant, &named).await;
    for line in [
        "profile osp-ubuntu is the same there",
        "config workers-kube-system-config is current there",
        "config older-kube-system-config is current there",
    ] {
        assert!(told.contains(line), "{told}");
    }
    renewed(&tenant, &layout, HELD).await;
    let worker = tenant.worker.admin_in(KUBE_SYSTEM);
    let (is_done, told) = try_hand_back(&tenant, &worker, &named).await;
    assert!(!is_done && told.contains("runs already"), "{told}");
    tenant.leave().await;
    manager.stop().await;
    for name in ["workers", "older"] {
        assert!(!rotates(&tenant, name).await, "{name}");
    }
    let after = (secrets(&tenant).await, stamps(&tenant).await);
    assert_eq!(kept(&before.0), kept(&after.0), "uids and bytes");
    assert_eq!(before.1, after.1, "what the old program decides by");
}

/// The three annotations by which the old program decides, of its configs and of the Secrets.
async fn stamps(tenant: &Tenant) -> BTreeMap<String, [String; 3]> {
    let configs: Api<OperatingSystemConfig> = Api::namespaced(tenant.admin.clone(), KUBE_SYSTEM);
    let all = ListParams::default();
    let configs = ok(configs.list(&all).await, "configs are listed");
    let secrets = list(&tenant.secrets()).await;
    let configs = configs
        .iter()
        .map(|it| (it.name_any(), fixtures::stamp(it.annotations())));
    let secrets = secrets
        .iter()
        .filter(|it| it.annotations().contains_key(MADE_FOR_REVISION))
        .map(|it| (it.name_any(), fixtures::stamp(it.annotations())));
    configs.chain(secrets).collect()
}

/// Runs `osm tenant release`; gives what it told.
async fn hand_back(tenant: &Tenant, more: &[&str]) -> String {
    let worker = tenant.worker.admin_in(KUBE_SYSTEM);
    let (is_done, told) = try_hand_back(tenant, &worker, more).await;
    assert!(is_done, "{told}");
    told
}

/// Whether it went well, with this way into the worker cluster, and what it told.
async fn try_hand_back(tenant: &Tenant, worker: &str, more: &[&str]) -> (bool, String) {
    let file = |text: &str| {
        let file = tempfile::NamedTempFile::new().expect("there is room for a file");
        std::fs::write(file.path(), text).expect("the file is ours");
        file
    };
    let (management, worker) = (file(&tenant.management_admin()), file(worker));
    let output = Command::new(env!("CARGO_BIN_EXE_osm"))
        .args(["tenant", "release", WORKER])
        .arg("--kubeconfig")
        .arg(management.path())
        .arg("--worker-kubeconfig")
        .arg(worker.path())
        .args(more)
        .env_clear()
        .kill_on_drop(true)
        .output();
    let output = ok(output.await, "the binary was built with this test");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let told = text(&output.stdout) + &text(&output.stderr);
    (output.status.success(), told)
}

/// The rule of the old program: it rotates where one of three annotations of its config is not
/// what the machine deployment and the profile say now.
async fn rotates(tenant: &Tenant, name: &str) -> bool {
    let configs: Api<OperatingSystemConfig> = Api::namespaced(tenant.admin.clone(), KUBE_SYSTEM);
    let profiles: Api<OperatingSystemProfile> = Api::namespaced(tenant.admin.clone(), KUBE_SYSTEM);
    let config = configs.get(&format!("{name}-kube-system-config")).await;
    let config = ok(config, "the old config is there");
    let profile = get(&profiles, "osp-ubuntu").await;
    let found = get(&tenant.machine_deployments(), name).await;
    let annotations = found.annotations();
    let now = [
        (MADE_FOR_REVISION, annotations[REVISION].clone()),
        (MADE_FOR_ANNOTATIONS, annotation_hash(Some(annotations))),
        (MADE_FOR_PROFILE_VERSION, profile.spec.version),
    ];
    now.iter()
        .any(|(key, value)| config.annotations().get(*key) != Some(value))
}

/// Puts the dump into the clusters, as the old program left it while it ran.
pub async fn restore(tenant: &Tenant, layout: &Layout) {
    let keeps_all = layout.worker.contains("kind: OperatingSystemProfile");
    if keeps_all {
        for kind in ["operatingsystemprofiles", "operatingsystemconfigs"] {
            let path = format!("manifests/crds/{kind}.yaml");
            tenant.worker.apply_file(&path).await;
        }
        let profiles: Api<OperatingSystemProfile> = Api::all(tenant.admin.clone());
        let configs: Api<OperatingSystemConfig> = Api::all(tenant.admin.clone());
        wait::until("the definitions are served", async || {
            let all = ListParams::default();
            let served = profiles.list(&all).await.is_ok() && configs.list(&all).await.is_ok();
            served.then_some(())
        })
        .await;
    } else {
        let dump = include_str!("../adoption/management.yaml");
        tenant
            .apply_in_management(&dump.replace("NAMESPACE", &tenant.namespace))
            .await;
    }
    tenant.worker.apply(layout.worker).await;
}

/// While its Lease is fresh nothing is written; then its webhooks are in the way; then they go.
async fn upstream_lets_go(tenant: &Tenant, layout: &Layout) {
    renewed(tenant, layout, HELD).await;
    let begun = Timestamp::now();
    tenant.register().await;
    let said = tenant.says("Adopted", "False", "UpstreamRunning").await;
    assert!(message(&said, "Adopted").contains(layout.lease));
    tenant.worker.settle_audit().await;
    let in_worker = |request: &&Request| !request.is_write();
    let requests = tenant.worker.requests(IN_WORKER, begun);
    let reads = requests.iter().filter(in_worker).count();
    assert_eq!(reads, requests.len(), "{}", told(&requests));
    if let Some(webhooks) = layout.webhooks {
        tenant.worker.apply(webhooks).await;
    }
    renewed(tenant, layout, SignedDuration::from_hours(-2)).await;
    look_again(tenant).await;
    if layout.webhooks.is_some() {
        let said = tenant.says("Adopted", "False", "LeftoverWebhooks").await;
        let fix = "kubectl delete mutatingwebhookconfiguration operati";
        assert!(message(&said, "Adopted").contains(fix));
        remove_webhooks(tenant).await;
        look_again(tenant).await;
    }
}

/// A changed spec ends the wait between two attempts. It says nothing about the documents.
pub async fn look_again(tenant: &Tenant) {
    tenant.configure(json!({ "onRemoval": "Release" })).await;
    tenant.configure(json!({ "onRemoval": "Keep" })).await;
}

/// A Lease that is renewed so far in the future is held for as long as any scenario takes.
pub const HELD: SignedDuration = SignedDuration::from_hours(1);

pub async fn renewed(tenant: &Tenant, layout: &Layout, from_now: SignedDuration) {
    let leases: Api<Lease> = Api::namespaced(tenant.admin.clone(), KUBE_SYSTEM);
    let at = Timestamp::now() + from_now;
    let at = at.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
    merge(
        &leases,
        layout.lease,
        json!({ "spec": { "renewTime": at } }),
    )
    .await;
}

async fn remove_webhooks(tenant: &Tenant) {
    let (one, all) = (DeleteParams::default(), ListParams::default());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(tenant.admin.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(tenant.admin.clone());
    ok(mutating.delete_collection(&one, &all).await, "they go").map_left(drop);
    ok(validating.delete_collection(&one, &all).await, "they go").map_left(drop);
}

pub type Secrets = BTreeMap<String, (Option<String>, Option<BTreeMap<String, ByteString>>)>;

/// The uid and the bytes of each Secret that nodes fetch.
pub async fn secrets(tenant: &Tenant) -> Secrets {
    let listed = tenant.secrets().list(&ListParams::default()).await;
    let listed = ok(listed, "Secrets are listed").items.into_iter();
    listed
        .filter(|it| it.name_any() != FETCHER_TOKEN)
        .map(|it| (it.name_any(), (it.uid(), it.data)))
        .collect()
}

/// The kubelet's kubeconfig changes in place: of it the uid counts alone.
pub fn kept(secrets: &Secrets) -> Secrets {
    let mut secrets = secrets.clone();
    for (name, (_, data)) in &mut secrets {
        if name.ends_with("-kubelet-bootstrap-config") {
            *data = None;
        }
    }
    secrets
}

/// machine-controller never found a Secret absent, and each was written once.
pub async fn each_was_written_once(tenant: &Tenant, since: Timestamp) {
    tenant.worker.settle_audit().await;
    let mut writes = tenant.worker.requests(IN_WORKER, since);
    writes.retain(|it| {
        it.is_write() && it.resource == "secrets" && it.name.ends_with("-config") && it.code < 300
    });
    let mut lines: Vec<String> = writes
        .iter()
        .map(|it| format!("{} {}", it.verb, it.name))
        .collect();
    lines.sort();
    let expected = [
        "update kube-system-older-kubelet-bootstrap-config",
        "update kube-system-workers-kubelet-bootstrap-config",
        "update older-kube-system-bootstrap-config",
        "update older-kube-system-provisioning-config",
        "update workers-kube-system-bootstrap-config",
        "update workers-kube-system-provisioning-config",
    ];
    assert_eq!(lines, expected);
}
