//! Reads the objects that `osm plan -f` supposes to be applied.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use kube::CustomResourceExt as _;
use serde_json::Value as Json;

use super::input::{STDIN, documents_without_quotes, refuse_shape, worker_cluster_spec};
use crate::api::profile::OperatingSystemProfile;
use crate::commands::plan::applied::{Applied, Key};
use crate::rules::{document::Document, profile::check, shape::schema_of};

/// Reads the WorkerClusters and profiles of files and folders. Other objects are ignored.
pub(super) fn applied(paths: &[PathBuf]) -> anyhow::Result<Applied> {
    let mut applied = Applied::default();
    for path in paths {
        for file in files(path)? {
            for document in documents_without_quotes(&file)? {
                add(&mut applied, &file, &document)?;
            }
        }
    }
    let is_empty = applied.worker_clusters.is_empty() && applied.profiles.is_empty();
    ensure!(
        paths.is_empty() || !is_empty,
        "--filename names no WorkerCluster and no OperatingSystemProfile"
    );
    Ok(applied)
}

fn add(applied: &mut Applied, file: &Path, document: &Document) -> anyhow::Result<()> {
    if document.kind() == Some("WorkerCluster") {
        let spec = worker_cluster_spec(file, document)?;
        let earlier = applied.worker_clusters.insert(key(file, document)?, spec);
        ensure!(earlier.is_none(), twice(file));
    } else if document.kind() == Some("OperatingSystemProfile") {
        refuse_shape(file, document, &schema_of(OperatingSystemProfile::crd()))?;
        let profile: OperatingSystemProfile = serde_json::from_value(document.value.clone())
            .with_context(|| format!("{}: not an OperatingSystemProfile", file.display()))?;
        check(&profile.spec).with_context(|| file.display().to_string())?;
        let earlier = applied.profiles.insert(key(file, document)?, profile.spec);
        ensure!(earlier.is_none(), twice(file));
    }
    Ok(())
}

fn twice(file: &Path) -> String {
    format!("{}: an earlier file has the same object", file.display())
}

fn key(file: &Path, document: &Document) -> anyhow::Result<Key> {
    let of = |pointer| {
        let text = document.value.pointer(pointer).and_then(Json::as_str);
        text.map(str::to_owned)
    };
    let kind = document.kind().unwrap_or_default();
    match (of("/metadata/namespace"), of("/metadata/name")) {
        (Some(namespace), Some(name)) => Ok((namespace, name)),
        (None, Some(name)) => bail!(
            "{}: {kind} {name} has no metadata.namespace; name the one that it is applied to",
            file.display()
        ),
        _ => bail!("{}: a {kind} has no metadata.name", file.display()),
    }
}

/// Returns a file, or those of a folder whose names end as manifests do, and of the folders in it.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if path == Path::new(STDIN) || !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let cannot_read = || format!("cannot read {}", path.display());
    let mut found = Vec::new();
    let entries = path.read_dir().with_context(cannot_read)?;
    let mut entries = entries
        .collect::<Result<Vec<_>, _>>()
        .with_context(cannot_read)?;
    entries.sort_by_key(std::fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        let extension = path.extension().and_then(|it| it.to_str());
        let is_manifest = matches!(extension, Some("yaml" | "yml" | "json"));
        // A link may lead back to where it is.
        let kind = entry.file_type().with_context(cannot_read)?;
        if kind.is_dir() {
            found.extend(files(&path)?);
        } else if is_manifest {
            found.push(path);
        }
    }
    Ok(found)
}
