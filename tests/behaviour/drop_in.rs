//! The real binary under the name of the program that it stands in for, with that one's flags,
//! definitions and rights: what it makes is stored as it was meant, and it asks for nothing more.

use std::os::unix::fs::symlink;
use std::process::ExitStatus;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use osm::api::config::OperatingSystemConfig;
use osm::api::machine_deployment::MachineDeployment;
use osm::api::names::{
    CLOUD_INIT_SETTINGS, DerivedNames, FINALIZER, KUBE_SYSTEM, MADE_FOR_REVISION, PROFILE,
    REVISION, TOKEN_LABEL,
};
use osm::api::profile::OperatingSystemProfile;
use serde_json::json;
use tokio::process::Command;

use crate::administrator::{create, delete, get, merge};
use crate::audit::{Request, told};
use crate::fixtures::{
    CLOUD_CANARY, a_machine_deployment, a_secret, config_text, has_annotation, has_data,
    with_annotation,
};
use crate::life::{has_served, page};
use crate::process::LoggedProcess;
use crate::server::{Server, ok};
use crate::wait;
use crate::world::{IN_WORKER, World, has_machine_controller};

/// The line of KubeOne's Deployment.
const KUBEONE: &[&str] = &[
    "-log-debug=false",
    "-log-format=json",
    "-health-probe-address=0.0.0.0:8085",
    "-metrics-address=0.0.0.0:8080",
    "-cluster-dns=169.254.20.10",
    "-namespace=kube-system",
    "-container-runtime=containerd",
    "-pause-image=registry.example/pause:3.9",
    "-node-containerd-registry-mirrors=docker.io=https://mirror.example",
    "-node-insecure-registries=insecure.example",
    "-node-registry-credentials-secret=kube-system/registry-credentials",
    "-node-http-proxy=http://proxy.example:3128",
    "-node-no-proxy=.svc,10.0.0.0/8",
];
/// The line of KKP's Deployment, behind its `-kubeconfig` and the path.
const KKP: &[&str] = &[
    "-health-probe-address",
    "0.0.0.0:8085",
    "-metrics-address",
    "0.0.0.0:8080",
    "-namespace",
    "kube-system",
    "-cluster-dns",
    "10.240.16.10",
    "-container-runtime",
    "containerd",
    "-external-cloud-provider",
    "-node-kubelet-feature-gates",
    "GracefulNodeShutdown=true",
];
/// What holds behind either: of flags that are repeated the last one counts, and ports are free.
const FREE_PORTS: &[&str] = &[
    "-health-probe-address=127.0.0.1:0",
    "-metrics-address=127.0.0.1:0",
    "-worker-health-probe-address=127.0.0.1:0",
    "-worker-metrics-address=127.0.0.1:0",
];

/// `osm-controller` in a process of its own. Dropping it kills it.
pub struct Controller {
    pub process: LoggedProcess,
    folder: tempfile::TempDir,
}

/// How it learns about a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By `$KUBECONFIG`, which stands for the pod's own credentials.
    Environment,
    /// By `-kubeconfig`.
    Flag,
}

impl Controller {
    /// Starts it.
    pub async fn start(management: &Server, way: Way, line: &[&str]) -> Self {
        let folder = ok(tempfile::tempdir(), "there is room for a folder");
        let kubeconfig = management.kubeconfig(IN_WORKER).await;
        Self::start_in(folder, (&kubeconfig, way), line)
    }

    fn start_in(folder: tempfile::TempDir, way: (&str, Way), line: &[&str]) -> Self {
        let program = folder.path().join("osm-controller");
        if !program.exists() {
            ok(
                symlink(env!("CARGO_BIN_EXE_osm"), &program),
                "the folder is ours",
            );
        }
        let (kubeconfig, way) = way;
        let path = folder.path().join("kubeconfig");
        ok(std::fs::write(&path, kubeconfig), "the folder is ours");
        let mut command = Command::new(&program);
        command.env_clear();
        match way {
            Way::Environment => command.env("KUBECONFIG", &path),
            Way::Flag => command.arg("-kubeconfig").arg(&path),
        };
        let process = LoggedProcess::spawn(command.args(line).args(FREE_PORTS));
        Self { process, folder }
    }

