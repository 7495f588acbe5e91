//! The settings of tenants that set nothing, from a file.

use std::path::Path;

use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use super::{InvalidSetting, yaml_file::YamlFile};
use crate::api::worker_cluster::{WorkerCluster, WorkerClusterSpec};
use crate::rules::{
    settings,
    shape::{mismatches, schema_of},
};
use crate::tenant::settings::TenantSettings;

/// Fields of a spec that speak of one tenant, or of what is done with it.
pub const NOT_DEFAULTS: [&str; 8] = [
    "kubeconfigSecretRef",
    "registryCredentialsSecretRef",
    "confirmedClusterUid",
    "paused",
    "onRemoval",
    "profileAnnotation",
    "defaultProfiles",
    "adoption",
];

/// A WorkerCluster's spec without its Secret: what operators know from there works here.
///
/// # Errors
///
/// The file cannot be read, or one of its settings is invalid.
pub fn tenant_defaults(path: Option<&Path>) -> Result<TenantSettings, InvalidSetting> {
    let defaults = TenantSettings::default();
    let Some(path) = path else {
        return Ok(defaults);
    };
    let file = YamlFile {
        flag: "tenant-defaults",
        path,
    };
    let refused = |why: String| {
        file.refused(format!(
            "fields of a WorkerCluster's spec are expected: {why}"
        ))
    };
    let Value::Object(mut spec) = file.read()? else {
        return Err(refused("it is not a map".to_owned()));
    };
    for field in NOT_DEFAULTS {
        if spec.contains_key(field) {
            return Err(refused(format!("{field} is a tenant's own")));
        }
    }
    spec.insert("kubeconfigSecretRef".to_owned(), json!({"name": "none"}));
    let spec = Value::from(spec);
    let mut schema = schema_of(WorkerCluster::crd());
    let schema = schema.pointer_mut("/properties/spec").map(Value::take);
    let schema = schema.unwrap_or_default();
    if let Some(first) = mismatches(&schema, &spec, "spec").first() {
        let (message, fix) = first.sentences();
        return Err(refused(format!("{message}; {fix}")));
    }
    let spec: WorkerClusterSpec =
        serde_json::from_value(spec).map_err(|error| refused(error.to_string()))?;
    if let Some(why) = settings::refused(&spec) {
        return Err(refused(why));
    }
    defaults
        .with(&spec)
        .map_err(|error| refused(error.to_string()))
}
