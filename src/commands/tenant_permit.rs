//! Permits the manager to replace a tenant's machines because of the documents that there are now,
//! although that takes more than `spec.rollout.machines.maxClass`. The next change needs another
//! permission.

use std::collections::BTreeSet;

use anyhow::{Context as _, bail, ensure};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::cluster_client::{ClusterClient, KubeconfigSource, worker_cluster};
use crate::api::{
    names::PERMITTED,
    worker_cluster::{BehindEntry, MachineDeploymentEntry, MachineReplacement, WorkerCluster},
};
use crate::plan::machine_rollout::permission;

/// What is permitted.
#[derive(Clone, Debug)]
pub struct Params {
    /// The name of the registration.
    pub name: String,
    /// The tenant's namespace in the management cluster.
    pub namespace: String,
    /// Access to the management cluster.
    pub management: KubeconfigSource,
    /// The machine deployments, as `namespace/name`; empty for all.
    pub machine_deployments: Vec<String>,
    /// True if nothing is written.
    pub is_dry_run: bool,
}

/// Permits the changes that machines are behind by, and reports each with a call of `progress`.
///
/// # Errors
///
/// A call fails, or no machine deployment is behind.
pub async fn permit(
    params: Params,
    progress: &mut (dyn FnMut(String) + Send),
) -> anyhow::Result<()> {
    let client = ClusterClient::management(&params.management).await?.client;
    let own = worker_cluster(&client, &params.namespace, &params.name).await?;
    let behind = behind(&own, &params.machine_deployments)?;
    let would = if params.is_dry_run { "would be " } else { "" };
    if !params.is_dry_run {
        write(&client, &own, &behind).await?;
    }
    for (entry, behind) in &behind {
        progress(format!(
            "{}: document {} {would}permitted: {}: {}",
            entry.name, behind.document, behind.class, behind.parts
        ));
    }
    let machines = own.spec.rollout.and_then(|it| it.machines);
    if machines.is_none_or(|it| it.replace == MachineReplacement::Never) {
        progress(format!(
            "spec.rollout.machines.replace of WorkerCluster {} is not WhenOutdated: machines are \
             replaced only if it is in the fleet's defaults",
            own.name_any()
        ));
    }
    Ok(())
}

/// Adds permissions to those that are still about a document of a machine deployment.
async fn write(client: &Client, own: &WorkerCluster, behind: &[Found<'_>]) -> anyhow::Result<()> {
    let word = |(entry, behind): &Found<'_>| permission(&entry.name, &behind.document);
    let before = own.annotations().get(PERMITTED);
    let before: Vec<&str> = before.iter().flat_map(|it| it.split_whitespace()).collect();
    let is_kept = |it: &Found<'_>| before.contains(&word(it).as_str());
    let all = found(own).filter(is_kept).chain(behind.iter().copied());
    let words: BTreeSet<String> = all.map(|it| word(&it)).collect();
    let words: Vec<String> = words.into_iter().collect();
    let patch = json!({"metadata": {
        "uid": own.uid(),
        "resourceVersion": own.resource_version(),
        "annotations": {PERMITTED: words.join(" ")},
    }});
    let (name, namespace) = (own.name_any(), own.namespace().unwrap_or_default());
    let api: Api<WorkerCluster> = Api::namespaced(client.clone(), &namespace);
    let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
    let patched = api.patch_metadata(&name, &params, &patch).await;
    patched.with_context(|| format!("cannot annotate WorkerCluster {namespace}/{name}"))?;
    Ok(())
}

/// A machine deployment whose machines are behind.
type Found<'a> = (&'a MachineDeploymentEntry, &'a BehindEntry);

fn found(own: &WorkerCluster) -> impl Iterator<Item = Found<'_>> {
    let entries = own.status.iter().flat_map(|it| &it.machine_deployments);
    entries.filter_map(|entry| Some((entry, entry.behind.as_ref()?)))
}

fn behind<'a>(own: &'a WorkerCluster, wanted: &[String]) -> anyhow::Result<Vec<Found<'a>>> {
    let is_wanted = |(entry, _): &Found<'_>| wanted.is_empty() || wanted.contains(&entry.name);
    let behind: Vec<_> = found(own).filter(is_wanted).collect();
    let is_behind = |name: &String| behind.iter().any(|(entry, _)| entry.name == *name);
    let status = format!(
        "according to the status of WorkerCluster {}",
        own.name_any()
    );
    if let Some(other) = wanted.iter().find(|name| !is_behind(name)) {
        bail!("{other} is not behind, {status}");
    }
    ensure!(
        !behind.is_empty(),
        "no machine deployment is behind, {status}"
    );
    Ok(behind)
}
