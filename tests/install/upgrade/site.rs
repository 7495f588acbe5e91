//! A management cluster and a worker cluster with one tenant, and processes that serve it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};
use loadtest::control_plane::{ControlPlane, Params};
use osm::api::config::OperatingSystemConfig;
use osm::api::machine_deployment::MachineDeployment;
use osm::api::names::{CLOUD_INIT_SETTINGS, KUBE_SYSTEM};
use osm::api::worker_cluster::{WorkerCluster, WorkerClusterStatus};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::process::{Child, Command};

const MANAGER: &str = "operating-system-manager";
const TENANT: &str = "tenant-berlin";
const NAME: &str = "berlin";
/// Of the machine deployments.
const SERVED: &str = "3/3";
/// What a document of another build may differ in: the kubelet's kubeconfig has a token that ends
/// after an hour, and this Secret is Kubernetes' own.
const TOKENS: [&str; 2] = ["-kubelet-bootstrap-config", "-token"];
const DEADLINE: Duration = Duration::from_mins(1);

pub struct Site {
    folder: TempDir,
    management: ControlPlane,
    worker: ControlPlane,
}

/// A process that serves the tenant. Dropping it ends it.
pub struct Manager {
    process: Child,
}

impl Manager {
    pub async fn stop(mut self) {
        let id = self.process.id().expect("it runs").to_string();
        let ended = command("kill").args(["-TERM", &id]).status().await;
        assert!(ended.expect("kill runs").success());
        let status = tokio::time::timeout(DEADLINE, self.process.wait()).await;
        let status = status.expect("it ends in time").expect("it is ours");
        assert!(status.success(), "{status}");
    }
}

fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs kubectl as an administrator, as the pages tell people to.
async fn kubectl(cluster: &ControlPlane, words: &str) {
    let kubeconfig = cluster.folder().join("administrator.kubeconfig");
    fs::write(&kubeconfig, cluster.admin_kubeconfig()).expect("the folder is ours");
    let output = command(cluster.kubectl())
        .args(words.split_whitespace())
        .current_dir(repository())
        .env("KUBECONFIG", kubeconfig)
        .output()
        .await
        .expect("kubectl runs");
    assert!(output.status.success(), "{words}: {output:?}");
}

fn archive(cluster: &str) -> PathBuf {
    repository().join(format!("tests/install/upgrade/recorded/{cluster}.tar.xz"))
}

async fn tar(words: &[&str], archive: &Path, folder: &Path) {
    let mut command = command("tar");
    let command = command.args(words).arg("--file").arg(archive);
    let status = command
        .arg("--directory")
        .arg(folder)
        .arg(".")
        .status()
        .await;
    assert!(status.expect("tar runs").success(), "{words:?}");
}

impl Site {
    /// Nobody has served here.
    pub async fn fresh() -> Self {
        let (management, worker) = tokio::join!(
            Box::pin(start("management", None)),
            Box::pin(start("worker", None)),
        );
        let site = Self {
            folder: TempDir::new().expect("there is room"),
            management,
            worker,
        };
        kubectl(
            &site.management,
            "apply --server-side -k manifests/kustomize/base",
        )
        .await;
        kubectl(
            &site.management,
            "apply -f tests/install/upgrade/management.yaml",
        )
        .await;
        let rights = "-f manifests/rbac/worker.yaml -f tenants-example/worker-crds";
        kubectl(&site.worker, &format!("apply {rights}")).await;
        // Only once its kind is served.
        kubectl(&site.worker, "wait --for=condition=established crd --all").await;
        kubectl(&site.worker, "apply -f tests/install/upgrade/worker.yaml").await;
        site
    }

    /// An older build has served here.
    pub async fn recorded() -> Self {
        let folder = TempDir::new().expect("there is room");
        for cluster in ["management", "worker"] {
            let kept = folder.path().join(cluster);
            fs::create_dir(&kept).expect("there is room");
            tar(&["--extract", "--xz"], &archive(cluster), &kept).await;
        }
        let kept = |cluster: &str| Some(folder.path().join(cluster));
        let (management, worker) = tokio::join!(
            Box::pin(start("management", kept("management"))),
            Box::pin(start("worker", kept("worker")),),
        );
        let site = Self {
            folder,
            management,
            worker,
        };
        // Its API server answers elsewhere than when it was recorded.
        site.register().await;
        site
    }