    /// Where its pages are.
    pub async fn address(&self) -> String {
        self.process.address().await
    }

    async fn signal(&self, name: &str) {
        self.process.signal(name).await;
    }

    /// Ends it as Kubernetes does, and hands out its folder.
    pub async fn stop(mut self) -> tempfile::TempDir {
        self.signal("TERM").await;
        let (status, log) = self.ended().await;
        assert!(status.success(), "{status}: {log}");
        self.folder
    }

    async fn ended(&mut self) -> (ExitStatus, String) {
        self.process.ended().await
    }
}

/// A cluster as KubeOne and KKP make it: their definitions, their rights, and no others.
pub async fn a_cluster(world: &World, name: &str) -> Server {
    let server = a_cluster_without_definitions(world, name).await;
    let definitions = include_str!("../drop_in/definitions.yaml");
    server.apply(definitions).await;
    server
}

pub async fn a_cluster_without_definitions(world: &World, name: &str) -> Server {
    let server = Server::start(world.kind, name).await;
    server.apply(include_str!("../drop_in/rights.yaml")).await;
    has_machine_controller(&server).await;
    server
}

/// Everything that the program asked of the servers, and was refused.
pub async fn refused(server: &Server, since: Timestamp) -> Vec<Request> {
    server.settle_audit().await;
    let mut requests = server.requests(IN_WORKER, since);
    requests.retain(|request| request.code == 403);
    requests
}

pub async fn writes(server: &Server, since: Timestamp) -> Vec<Request> {
    server.settle_audit().await;
    let mut requests = server.requests(IN_WORKER, since);
    requests.retain(|request| request.is_write() && request.resource != "leases");
    requests
}

/// What is made for the machine deployment `workers` of `kube-system`, once it is for a revision.
pub async fn made(worker: &Server, revision: &str) -> (Secret, Secret) {
    let names = DerivedNames::new(KUBE_SYSTEM, "workers");
    let secrets: Api<Secret> = Api::namespaced(worker.admin().await, CLOUD_INIT_SETTINGS);
    let bootstrap = wait::for_object(&secrets, &names.bootstrap, "it is current", |found| {
        has_annotation(found, (MADE_FOR_REVISION, revision))
    });
    let bootstrap = bootstrap.await;
    let provisioning = secrets.get(&names.provisioning).await;
    (ok(provisioning, "it was written before"), bootstrap)
}

pub async fn kubeones_line_serves_one_cluster_with_its_definitions_and_rights(
    world: &'static World,
) {
    let cluster = a_cluster(world, "single").await;
    let admin = cluster.admin().await;
    let credentials = r#"{"username":"registry-user","password":"secret"}"#;
    let credentials = a_secret("registry-credentials", ("registry.example", credentials));
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), KUBE_SYSTEM);
    create(&secrets, &credentials).await;
    let begun = Timestamp::now();
    let controller = Controller::start(&cluster, Way::Environment, KUBEONE).await;
    let all: Api<MachineDeployment> = Api::namespaced(admin.clone(), KUBE_SYSTEM);
    let machine_deployment =
        with_annotation(a_machine_deployment("workers"), (PROFILE, "osp-ubuntu"));
    create(&all, &machine_deployment).await;
    let unnamed = a_machine_deployment("unnamed");
    create(&all, &unnamed).await;
    let (_, bootstrap) = made(&cluster, "1").await;
    assert_eq!(bootstrap.immutable, Some(true));
    every_profile_stands_as_it_was_meant(&cluster).await;
    the_config_says_what_the_flags_say(&cluster).await;
    let revision = json!({"metadata": {"annotations": {REVISION: "2"}}});
    merge(&all, "workers", revision).await;
    let (_, rotated) = made(&cluster, "2").await;
    assert_eq!(rotated.data, bootstrap.data, "the same bytes");
    // What names no profile is left to the webhook.
    let unnamed = get(&all, "unnamed").await;
    assert!(unnamed.finalizers().is_empty() && !unnamed.annotations().contains_key(PROFILE));
    an_error_is_an_event(&cluster).await;
    who_waits_to_lead_is_ready(&cluster).await;
    assert!(
        !controller.process.log().contains("kept as found"),
        "no profile looks edited"
    );
    let folder = controller.stop().await;
    assert_the_lease_is_free(&cluster, "operating-system-manager").await;
    a_restart_writes_nothing(&cluster, folder).await;
    let refused = refused(&cluster, begun).await;
    assert!(refused.is_empty(), "{}", told(&refused));
}

