//! A page's commands, in order.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use loadtest::control_plane::{ControlPlane, Params};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::image::{self, Image};
use crate::page::{Page, Start};
use crate::pod::{self, Pod};
use crate::typed::{self, MANAGEMENT, StandIn, WORKER};

/// Where pods reach the worker cluster of kind, which has a name there, and that of k3s.
const KIND: (&str, &str) = ("192.0.2.10:6443", "berlin-control-plane");
const K3S: (&str, &str) = ("192.0.2.20:6443", "192.0.2.20");

/// Runs every command, and looks at what the last one prints.
pub async fn walk(page: Page) -> anyhow::Result<()> {
    let mut walk = Walk::begin().await?;
    if page.start == Start::Recorded {
        walk.go_on().await?;
    }
    let before = walk.documents(page).await?;
    let mut printed = String::new();
    for command in page.commands()? {
        let line = &command.line;
        let done = if command.is_tested {
            walk.run(line).await.map(|it| printed = it)
        } else {
            walk.replace(line).await
        };
        done.with_context(|| format!("{}: {line}", page.name))?;
    }
    ensure!(
        printed.contains(page.end),
        "the page ends without {}: {printed}",
        page.end
    );
    let after = walk.documents(page).await?;
    ensure!(
        before == after,
        "documents have changed: {before:?} {after:?}"
    );
    walk.pod.context("no pod was started")?.stop().await
}

/// How far a walk has come.
struct Walk {
    folder: TempDir,
    planes: BTreeMap<&'static str, ControlPlane>,
    image: Option<Image>,
    /// Whether the page has imported it.
    is_imported: bool,
    // Before its cluster goes.
    pod: Option<Pod>,
    exported: String,
    backups: BTreeMap<&'static str, Vec<String>>,
    kubeconfigs: Vec<PathBuf>,
    forwarders: JoinSet<()>,
}

impl Walk {
    async fn begin() -> anyhow::Result<Self> {
        let folder = TempDir::new()?;
        let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
        // It may be relative to the repository.
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
        symlink(repository.join(target), folder.path().join("target"))?;
        for name in ["manifests", "tenants-example"] {
            symlink(repository.join(name), folder.path().join(name))?;
        }
        for (address, _) in [KIND, K3S] {
            let (address, _) = address.split_once(':').context("it has a port")?;
            sh(&format!("ip address replace {address}/32 dev lo")).await?;
        }
        Ok(Self {
            folder,
            planes: BTreeMap::new(),
            image: None,
            is_imported: false,
            pod: None,
            exported: String::new(),
            backups: BTreeMap::new(),
            kubeconfigs: Vec::new(),
            forwarders: JoinSet::new(),
        })
    }

    /// Runs a command in a shell, as a person would.
    async fn run(&mut self, line: &str) -> anyhow::Result<String> {
        if line == crate::MAKE {
            // It ran where crates can be fetched.
            return Ok(String::new());
        }
        if line.starts_with("export ") {
            self.exported.push_str(line);
            self.exported.push('\n');
        }
        let kubectl = self
            .plane(MANAGEMENT)
            .or_else(|_| self.plane(WORKER))?
            .kubectl();
        let tools = kubectl.parent().context("kubectl is in a folder")?;
        let script = format!(
            "PATH=target/image:{}:$PATH\n{}{line}",
            tools.display(),
            self.exported
        );
        let output = bash(&script)
            .current_dir(self.folder.path())
            .env("KUBECONFIG", std::env::join_paths(&self.kubeconfigs)?)
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .output()
            .await?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        println!("$ {line}\n{printed}{errors}");
        let log = self.pod.as_ref().map(Pod::log).unwrap_or_default();
        ensure!(
            output.status.success(),
            "{}\n{printed}{errors}\n{log}",
            output.status
        );
        Ok(printed)
    }