    /// Records both clusters.
    pub async fn record(self) {
        let Self {
            folder,
            management,
            worker,
        } = self;
        for (name, cluster) in [("management", management), ("worker", worker)] {
            let kept = folder.path().join(name);
            fs::create_dir(&kept).expect("there is room");
            cluster.keep(&kept).await.expect("it is kept");
            let words = ["--create", "--xz", "--sort=name", "--owner=0", "--group=0"];
            tar(&words, &archive(name), &kept).await;
        }
    }

    /// Starts a build, and waits until it serves the tenant.
    pub async fn serve(&self, osm: &Path, instance: &str) -> Manager {
        let manager = self.start(osm, instance).await;
        self.is_served().await;
        manager
    }

    /// Starts a build beside another one, and waits until it shares the fleet and the tenant is
    /// served, by either.
    pub async fn join(&self, osm: &Path, instance: &str) -> Manager {
        let manager = self.start(osm, instance).await;
        let client = self.management.client().await.expect("a client");
        let leases: Api<Lease> = Api::namespaced(client, MANAGER);
        let name = format!("osm-{instance}");
        let is_there = |lease: Option<&Lease>| lease.is_some();
        self.until(
            "it is in the fleet",
            await_condition(leases, &name, is_there),
        )
        .await;
        self.is_served().await;
        manager
    }

    /// Starts a build, and waits until it has tried to serve the tenant.
    pub async fn try_to_serve(&self, osm: &Path, instance: &str) -> Manager {
        let manager = self.start(osm, instance).await;
        let tried = |status: &WorkerClusterStatus| {
            let mut conditions = status.conditions.iter();
            let is_tried = |reason: &str| ["Ready", "SomeNotServed"].contains(&reason);
            conditions.any(|it| it.type_ == "Ready" && is_tried(&it.reason))
        };
        self.until_engaged_and("it is tried", tried).await;
        manager
    }

    /// Waits until the tenant is served, by any build.
    pub async fn is_served(&self) {
        let is_served = |status: &WorkerClusterStatus| {
            let mut conditions = status.conditions.iter();
            let is_ready = conditions.any(|it| it.type_ == "Ready" && it.status == "True");
            is_ready && status.served.as_deref() == Some(SERVED)
        };
        self.until_engaged_and("it is served", is_served).await;
    }

    /// Registers a new kubeconfig, and waits until the status is so, and of that kubeconfig.
    async fn until_engaged_and(&self, what: &str, is_so: fn(&WorkerClusterStatus) -> bool) {
        let observed = |own: &WorkerCluster| own.status.as_ref()?.observed_kubeconfig.clone();
        let before = observed(&self.own().await);
        self.register().await;
        let is_so = move |own: Option<&WorkerCluster>| {
            let status = own.and_then(|own| own.status.as_ref());
            let by = own.and_then(observed);
            by.is_some() && by != before && status.is_some_and(is_so)
        };
        let own = self.worker_clusters().await;
        self.until(what, await_condition(own, NAME, is_so)).await;
    }