/// The config is the inline one, as it has always been there.
async fn the_config_says_what_the_flags_say(cluster: &Server) {
    let configs: Api<OperatingSystemConfig> = Api::namespaced(cluster.admin().await, KUBE_SYSTEM);
    let config = configs.get("workers-kube-system-config").await;
    let config = config_text(&ok(config, "it is there"));
    for told in [
        "169.254.20.10",
        "registry.example/pause:3.9",
        "https://mirror.example",
        "insecure.example",
        "registry-user",
        "http://proxy.example:3128",
        ".svc,10.0.0.0/8",
        CLOUD_CANARY,
    ] {
        assert!(config.contains(told), "{told}");
    }
}

/// But the removal of the machine deployment, which is asked for once it has been looked at.
async fn a_restart_writes_nothing(cluster: &Server, folder: tempfile::TempDir) {
    let all: Api<MachineDeployment> = Api::namespaced(cluster.admin().await, KUBE_SYSTEM);
    let restarted = Timestamp::now();
    let kubeconfig = cluster.kubeconfig(IN_WORKER).await;
    let controller = Controller::start_in(folder, (&kubeconfig, Way::Environment), KUBEONE);
    let address = controller.address().await;
    has_served(&address).await;
    remove(cluster, &all).await;
    controller.stop().await;
    let mut written = writes(cluster, restarted).await;
    written.retain(|it| {
        it.verb != "delete" && !["machinedeployments", "events"].contains(&it.resource.as_str())
    });
    assert!(written.is_empty(), "{}", told(&written));
}

/// The definitions drop what they do not know: what is there is what was sent all the same.
pub async fn every_profile_stands_as_it_was_meant(cluster: &Server) {
    let profiles: Api<OperatingSystemProfile> = Api::namespaced(cluster.admin().await, KUBE_SYSTEM);
    let shipped = osm::render::default_profiles::default_profiles();
    let there = wait::for_objects(&profiles, "all are there", |found| {
        found.len() == shipped.len()
    });
    let there = there.await;
    for default in shipped {
        let mut meant: OperatingSystemProfile =
            ok(serde_saphyr::from_str(default.yaml), "it is a profile");
        meant.spec.template_language = None;
        let found = there.get(&format!("{KUBE_SYSTEM}/{}", default.name));
        let found = found.expect("it has its name");
        assert_eq!(found.spec, meant.spec, "{}", default.name);
    }
}

/// There is no status: what is wrong is told by an Event.
async fn an_error_is_an_event(cluster: &Server) {
    let admin = cluster.admin().await;
    let all: Api<MachineDeployment> = Api::namespaced(admin.clone(), KUBE_SYSTEM);
    let broken = with_annotation(a_machine_deployment("broken"), (PROFILE, "nowhere"));
    create(&all, &broken).await;
    let events: Api<Event> = Api::namespaced(admin, KUBE_SYSTEM);
    let found = wait::for_objects(&events, "an Event reports it", |found| {
        found
            .values()
            .any(|event| event.reason.as_deref() == Some("ProfileNotFound"))
    });
    drop(found.await);
}

