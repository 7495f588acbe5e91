//! The settings of tenants that set nothing, from a file.

use std::path::Path;

use super::{InvalidSetting, yaml_file::YamlFile};
use crate::api::worker_cluster::WorkerClusterSpec;
use crate::tenant::settings::TenantSettings;

/// Fields of a spec that speak of one tenant, or of what is done with it.
const NOT_DEFAULTS: [&str; 8] = [
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
    let serde_json::Value::Object(mut spec) = file.read()? else {
        return Err(refused("it is not a map".to_owned()));
    };
    for field in NOT_DEFAULTS {
        if spec.contains_key(field) {
            return Err(refused(format!("{field} is a tenant's own")));
        }
    }
    spec.insert(
        "kubeconfigSecretRef".to_owned(),
        serde_json::json!({"name": ""}),
    );
    let given: Vec<String> = spec.keys().cloned().collect();
    let spec: WorkerClusterSpec =
        serde_json::from_value(spec.into()).map_err(|error| refused(error.to_string()))?;
    let known = serde_json::to_value(&spec).expect("a spec is plain values");
    if let Some(unknown) = given.iter().find(|field| known.get(field).is_none()) {
        return Err(refused(format!("{unknown} is unknown, or empty")));
    }
    defaults
        .with(&spec)
        .map_err(|error| refused(error.to_string()))
}