    /// Does what stands in for a command.
    async fn replace(&mut self, line: &str) -> anyhow::Result<()> {
        let stand_in = typed::stand_in(line).context("nothing takes its place here")?;
        println!("$ {line}   # {stand_in:?}");
        match stand_in {
            StandIn::Cluster(name) => self.start(name).await,
            StandIn::NextCluster if self.planes.is_empty() => self.start(WORKER).await,
            StandIn::NextCluster => self.start(MANAGEMENT).await,
            StandIn::WorkerKubeconfig => {
                let kubeconfig = self.plane(WORKER)?.admin_kubeconfig();
                self.write("berlin.kubeconfig", &kubeconfig)
            }
            StandIn::WorkerKubeconfigOutside => {
                let plane = self.plane(WORKER)?;
                let outside = format!("https://{}", K3S.0);
                let kubeconfig = plane.admin_kubeconfig().replace(plane.server(), &outside);
                self.write("berlin.kubeconfig", &kubeconfig)
            }
            StandIn::ManagementKubeconfig => {
                let kubeconfig = self.plane(MANAGEMENT)?.admin_kubeconfig();
                self.write("management.kubeconfig", &kubeconfig)
            }
            StandIn::Import => {
                self.is_imported = true;
                self.import()
            }
            StandIn::Pod => self.start_pod().await,
            StandIn::Backup(name, namespace, kinds) => {
                let objects = self.back_up(namespace, kinds).await?;
                self.backups.insert(name, objects);
                Ok(())
            }
            StandIn::AnotherManagement => {
                self.pod.take().context("no pod runs")?.stop().await?;
                self.planes.remove(MANAGEMENT);
                self.start(MANAGEMENT).await
            }
            StandIn::Restore(name) => {
                let backup = self.backups.get(name).context("nothing was backed up")?;
                let backup = backup.join("\n---\n");
                Ok(self.plane(MANAGEMENT)?.apply_yaml(&backup).await?)
            }
            StandIn::AnotherTest => Ok(()),
        }
    }