/// In the manifests of these clusters liveness asks for readiness: who waits must not be restarted.
async fn who_waits_to_lead_is_ready(cluster: &Server) {
    let second = Controller::start(cluster, Way::Environment, KUBEONE).await;
    let address = second.address().await;
    wait::until("it waits", async || {
        let log = second.process.log();
        log.contains("waiting to be the leader").then_some(())
    })
    .await;
    for path in ["/healthz", "/readyz"] {
        let answer = page(&address, path).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    let answer = page(&address, "/metrics").await;
    assert!(answer.contains("osm_reconciles_total"), "{answer}");
    second.stop().await;
}

/// Deletes the machine deployment `workers`: all that is ours goes with it.
async fn remove(cluster: &Server, all: &Api<MachineDeployment>) {
    let found = get(all, "workers").await;
    assert!(found.finalizers().iter().any(|name| name == FINALIZER));
    delete(all, "workers").await;
    wait::for_absence(all, "workers").await;
    let names = DerivedNames::new(KUBE_SYSTEM, "workers");
    let admin = cluster.admin().await;
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), CLOUD_INIT_SETTINGS);
    for name in [
        &names.provisioning,
        &names.bootstrap,
        &names.kubelet_kubeconfig,
    ] {
        wait::for_absence(&secrets, name).await;
    }
    // The rights do not reach to the token: it expires.
    let tokens: Api<Secret> = Api::namespaced(admin, KUBE_SYSTEM);
    let ours = ListParams::default().labels(&format!("{TOKEN_LABEL}={}", names.key));
    let left = ok(tokens.list(&ours).await, "tokens are listed").items;
    assert!(left.iter().all(|token| has_data(token, "expiration")));
    assert_eq!(left.len(), 1);
}

pub async fn assert_the_lease_is_free(cluster: &Server, name: &str) {
    let leases: Api<Lease> = Api::namespaced(cluster.admin().await, KUBE_SYSTEM);
    let lease = get(&leases, name).await;
    let holder = lease.spec.and_then(|spec| spec.holder_identity);
    assert_eq!(holder.as_deref(), Some(""), "it was released");
}

pub async fn a_management_and_one_worker_cluster_are_served_with_the_rights_of_each(
    world: &'static World,
) {
    let management = a_cluster(world, "one-management").await;
    let worker = a_cluster(world, "one-worker").await;
    let begun = Timestamp::now();
    let folder = ok(tempfile::tempdir(), "there is room for a folder");
    let there = folder.path().join("worker-kubeconfig");
    ok(
        std::fs::write(&there, worker.kubeconfig(IN_WORKER).await),
        "the folder is ours",
    );
    let there = there.to_str().expect("our path is text").to_owned();
    let mut line = KKP.to_vec();
    line.extend(["-worker-cluster-kubeconfig", &there]);
    let kubeconfig = management.kubeconfig(IN_WORKER).await;
    let controller = Controller::start_in(folder, (&kubeconfig, Way::Flag), &line);
    let all: Api<MachineDeployment> = Api::namespaced(worker.admin().await, KUBE_SYSTEM);
    let machine_deployment =
        with_annotation(a_machine_deployment("workers"), (PROFILE, "osp-ubuntu"));
    create(&all, &machine_deployment).await;
    let (_, bootstrap) = made(&worker, "1").await;
    assert_eq!(bootstrap.immutable, Some(true));
    // Machines learn about the worker cluster, and no other.
    let configs: Api<OperatingSystemConfig> =
        Api::namespaced(management.admin().await, KUBE_SYSTEM);
    let config = configs.get("workers-kube-system-config").await;
    let config = config_text(&ok(config, "it is there"));
    assert!(config.contains("10.240.16.10") && config.contains("GracefulNodeShutdown"));
    assert!(!config.contains(&management.url()));
    every_profile_stands_as_it_was_meant(&management).await;
    remove(&worker, &all).await;
    wait::for_absence(&configs, "workers-kube-system-config").await;
    controller.stop().await;
    assert_the_lease_is_free(&management, "operating-system-manager").await;
    assert_the_lease_is_free(&worker, "operating-system-manager-worker-manager").await;
    for server in [&management, &worker] {
        let refused = refused(server, begun).await;
        assert!(refused.is_empty(), "{}", told(&refused));
    }
    // We write nothing into the worker cluster but what its machines need.
    let written = writes(&worker, begun).await;
    let unexpected: Vec<_> = written
        .into_iter()
        .filter(|it| !["secrets", "machinedeployments"].contains(&it.resource.as_str()))
        .collect();
    assert!(unexpected.is_empty(), "{}", told(&unexpected));
}
