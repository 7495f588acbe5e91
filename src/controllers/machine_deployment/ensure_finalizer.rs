//! Makes a machine deployment ours: our finalizer, and the profile annotation where it has none.
//!
//! One JSON patch that tests what it read: a foreign finalizer is never lost, and what was patched
//! is what is served.

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

/// Writes what a machine deployment lacks. Returns it as it is afterwards.
pub async fn supply(
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

/// A test of what was there fails where it has changed since. The watch may have told by now.
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
        // A list that appeared meanwhile would be lost by adding one: the version is tested.
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
