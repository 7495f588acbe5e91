//! A KKP seed: its user clusters are served with what KKP keeps for them, and no command for each.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::Api;
use osm::api::config::OperatingSystemConfig;
use osm::api::machine_deployment::MachineDeployment;
use osm::api::names::{DerivedNames, KUBE_SYSTEM, PROFILE};
use osm::api::worker_cluster::WorkerCluster;
use serde_json::json;

use crate::administrator::{create, delete, get, list};
use crate::audit::told;
use crate::commands::{Said, a_file, path, run};
use crate::drop_in::{Controller, Way, a_cluster, made, refused};
use crate::fixtures::{
    a_machine_deployment, a_secret, config_text, the_last_lease, with_annotation,
};
use crate::homes::{LINE, SECRET, deployment, logs, writes_nothing};
use crate::inventories::is_left;
use crate::kkp_clusters::Kkp;
use crate::life::has_served;
use crate::process::Manager;
use crate::server::Server;
use crate::stage::{conditions, message};
use crate::wait;
use crate::world::{IN_WORKER, MANAGER, World, install};

/// The password for a registry, and the flags that only the second manager has.
const PASSWORD: &str = "the-password-of-a-registry";
const SECOND: &[&str] = &[
    "-pause-image",
    "registry.example/pause:second",
    "-node-registry-credentials-secret",
    "kube-system/registries",
];

/// A seed with the permissions that its operator grants, and no others.
struct Seed {
    server: Server,
    kkp: Kkp,
}

impl Seed {
    async fn start(world: &World) -> Self {
        let server = Server::start(world.kind, "seed").await;
        install(&server, &["management", "kkp-seed/management"]).await;
        let leases: Api<Lease> = Api::namespaced(server.admin().await, MANAGER.namespace);
        create(&leases, &the_last_lease("seed")).await;
        let kkp = Kkp::start(&server).await;
        Self { server, kkp }
    }

    async fn manager(&self) -> Manager {
        let kubeconfig = self.server.kubeconfig(MANAGER).await;
        Manager::start_in(&kubeconfig, &["--inventory", "kkp", "--fleet", "seed"]).await
    }

    /// What KKP makes for a user cluster.
    async fn has(&self, id: &str, cluster: &Server, manager: (i32, &[&str])) {
        let namespace = format!("cluster-{id}");
        let made = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace },
        });
        self.server.apply(&made.to_string()).await;
        let kubeconfig = cluster.kubeconfig(IN_WORKER).await;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": SECRET, "namespace": namespace },
            "stringData": { "kubeconfig": kubeconfig },
        });
        self.server.apply(&secret.to_string()).await;
        self.server.apply(&deployment(&namespace, manager)).await;
        self.kkp.has(id, manager.0).await;
    }

    /// Runs `osm adopt kkp`.
    async fn adopt(&self, words: &[&str]) -> Said {
        let kubeconfig = a_file(&self.server.admin_in("default"));
        let reach = [
            "--allow-loopback-servers",
            "--kubeconfig",
            path(&kubeconfig),
        ];
        run(&[&["adopt", "kkp"], words, &reach].concat()).await
    }

    async fn worker_clusters(&self, id: &str) -> Api<WorkerCluster> {
        Api::namespaced(self.server.admin().await, &format!("cluster-{id}"))
    }

    async fn says(&self, id: &str, wanted: (&str, &str, &str)) -> WorkerCluster {
        let api = self.worker_clusters(id).await;
        let what = format!("{id} says {wanted:?}");
        wait::for_object(&api, id, &what, |found| conditions(found).contains(&wanted)).await
    }
}

/// KKP's credentials for registries, where the second manager's flag says.
async fn has_registry_credentials(cluster: &Server) {
    let secrets: Api<Secret> = Api::namespaced(cluster.admin().await, KUBE_SYSTEM);
    let login = json!({ "username": "robot", "password": PASSWORD }).to_string();
    create(&secrets, &a_secret("registries", ("docker.io", &login))).await;
}

async fn has_machines(cluster: &Server) {
    let all: Api<MachineDeployment> = Api::namespaced(cluster.admin().await, KUBE_SYSTEM);
    let named = with_annotation(a_machine_deployment("workers"), (PROFILE, "osp-ubuntu"));
    create(&all, &named).await;
}