    /// Starts a build, and waits for nothing.
    pub async fn start(&self, osm: &Path, instance: &str) -> Manager {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("osm.log"))
            .expect("there is room");
        let process = command(osm)
            .args(self.arguments("run").await)
            .args(["--instance", instance, "--admin-address", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("it was built");
        Manager { process }
    }

    async fn arguments(&self, subcommand: &str) -> Vec<String> {
        let kubeconfig = self
            .management
            .kubeconfig_for_service_account(MANAGER, MANAGER);
        let kubeconfig = kubeconfig.await.expect("it is there");
        let file = self.folder.path().join("manager.kubeconfig");
        fs::write(&file, kubeconfig).expect("there is room");
        let words = [subcommand, "--allow-loopback-servers", "--kubeconfig"];
        let mut words = words.map(str::to_owned).to_vec();
        words.push(file.display().to_string());
        words
    }

    /// Registers the worker cluster, with a token of its own each time.
    async fn register(&self) {
        let kubeconfig = self
            .worker
            .kubeconfig_for_service_account(KUBE_SYSTEM, MANAGER);
        let registration = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {
                "name": NAME,
                "labels": { "operatingsystemmanager.k8c.io/worker-cluster": "true" },
            },
            "stringData": { "kubeconfig": kubeconfig.await.expect("it is there") },
        });
        let client = self.management.client().await.expect("a client");
        let secrets: Api<Secret> = Api::namespaced(client, TENANT);
        let params = PatchParams::apply("operator").force();
        let patch = Patch::Apply(&registration);
        let applied = secrets.patch(NAME, &params, &patch).await;
        drop(applied.expect("it is applied"));
    }

    async fn worker_clusters(&self) -> Api<WorkerCluster> {
        Api::namespaced(self.management.client().await.expect("a client"), TENANT)
    }

    async fn own(&self) -> WorkerCluster {
        let found = self.worker_clusters().await.get(NAME).await;
        found.expect("it was applied")
    }

    /// The verdicts of `osm plan`. Nothing that it plans takes anything on machines that run.
    pub async fn plan(&self, osm: &Path) -> Vec<String> {
        let planned = command(osm)
            .args(self.arguments("plan").await)
            .args(["--format", "json", "--max-class", "None"])
            .output()
            .await
            .expect("it was built");
        assert!(matches!(planned.status.code(), Some(0 | 3)), "{planned:?}");
        let answers: Value = serde_json::from_slice(&planned.stdout).unwrap_or_default();
        let answers = answers.as_array().into_iter().flatten();
        let verdicts: Vec<String> = answers
            .filter_map(|it| it["verdict"].as_str().map(str::to_owned))
            .collect();
        assert!(!verdicts.is_empty(), "{planned:?}");
        verdicts
    }

    /// What machines were made from, and what says how: each with its uid and the digest of what
    /// must not change.
    pub async fn documents(&self) -> BTreeMap<String, (String, String)> {
        let management = self.management.client().await.expect("a client");
        let worker = self.worker.client().await.expect("a client");
        let secrets: Api<Secret> = Api::namespaced(worker.clone(), CLOUD_INIT_SETTINGS);
        let configs: Api<OperatingSystemConfig> = Api::namespaced(management, TENANT);
        let machines: Api<MachineDeployment> = Api::namespaced(worker, KUBE_SYSTEM);
        let all = ListParams::default();
        let mut found = BTreeMap::new();
        for secret in secrets.list(&all).await.expect("they are listed") {
            if !TOKENS.iter().any(|end| secret.name_any().ends_with(end)) {
                insert(&mut found, "Secret", &secret, &json!(secret.data));
            }
        }
        for config in configs.list(&all).await.expect("they are listed") {
            insert(&mut found, "config", &config, &json!(config.spec));
        }
        for machine in machines.list(&all).await.expect("they are listed") {
            let template = json!(machine.spec.template);
            insert(&mut found, "machine deployment", &machine, &template);
        }
        found
    }

    async fn until<T>(
        &self,
        what: &str,
        condition: impl Future<Output = Result<T, kube::runtime::wait::Error>>,
    ) {
        let waited = tokio::time::timeout(DEADLINE, condition).await;
        let is_so = waited.is_ok_and(|found| found.is_ok());
        let log = fs::read_to_string(self.folder.path().join("osm.log")).unwrap_or_default();
        let status = self.own().await.status;
        assert!(is_so, "{what}: never; {status:#?}\n{log}");
    }
}

fn insert<K: ResourceExt>(
    found: &mut BTreeMap<String, (String, String)>,
    kind: &str,
    object: &K,
    content: &Value,
) {
    let name = format!("{kind} {}", object.name_any());
    let digest = Sha256::digest(content.to_string());
    let uid = object.uid().expect("the server gives it");
    found.insert(name, (uid, hex::encode(digest)));
}

async fn start(name: &str, kept: Option<PathBuf>) -> ControlPlane {
    let params = Params {
        name: name.to_owned(),
        kept,
        ..Params::default()
    };
    ControlPlane::start(params).await.expect("it starts")
}
