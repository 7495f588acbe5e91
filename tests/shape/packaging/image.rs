//! An image in an OCI archive.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// An image that was unpacked.
pub struct Image {
    /// The name by which containerd knows it.
    pub name: Value,
    /// Its configuration.
    pub config: Value,
    /// Its files.
    pub root: PathBuf,
}

impl Image {
    /// Unpacks an archive below a folder, as a runtime does.
    pub fn unpack(archive: &Path, folder: &Path) -> anyhow::Result<Self> {
        let layout = folder.join("layout");
        untar(archive, &layout)?;
        let json = |path: &str| -> anyhow::Result<Value> {
            Ok(serde_json::from_slice(&fs::read(layout.join(path))?)?)
        };
        let blob = |of: &Value| -> anyhow::Result<String> {
            let digest = of["digest"].as_str().context("a blob has a digest")?;
            Ok(format!("blobs/{}", digest.replacen(':', "/", 1)))
        };
        let index = json("index.json")?;
        let described = &index["manifests"][0];
        let manifest = json(&blob(described)?)?;
        let root = folder.join("root");
        untar(&layout.join(blob(&manifest["layers"][0])?), &root)?;
        Ok(Self {
            name: described["annotations"]["io.containerd.image.name"].clone(),
            config: json(&blob(&manifest["config"])?)?["config"].clone(),
            root,
        })
    }
}

/// Unpacks an archive, compressed or not, into a new folder.
#[expect(
    clippy::disallowed_methods,
    reason = "our own archive and our own folder"
)]
pub fn untar(archive: &Path, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir(folder)?;
    let mut command = Command::new("tar");
    let command = command.arg("--extract").arg("--file").arg(archive);
    let unpacked = command.arg("--directory").arg(folder).status()?;
    ensure!(unpacked.success(), "tar ended with {unpacked}");
    Ok(())
}