    /// Starts with what an older build has served, registered under its address of today.
    async fn go_on(&mut self) -> anyhow::Result<()> {
        for name in [MANAGEMENT, WORKER] {
            let archive = format!("tests/install/upgrade/recorded/{name}.tar.xz");
            let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join(archive);
            let kept = self.folder.path().join(name);
            image::untar(&archive, &kept)?;
            self.start_from(name, Some(kept)).await?;
        }
        self.import()?;
        let worker = self.plane(WORKER)?;
        let account =
            worker.kubeconfig_for_service_account("kube-system", "operating-system-manager");
        let outside = format!("https://{}", K3S.0);
        let kubeconfig = account.await?.replace(worker.server(), &outside);
        let admin = worker.admin_kubeconfig().replace(worker.server(), &outside);
        let registration = serde_json::json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": "berlin", "namespace": "tenant-berlin" },
            "stringData": { "kubeconfig": kubeconfig },
        });
        let management = self.plane(MANAGEMENT)?;
        management.apply_yaml(&registration.to_string()).await?;
        self.write("berlin.kubeconfig", &admin)?;
        self.start_pod().await?;
        let is_current = "until osm plan --summary > /dev/null; do sleep 0.2; done";
        self.run(&format!("timeout 60 bash -c '{is_current}'"))
            .await?;
        Ok(())
    }

    /// The uids of the documents that an older build has made: no command may change one.
    async fn documents(&mut self, page: Page) -> anyhow::Result<BTreeMap<String, String>> {
        if page.start == Start::Nothing {
            return Ok(BTreeMap::new());
        }
        let list = "kubectl --kubeconfig berlin.kubeconfig -n cloud-init-settings get secrets \
            -o jsonpath='{range .items[*]}{.metadata.name} {.metadata.uid}{\"\\n\"}{end}'";
        let listed = self.run(list).await?;
        let lines = listed.lines().filter_map(|line| line.split_once(' '));
        // They cannot be changed in place. Others hold tokens, which end.
        let documents = lines.filter(|(name, _)| {
            name.ends_with("-provisioning-config") || name.ends_with("-system-bootstrap-config")
        });
        let documents: BTreeMap<_, _> = documents
            .map(|(name, uid)| (name.to_owned(), uid.to_owned()))
            .collect();
        ensure!(
            documents.len() == 6,
            "two of each machine deployment: {documents:?}"
        );
        Ok(documents)
    }

    async fn back_up(&mut self, namespace: &str, kinds: &[&str]) -> anyhow::Result<Vec<String>> {
        let mut backup = Vec::new();
        for kind in kinds {
            let list = format!("kubectl get {kind} -n {namespace} -o json");
            let listed: Value = serde_json::from_str(&self.run(&list).await?)?;
            let objects = match listed["items"].as_array() {
                Some(items) => items.clone(),
                None => vec![listed],
            };
            for mut object in objects {
                object
                    .as_object_mut()
                    .context("an object")?
                    .remove("status");
                let metadata = object["metadata"].as_object_mut().context("an object")?;
                metadata.retain(|key, _| {
                    ["name", "namespace", "labels", "annotations"].contains(&key.as_str())
                });
                backup.push(object.to_string());
            }
        }
        Ok(backup)
    }

    fn import(&mut self) -> anyhow::Result<()> {
        let archive = self.folder.path().join("target/image/osm.oci.tar");
        self.image = Some(Image::unpack(&archive, self.folder.path())?);
        Ok(())
    }

    async fn start(&mut self, name: &'static str) -> anyhow::Result<()> {
        self.start_from(name, None).await
    }

    async fn start_from(
        &mut self,
        name: &'static str,
        kept: Option<PathBuf>,
    ) -> anyhow::Result<()> {
        let params = Params {
            name: name.to_owned(),
            server_names: vec![KIND.1.to_owned(), K3S.1.to_owned()],
            kept,
            ..Params::default()
        };
        let plane = ControlPlane::start(params).await?;
        let context = format!("kind-{}", if name == WORKER { "berlin" } else { name });
        let kubeconfig = plane.admin_kubeconfig();
        let kubeconfig = kubeconfig
            .replace(&format!("\"admin@{name}\""), &context)
            .replace("\"admin\"", &context);
        let file = format!("{context}.kubeconfig");
        self.write(&file, &kubeconfig)?;
        let file = self.folder.path().join(file);
        if !self.kubeconfigs.contains(&file) {
            self.kubeconfigs.push(file);
        }
        if name == WORKER {
            let (_, port) = plane.server().rsplit_once(':').context("it has a port")?;
            let to: SocketAddr = format!("127.0.0.1:{port}").parse()?;
            for (address, _) in [KIND, K3S] {
                let listener = TcpListener::bind(address).await?;
                self.forwarders.spawn(forward(listener, to));
            }
        }
        self.planes.insert(name, plane);
        Ok(())
    }

    /// Starts the Deployment's pod in place of the one that runs.
    async fn start_pod(&mut self) -> anyhow::Result<()> {
        if let Some(pod) = self.pod.take() {
            pod.stop().await?;
        }
        let manager = "deployment/operating-system-manager -n operating-system-manager";
        let file = self.write_context(MANAGEMENT)?;
        let kubectl = self.plane(MANAGEMENT)?.kubectl();
        let deployment = sh(&format!(
            "{} --kubeconfig {} get {manager} -o json",
            kubectl.display(),
            file.display()
        ))
        .await?;
        let (address, name) = KIND;
        let (address, _) = address.split_once(':').context("it has a port")?;
        let deployment: Value = serde_json::from_str(&deployment)?;
        let image = self.image.as_ref().context("no image was imported")?;
        let wanted = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
        ensure!(
            !self.is_imported || *wanted == image.name,
            "the Deployment has image {wanted}, and {} was imported",
            image.name
        );
        let params = pod::Params {
            folder: self.folder.path(),
            image,
            deployment: &deployment,
            cluster: self.plane(MANAGEMENT)?,
            hosts: &format!("{address} {name}\n"),
        };
        let pod = Pod::start(params).await?;
        self.pod = Some(pod);
        Ok(())
    }

    fn write_context(&self, name: &str) -> anyhow::Result<PathBuf> {
        let file = self.folder.path().join(format!("{name}-admin.kubeconfig"));
        fs::write(&file, self.plane(name)?.admin_kubeconfig())?;
        Ok(file)
    }

    fn plane(&self, name: &str) -> anyhow::Result<&ControlPlane> {
        self.planes
            .get(name)
            .with_context(|| format!("there is no cluster {name} yet"))
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        Ok(fs::write(self.folder.path().join(name), text)?)
    }
}

/// Carries every connection on.
async fn forward(listener: TcpListener, to: SocketAddr) {
    let mut connections = JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        connections.spawn(async move {
            if let Ok(mut far) = TcpStream::connect(to).await {
                // Either side may end it.
                drop(copy_bidirectional(&mut near, &mut far).await);
            }
        });
    }
}

fn bash(script: &str) -> Command {
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", script]);
    command
}

async fn sh(line: &str) -> anyhow::Result<String> {
    let output = bash(line).output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{line}: {errors}");
    Ok(String::from_utf8(output.stdout)?)
}
