//! What an operator installs in the clusters, and the manager itself, from the repository's files.

use std::path::Path;

use anyhow::{Context as _, bail};

use super::cluster::DemoCluster;
use super::folder::Folder;
use super::process::{self, Manager};

/// The manager's ServiceAccount and its namespace.
pub(crate) const ACCOUNT: &str = "operating-system-manager";

/// The folder with the manifests.
pub(crate) fn repository() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// Applies definitions and roles in the management cluster and in worker clusters.
pub(crate) async fn in_all(
    osm: &Path,
    management: &DemoCluster,
    workers: &[DemoCluster],
) -> anyhow::Result<()> {
    in_management(management, &crds(osm).await?).await?;
    for worker in workers {
        in_worker(worker).await?;
    }
    Ok(())
}

/// What `osm crds` prints.
#[expect(
    clippy::disallowed_methods,
    reason = "running the program is what these tools are for"
)]
pub(crate) async fn crds(osm: &Path) -> anyhow::Result<String> {
    let command = std::process::Command::new(osm);
    let output = tokio::process::Command::from(command)
        .arg("crds")
        .output()
        .await
        .context("running osm crds")?;
    if !output.status.success() {
        bail!(
            "osm crds failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    String::from_utf8(output.stdout).context("reading what osm crds prints")
}

async fn in_management(management: &DemoCluster, definitions: &str) -> anyhow::Result<()> {
    management.apply(definitions).await?;
    let namespace = format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {ACCOUNT}}}}}");
    management.apply(&namespace).await?;
    for name in ["management", "management-all-namespaces", "tenants"] {
        apply_file(management, &format!("manifests/rbac/{name}.yaml")).await?;
    }
    Ok(())
}

async fn in_worker(worker: &DemoCluster) -> anyhow::Result<()> {
    apply_file(worker, "manifests/rbac/worker.yaml").await?;
    for name in ["machinedeployments", "kubelet-bootstrap"] {
        apply_file(worker, &format!("tenants-example/worker-crds/{name}.yaml")).await?;
    }
    Ok(())
}

async fn apply_file(cluster: &DemoCluster, path: &str) -> anyhow::Result<()> {
    let text = read(&repository().join(path))?;
    cluster
        .apply(&text)
        .await
        .with_context(|| format!("applying {path}"))
}

pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// Starts the manager with the rights of its own roles only.
pub(crate) async fn start_manager(
    osm: &Path,
    management: &DemoCluster,
    folder: &Folder,
    arguments: &[&str],
) -> anyhow::Result<Manager> {
    let kubeconfig = management
        .service_account_kubeconfig(ACCOUNT, ACCOUNT)
        .await?;
    let kubeconfig = folder.write("osm.kubeconfig", &kubeconfig)?;
    // The first replica of a fleet waits a Lease for others.
    let soon = ["--request-timeout", "3s", "--lease-duration", "4s"];
    Manager::start(process::Params {
        binary: osm,
        kubeconfig: &kubeconfig,
        arguments: &[arguments, &soon].concat(),
        log: folder.path().join("osm.log"),
    })
}