pub async fn a_seed_is_served_without_a_command_for_each_cluster(world: &'static World) {
    let begun = Timestamp::now();
    let seed = Seed::start(world).await;
    let (first, second) = (
        a_cluster(world, "user-first").await,
        a_cluster(world, "user-second").await,
    );
    let another = [LINE, SECOND].concat();
    has_registry_credentials(&second).await;
    seed.has("first", &first, (0, LINE)).await;
    seed.has("second", &second, (1, &another)).await;
    let manager = seed.manager().await;
    for cluster in [&first, &second] {
        has_machines(cluster).await;
    }
    let ready = ("Ready", "True", "Ready");
    let own = seed.says("first", ready).await;
    assert_eq!(
        own.spec.pause_image.as_deref(),
        Some("registry.example/pause:3.10")
    );
    made(&first, "1").await;
    is_planned(&seed).await;
    let none = list(&seed.worker_clusters("second").await).await;
    assert!(none.is_empty(), "its own manager serves it: {none:?}");
    // KKP makes a cluster while we run, and hands over another.
    is_handed_over(&seed).await;
    let third = a_cluster(world, "user-third").await;
    seed.has("third", &third, (0, LINE)).await;
    seed.says("second", ready).await;
    seed.says("third", ready).await;
    made(&second, "1").await;
    let configs: Api<OperatingSystemConfig> = Api::namespaced(second.admin().await, KUBE_SYSTEM);
    let config = get(&configs, &DerivedNames::new(KUBE_SYSTEM, "workers").config).await;
    let has_login = config_text(&config).contains(PASSWORD);
    assert!(has_login, "KKP's credentials are used");

    is_listed(&seed).await;
    there_and_back(&seed, &first).await;
    follows_a_change(&seed, &second).await;
    is_forgotten(&seed).await;
    manager.stop().await;
    none_follows_a_wave_that_fails(&seed).await;
    for cluster in [&first, &second, &third] {
        let refused = refused(cluster, begun).await;
        assert!(refused.is_empty(), "{}", told(&refused));
    }
    seed.server.settle_audit().await;
    let mut asked = seed.server.requests(MANAGER, begun);
    asked.retain(|it| it.code == 403);
    assert!(asked.is_empty(), "{}", told(&asked));
}

/// `osm plan` says what handing a cluster over would cause, and nothing of one that is served.
async fn is_planned(seed: &Seed) {
    let kubeconfig = a_file(&seed.server.admin_in("default"));
    for (namespace, takes_over) in [("cluster-first", false), ("cluster-second", true)] {
        let words = [
            "plan",
            "--inventory",
            "kkp",
            "-n",
            namespace,
            "--allow-loopback-servers",
        ];
        let words = [&words[..], &["--kubeconfig", path(&kubeconfig)]].concat();
        let plan = run(&words).await;
        for write in [
            "create WorkerCluster cluster-second/second",
            "acquire Lease kube-system/operating-system-manager",
            "create OperatingSystemProfile kube-system/osp-ubuntu",
        ] {
            assert_eq!(plan.out.contains(write), takes_over, "{write}: {plan:?}");
        }
        assert_eq!(
            plan.out.contains("workers: unchanged"),
            !takes_over,
            "{plan:?}"
        );
    }
}

/// Its operator sees what would happen, and then it does.
async fn is_handed_over(seed: &Seed) {
    let ready = ["first: nothing to do", "second: would be handed over"];
    let writes = [
        "-p '{\"spec\":{\"componentsOverride\":{\"operatingSystemManager\":{\"replicas\":0}}}}'",
        "create WorkerCluster cluster-second/second",
        "acquire Lease kube-system/operating-system-manager",
        "create OperatingSystemProfile kube-system/osp-ubuntu",
    ];
    let looked = seed.adopt(&["--dry-run"]).await;
    assert_eq!(looked.code, Some(3), "{looked:?}");
    for line in [&ready[..], &writes].concat() {
        assert!(looked.out.contains(line), "{line}: {looked:?}");
    }
    assert_eq!(
        seed.kkp.replicas("second").await,
        Some(1),
        "nothing is done"
    );
    let handed_over = seed.adopt(&["--all"]).await;
    assert_eq!(handed_over.code, Some(0), "{handed_over:?}");
    for text in ["second: served, ", "done: 1 user cluster handed over\n"] {
        assert!(handed_over.out.contains(text), "{handed_over:?}");
    }
    let again = seed.adopt(&["--all"]).await;
    assert_eq!(
        (again.code, again.out.as_str()),
        (Some(0), "done: 0 user clusters handed over\n")
    );
    let unknown = seed.adopt(&["--cluster", "tenth"]).await;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(
        unknown.err.contains("there is no user cluster tenth"),
        "{unknown:?}"
    );
}

