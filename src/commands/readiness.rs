//! Whether the manager serves a worker cluster, as its WorkerCluster says.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::{condition::ConditionType, reason::Reason, worker_cluster::WorkerCluster};

/// Whether the manager serves a worker cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// It does: the version of Kubernetes, and how many machine deployments.
    Ready(String),
    /// It does, and something is missing in the cluster.
    InPart(Reason),
    /// It does not, or nothing says so yet.
    Not,
}

/// Returns whether the manager serves the worker cluster with its settings of this moment.
pub(super) fn readiness(found: &WorkerCluster) -> Readiness {
    let Some(ready) = ready(found) else {
        return Readiness::Not;
    };
    if ready.status == "True" {
        let status = found.status.clone().unwrap_or_default();
        return Readiness::Ready(format!(
            "Kubernetes {}, {} machine deployments served",
            status.version.unwrap_or_default(),
            status.served.unwrap_or_else(|| "0/0".to_owned())
        ));
    }
    let of_parts = [Reason::SomeNotServed, Reason::MachineDeploymentNotServed];
    let of_parts = of_parts.into_iter().find(|it| ready.reason == *it);
    of_parts.map_or(Readiness::Not, Readiness::InPart)
}

/// Returns what the manager says of the worker cluster. Empty if it says nothing, or speaks of
/// earlier settings.
pub(super) fn said(found: &WorkerCluster) -> String {
    ready(found).map_or_else(String::new, |it| match it.message.as_str() {
        "" => it.reason.clone(),
        message => format!("{}: {message}", it.reason),
    })
}

fn ready(found: &WorkerCluster) -> Option<&Condition> {
    let status = found.status.as_ref()?;
    let is_about_it = status.observed_generation == found.metadata.generation;
    found
        .condition(ConditionType::Ready)
        .filter(|_| is_about_it)
}
