//! Waits until the manager serves a tenant with the kubeconfig that is registered now, and reports
//! what it is waiting for.

use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt as _};
use tokio::time::{Instant, sleep};

use super::{Params, TenantAddition};
use crate::api::{names::KUBECONFIG_KEY, reason::Reason, worker_cluster::WorkerCluster};
use crate::commands::readiness::{Readiness, readiness, said};
use crate::tenant::access::fingerprint;

/// The interval between two checks.
const INTERVAL: Duration = Duration::from_millis(500);

/// Waits until the WorkerCluster is ready, or only machine-controller is missing.
pub(super) async fn wait(
    addition: &TenantAddition,
    (name, patience): (&str, Duration),
    progress: &mut (dyn FnMut(String) + Send),
) -> anyhow::Result<()> {
    let namespace = &addition.params.namespace;
    let api: Api<WorkerCluster> = Api::namespaced(addition.management.client.clone(), namespace);
    let deadline = Instant::now() + patience;
    let mut reported = String::new();
    loop {
        // The manager may renew it meanwhile.
        let registered = registered(addition).await?;
        let found = api.get_opt(name).await;
        let found = found.with_context(|| format!("cannot read WorkerCluster {name}"))?;
        let said = found
            .as_ref()
            .map_or_else(String::new, |found| state(found, &registered));
        let taken = found.as_ref().filter(|it| has_taken(it, &registered));
        match taken.map_or(Readiness::Not, readiness) {
            Readiness::Ready(text) => {
                progress(format!("ready: {namespace}/{name}, {text}"));
                return Ok(());
            }
            Readiness::InPart(Reason::MachineDeploymentNotServed) => {
                progress(format!(
                    "registered: {namespace}/{name}; the worker cluster has no MachineDeployments \
                     yet: install machine-controller, and the manager goes on by itself"
                ));
                return Ok(());
            }
            Readiness::InPart(_) => {
                progress(format!(
                    "registered: {namespace}/{name}; not all of it is served: {said}"
                ));
                return Ok(());
            }
            Readiness::Not => {}
        }
        if said != reported && !said.is_empty() {
            progress(format!("waiting: {said}"));
            reported.clone_from(&said);
        }
        if Instant::now() >= deadline {
            let seconds = patience.as_secs();
            if said.is_empty() {
                bail!(
                    "the manager has said nothing about WorkerCluster {namespace}/{name} for \
                     {seconds} s; does it run, and does it watch that namespace? osm doctor looks"
                );
            }
            bail!("WorkerCluster {namespace}/{name} is not ready after {seconds} s: {said}");
        }
        sleep(INTERVAL).await;
    }
}

/// Returns the fingerprint of the registered kubeconfig.
async fn registered(addition: &TenantAddition) -> anyhow::Result<String> {
    let Params {
        name, namespace, ..
    } = &addition.params;
    let secrets: Api<Secret> = Api::namespaced(addition.management.client.clone(), namespace);
    let secret = secrets.get(name).await;
    let secret = secret.with_context(|| format!("cannot read Secret {namespace}/{name}"))?;
    let uid = secret.uid().unwrap_or_default();
    let mut data = secret.data.unwrap_or_default();
    let kubeconfig = data.remove(KUBECONFIG_KEY);
    let kubeconfig = kubeconfig.with_context(|| format!("Secret {namespace}/{name} is empty"))?;
    Ok(fingerprint(&uid, &kubeconfig.0))
}

/// Returns true if the status was written with that kubeconfig, and not with the previous one.
fn has_taken(found: &WorkerCluster, registered: &str) -> bool {
    let status = found.status.as_ref();
    status.and_then(|it| it.observed_kubeconfig.as_deref()) == Some(registered)
}

fn state(found: &WorkerCluster, registered: &str) -> String {
    let is_ready = matches!(readiness(found), Readiness::Ready(_));
    if is_ready && !has_taken(found, registered) {
        return "Ready speaks of the kubeconfig before; the manager has not taken the new one"
            .to_owned();
    }
    said(found)
}
