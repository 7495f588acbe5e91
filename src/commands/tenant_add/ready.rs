//! Waits until the manager serves a tenant with the kubeconfig that is registered now, and reports
//! what it is waiting for.

use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::Condition};
use kube::{Api, ResourceExt as _};
use tokio::time::{Instant, sleep};

use super::{Params, TenantAddition};
use crate::api::{
    condition::ConditionType, names::KUBECONFIG_KEY, reason::Reason, worker_cluster::WorkerCluster,
};
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
    let registered = registered(addition).await?;
    let mut reported = String::new();
    loop {
        let found = api.get_opt(name).await;
        let found = found.with_context(|| format!("cannot read WorkerCluster {name}"))?;
        let said = found
            .as_ref()
            .map_or_else(String::new, |found| state(found, &registered));
        let is_served = |found: &&WorkerCluster| is_ready(found) && has_taken(found, &registered);
        if let Some(found) = found.as_ref().filter(is_served) {
            let status = found.status.clone().unwrap_or_default();
            progress(format!(
                "ready: {namespace}/{name}, Kubernetes {}, {} machine deployments served",
                status.version.unwrap_or_default(),
                status.served.unwrap_or_else(|| "0/0".to_owned())
            ));
            return Ok(());
        }
        let is = |reason: Reason| {
            let found = found.as_ref().filter(|found| has_taken(found, &registered));
            found.and_then(ready).is_some_and(|it| it.reason == reason)
        };
        if is(Reason::SomeNotServed) {
            progress(format!(
                "registered: {namespace}/{name}; not all of it is served: {said}"
            ));
            return Ok(());
        }
        if is(Reason::MachineDeploymentNotServed) {
            progress(format!(
                "registered: {namespace}/{name}; the worker cluster has no MachineDeployments yet: \
                 install machine-controller, and the manager goes on by itself"
            ));
            return Ok(());
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

fn ready(found: &WorkerCluster) -> Option<&Condition> {
    let status = found.status.as_ref()?;
    let is_about_it = status.observed_generation == found.metadata.generation;
    found
        .condition(ConditionType::Ready)
        .filter(|_| is_about_it)
}

fn is_ready(found: &WorkerCluster) -> bool {
    ready(found).is_some_and(|it| it.status == "True")
}

fn state(found: &WorkerCluster, registered: &str) -> String {
    if is_ready(found) && !has_taken(found, registered) {
        return "Ready speaks of the kubeconfig before; the manager has not taken the new one"
            .to_owned();
    }
    ready(found).map_or_else(String::new, |it| match it.message.as_str() {
        "" => it.reason.clone(),
        message => format!("{}: {message}", it.reason),
    })
}