/// `osm tenants --inventory` says what is there, what is served, and what is not.
async fn is_listed(seed: &Seed) {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "cluster-fourth" },
    });
    seed.server.apply(&namespace.to_string()).await;
    let running = deployment("cluster-fourth", (2, LINE));
    seed.server.apply(&running).await;
    let kubeconfig = a_file(&seed.server.admin_in("default"));
    let words = ["tenants", "--inventory", "--kubeconfig", path(&kubeconfig)];
    let shown = run(&words).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    for [id, replicas, state] in [
        ["first", "0", "Ready"],
        ["second", "0", "Ready"],
        ["third", "0", "Ready"],
        ["fourth", "2", "LeftOut"],
    ] {
        let lines = shown.out.lines();
        let mut rows = lines.map(|it| it.split_whitespace().collect::<Vec<_>>());
        let row = rows.find(|row| row.get(1) == Some(&id));
        let found = row.as_deref().and_then(|row| row.get(2..4));
        assert_eq!(found, Some(&[replicas, state][..]), "{id}: {shown:?}");
    }
    assert!(shown.out.contains("wants 2 replicas"), "{shown:?}");
    // It has no kubeconfig, and KKP does not know it.
    let refused = seed.adopt(&["--all"]).await;
    assert_eq!(refused.code, Some(3), "{refused:?}");
    let why = "fourth: stays, because KKP has no Cluster of this name";
    assert!(refused.out.contains(why), "{refused:?}");
}

/// Nobody leaves the first one, which is alone in its wave: our manager has stopped.
async fn none_follows_a_wave_that_fails(seed: &Seed) {
    let words = ["--all", "--back", "--timeout", "1s"];
    let ended = seed.adopt(&words).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.err.contains("first is not given back after 1 s"),
        "{ended:?}"
    );
    let replicas = (
        seed.kkp.replicas("first").await,
        seed.kkp.replicas("second").await,
    );
    assert_eq!(replicas, (None, Some(0)));
}

/// The manager of KKP with the same flags finds what it would have made, and so do we after it.
async fn there_and_back(seed: &Seed, cluster: &Server) {
    cluster.settle_audit().await;
    let settled = Timestamp::now();
    let theirs = Controller::start(cluster, Way::Flag, LINE).await;
    logs(&theirs, "waiting to be the leader").await;
    let back = seed.adopt(&["--cluster", "first", "--back"]).await;
    assert_eq!(back.code, Some(0), "{back:?}");
    assert!(
        back.out.contains("done: 1 user cluster given back"),
        "{back:?}"
    );
    assert_eq!(seed.kkp.replicas("first").await, None);
    let left = ("Registered", "False", "RegistrationRemoved");
    let left = seed.says("first", left).await;
    let why = message(&left, "Registered");
    assert!(why.contains("wants 1 replica; the Lease"), "{why}");
    logs(&theirs, "\"leading\"").await;
    has_served(&theirs.address().await).await;
    let ends = async {
        seed.says("first", ("Adopted", "False", "UpstreamRunning"))
            .await;
        theirs.stop().await
    };
    let (again, log) = tokio::join!(seed.adopt(&["--cluster", "first"]), ends);
    drop(log);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(
        again.out.contains("first: waiting: UpstreamRunning"),
        "{again:?}"
    );
    seed.says("first", ("Ready", "True", "Ready")).await;
    writes_nothing(cluster, settled).await;
}

/// A setting changes in KKP.
async fn follows_a_change(seed: &Seed, cluster: &Server) {
    let namespace = "cluster-second";
    cluster.settle_audit().await;
    let begun = Timestamp::now();
    let line = [LINE, &["-pause-image", "registry.example/pause:new"]].concat();
    seed.server.apply(&deployment(namespace, (0, &line))).await;
    let api = seed.worker_clusters("second").await;
    let is_new = |found: &WorkerCluster| {
        found.spec.pause_image.as_deref() == Some("registry.example/pause:new")
    };
    wait::for_object(&api, "second", "its settings are KKP's", is_new).await;
    // What cannot be used changes nothing, and the cluster is served on.
    let wrong = [LINE, &["-a-flag-of-tomorrow", "1"]].concat();
    seed.server.apply(&deployment(namespace, (0, &wrong))).await;
    seed.says("second", ("Ready", "True", "Ready")).await;
    assert!(is_new(&get(&api, "second").await));
    // Its documents have the new setting, and nothing was listed for that.
    let configs: Api<OperatingSystemConfig> = Api::namespaced(cluster.admin().await, KUBE_SYSTEM);
    let name = DerivedNames::new(KUBE_SYSTEM, "workers").config;
    let has_it = |found: &OperatingSystemConfig| config_text(found).contains("pause:new");
    wait::for_object(&configs, &name, "it has the new setting", has_it).await;
    cluster.settle_audit().await;
    let mut lists = cluster.requests(IN_WORKER, begun);
    lists.retain(|it| it.verb == "list" && it.resource == "machinedeployments");
    assert!(lists.is_empty(), "{}", told(&lists));
}

/// KKP deletes what it made for a cluster.
async fn is_forgotten(seed: &Seed) {
    let admin = seed.server.admin().await;
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "cluster-third");
    delete(&secrets, SECRET).await;
    is_left(&seed.worker_clusters("third").await, "third").await;
}
