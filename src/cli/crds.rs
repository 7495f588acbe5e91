//! `osm crds`: the CRDs, generated from the types that this program reads.

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

/// Returns the CRDs in the order of their names.
pub fn crds() -> [CustomResourceDefinition; 3] {
    [
        OperatingSystemConfig::crd(),
        OperatingSystemProfile::crd(),
        WorkerCluster::crd(),
    ]
}

/// Returns all CRDs as YAML documents in one text. The bytes are always the same.
///
/// # Errors
///
/// A CRD cannot be written as YAML, which a test rules out.
pub fn crds_yaml() -> Result<String, serde_saphyr::ser::Error> {
    let mut text = String::new();
    for crd in &crds() {
        text.push_str("---\n");
        text.push_str(&crd_yaml(crd)?);
    }
    Ok(text)
}

/// Returns one CRD as YAML.
///
/// # Errors
///
/// The CRD cannot be written as YAML.
pub fn crd_yaml(crd: &CustomResourceDefinition) -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string(crd)
}
