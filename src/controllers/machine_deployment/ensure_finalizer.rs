//! Adds our finalizer to a machine deployment, and the profile annotation if it has none.
//!
//! It is one JSON patch that tests what was read. Therefore no other finalizer is lost, and the
//! patched object is the one that is served.

use std::sync::Arc;

use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::reflector::ObjectRef,
};
use serde_json::{Value, json};

use super::error::Error;
use crate::api::{
    machine_deployment::MachineDeployment,
    names::{FINALIZER, PROFILE},
};
use crate::controllers::context::Context;
use crate::plan::found::Lacking;

/// Writes what a machine deployment lacks. Returns the resulting object.
///
/// # Errors
///
/// The write fails, or the machine deployment has changed meanwhile.
pub async fn ensure_finalizer(
    context: &Context,
    machine_deployment: &Arc<MachineDeployment>,
    lacking: Lacking,
) -> Result<Arc<MachineDeployment>, Error> {
    if lacking.is_nothing() {
        return Ok(Arc::clone(machine_deployment));
    }
    let mut operations = Vec::new();
    if let Some(profile) = lacking.profile {
        operations.extend(profile_operations(machine_deployment, profile));
    }
    if lacking.finalizer {
        operations.extend(finalizer_operations(machine_deployment));
    }
    let patch: json_patch::Patch =
        serde_json::from_value(Value::Array(operations)).expect("operations are a patch");
    let namespace = machine_deployment.namespace().unwrap_or_default();
    let api: Api<MachineDeployment> =
        Api::namespaced(context.engagement.worker.client(), &namespace);
    let patched = api
        .patch(
            &machine_deployment.name_any(),
            &PatchParams::default(),
            &Patch::<MachineDeployment>::Json(patch),
        )
        .await
        .map_err(|error| refused(context, machine_deployment, error))?;
    Ok(Arc::new(patched))
}

/// Returns the error of a rejected patch. It is a conflict if a test failed and the watch shows
/// another version by now.
fn refused(context: &Context, tried: &MachineDeployment, error: kube::Error) -> Error {
    let what = "add the finalizer to the machine deployment";
    let reference = ObjectRef::from_obj(tried);
    let now = context.machine_deployments.get(&reference);
    let has_changed = now.is_some_and(|now| now.resource_version() != tried.resource_version());
    match &error {
        kube::Error::Api(status) if status.code == 422 && has_changed => Error::Conflict {
            what: "the machine deployment".to_owned(),
        },
        _ => Error::call(what)(error),
    }
}

fn profile_operations(machine_deployment: &MachineDeployment, profile: &str) -> Vec<Value> {
    let mut operations = Vec::new();
    if machine_deployment.metadata.annotations.is_none() {
        operations.push(json!({"op": "add", "path": "/metadata/annotations", "value": {}}));
    }
    let path = format!("/metadata/annotations/{}", PROFILE.replace('/', "~1"));
    operations.push(json!({"op": "add", "path": path, "value": profile}));
    operations
}

fn finalizer_operations(machine_deployment: &MachineDeployment) -> Vec<Value> {
    match machine_deployment.finalizers() {
        // Adding a list would overwrite one that was added meanwhile. Therefore, test the version.
        [] => vec![
            json!({
                "op": "test",
                "path": "/metadata/resourceVersion",
                "value": machine_deployment.resource_version(),
            }),
            json!({"op": "add", "path": "/metadata/finalizers", "value": [FINALIZER]}),
        ],
        before => vec![
            json!({"op": "test", "path": "/metadata/finalizers", "value": before}),
            json!({"op": "add", "path": "/metadata/finalizers/-", "value": FINALIZER}),
        ],
    }
}
