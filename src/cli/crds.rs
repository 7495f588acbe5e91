//! `osm crds`: the custom resource definitions, generated from the types that this program reads.

use std::process::ExitCode;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

use super::output;
use crate::api::{
    config::OperatingSystemConfig, profile::OperatingSystemProfile, worker_cluster::WorkerCluster,
};

pub(super) fn run() -> anyhow::Result<ExitCode> {
    output::document(crds_yaml()?)?;
    Ok(output::SUCCESS)
}

/// The definitions, in the order of their names.
pub fn crds() -> [CustomResourceDefinition; 3] {
    [
        OperatingSystemConfig::crd(),
        OperatingSystemProfile::crd(),
        WorkerCluster::crd(),
    ]
}

/// All definitions as one text of several YAML documents; the same bytes each time.
pub fn crds_yaml() -> Result<String, serde_saphyr::ser::Error> {
    let mut text = String::new();
    for crd in &crds() {
        text.push_str("---\n");
        text.push_str(&crd_yaml(crd)?);
    }
    Ok(text)
}

/// One definition as YAML.
pub fn crd_yaml(crd: &CustomResourceDefinition) -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string(crd)
}
