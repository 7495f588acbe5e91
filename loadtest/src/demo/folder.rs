//! The demo's files: kubeconfigs and the manager's log, for the user alone, removed at the end.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tempfile::TempDir;

use super::cluster::DemoCluster;

/// A temporary folder that only this user can open.
#[derive(Debug)]
pub struct Folder(TempDir);

impl Folder {
    /// Makes it.
    pub fn new() -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("osm-demo-")
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir()
            .context("making a folder for the demo's files")?;
        Ok(Self(folder))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, and returns its path.
    pub fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.path().join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// Where a cluster's kubeconfig is.
    pub fn kubeconfig(&self, cluster: &DemoCluster) -> PathBuf {
        self.path().join(format!("{}.kubeconfig", cluster.name()))
    }

    /// Writes a kubeconfig for each cluster, with every right.
    pub fn write_kubeconfigs(&self, clusters: &[DemoCluster]) -> anyhow::Result<()> {
        for cluster in clusters {
            let name = format!("{}.kubeconfig", cluster.name());
            self.write(&name, &cluster.admin_kubeconfig())?;
        }
        Ok(())
    }

    /// Removes it, with everything in it.
    pub fn remove(self) -> anyhow::Result<()> {
        self.0.close().context("removing the demo's files")
    }
}
