//! Waits until the manager serves a tenant, and tells what it waits for meanwhile.

use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use tokio::time::{Instant, sleep};

use super::Enrolment;
use crate::api::worker_cluster::WorkerCluster;

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(500);

/// Waits until the WorkerCluster is ready.
pub(super) async fn wait(
    enrolment: &Enrolment,
    (name, patience): (&str, Duration),
    tell: &mut (dyn FnMut(String) + Send),
) -> anyhow::Result<()> {
    let namespace = &enrolment.params.namespace;
    let api: Api<WorkerCluster> = Api::namespaced(enrolment.management.client.clone(), namespace);
    let deadline = Instant::now() + patience;
    let mut told = String::new();
    loop {
        let found = api.get_opt(name).await;
        let found = found.with_context(|| format!("cannot read WorkerCluster {name}"))?;
        let said = found.as_ref().map_or_else(String::new, state);
        if let Some(found) = found.as_ref().filter(|found| is_ready(found)) {
            let status = found.status.clone().unwrap_or_default();
            tell(format!(
                "ready: {namespace}/{name}, Kubernetes {}, {} machine deployments served",
                status.version.unwrap_or_default(),
                status.served.unwrap_or_else(|| "0/0".to_owned())
            ));
            return Ok(());
        }
        if said != told && !said.is_empty() {
            tell(format!("waiting: {said}"));
            told.clone_from(&said);
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

fn ready(found: &WorkerCluster) -> Option<&Condition> {
    let status = found.status.as_ref()?;
    let is_about_it = status.observed_generation == found.metadata.generation;
    let mut conditions = status.conditions.iter();
    conditions.find(|it| it.type_ == "Ready" && is_about_it)
}

fn is_ready(found: &WorkerCluster) -> bool {
    ready(found).is_some_and(|it| it.status == "True")
}

fn state(found: &WorkerCluster) -> String {
    ready(found).map_or_else(String::new, |it| match it.message.as_str() {
        "" => it.reason.clone(),
        message => format!("{}: {message}", it.reason),
    })
}
