//! Reviews of machine deployments: one that names no profile gets the default one's name, and
//! nothing else of it changes.

use serde::Deserialize as _;
use serde_json::{Value as Json, json};

use super::{Answer, Asked, Operation};
use crate::{
    annotations::{self, Remark},
    machine_deployment::default_profile,
};
use osm_api::{machine_deployment::MachineDeployment, names::PROFILE};
use osm_render::{RenderError, input::ProviderConfig};

const BAD_REQUEST: u16 = 400;
const UNPROCESSABLE: u16 = 422;
const PROVIDER_SPEC: &str = "/spec/template/spec/providerSpec/value";

/// Evaluates a write of a machine deployment.
pub fn review(asked: &Asked<'_>) -> Answer {
    match asked.operation {
        Operation::Create | Operation::Update => mutate(asked),
        Operation::Delete => Answer::allowed(Some(format!(
            "machinedeployment mutation request {} allowed; mutation is not required for delete \
             request",
            asked.uid
        ))),
        Operation::Connect => {
            let operation = asked.operation.as_str();
            let message = format!("{operation} not supported on machinedeployment resources");
            Answer::refused(BAD_REQUEST, message)
        }
    }
}

fn mutate(asked: &Asked<'_>) -> Answer {
    let named = asked.object.pointer("/metadata/annotations");
    let named = named.and_then(|annotations| annotations.get(PROFILE));
    let is_named = named
        .and_then(Json::as_str)
        .is_some_and(|it| !it.is_empty());
    let value = |object| Json::pointer(object, PROVIDER_SPEC).filter(|value| !value.is_null());
    let is_as_before =
        asked.operation == Operation::Update && value(asked.object) == value(asked.old_object);
    if asked.is_deleting() || (is_named && is_as_before) {
        return Answer::allowed(None);
    }
    let refused = |why: String| {
        let message = format!("error occurred while mutating machinedeployment: {why}");
        Answer::refused(UNPROCESSABLE, message)
    };
    let provider = match read(value(asked.object)) {
        Ok(provider) => provider,
        Err(reason) => return refused(unread(&reason)),
    };
    if is_named {
        return Answer::allowed(None);
    }
    let profile = match provider.provisioning_utility() {
        Ok(utility) => default_profile(
            &provider.operating_system,
            &provider.cloud_provider,
            utility.as_str(),
        ),
        Err(error) => return refused(unread(&error.to_string())),
    };
    let patch = match profile {
        Ok(profile) => annotate(asked.object, profile),
        Err(none) => return refused(none.to_string()),
    };
    let Ok(patch) = patch else {
        let message = "error occurred while decoding reqquest: metadata.annotations is no map";
        return Answer::refused(BAD_REQUEST, message.to_owned());
    };
    Answer::Allowed {
        message: None,
        patch,
    }
}

/// Returns the remarks on the annotations of a machine deployment that is created, or whose spec or
/// annotations change.
pub fn remarks(asked: &Asked<'_>) -> Vec<String> {
    let is_write = matches!(asked.operation, Operation::Create | Operation::Update);
    let is_as_before = ["/metadata/annotations", "/spec"]
        .iter()
        .all(|field| asked.object.pointer(field) == asked.old_object.pointer(field));
    if !is_write || is_as_before || asked.is_deleting() {
        return Vec::new();
    }
    let decoded = MachineDeployment::deserialize(asked.object);
    let remarks = decoded.map_or_else(|_| Vec::new(), |found| annotations::remarks(&found));
    remarks.iter().map(Remark::sentence).collect()
}

/// Reads a provider spec as machine-controller does, which refuses keys that it does not know.
fn read(value: Option<&Json>) -> Result<ProviderConfig, String> {
    let value = value.ok_or("machine.spec.providerSpec.value is nil")?;
    ProviderConfig::decode(value).map_err(|error| match error {
        RenderError::ProviderConfig { reason } => reason,
        other => other.to_string(),
    })
}

fn unread(reason: &str) -> String {
    format!("failed to read MachineDeployment.Spec.Template.Spec.ProviderSpec: {reason}")
}

/// The annotations cannot take one more.
struct NoMap;

fn annotate(object: &Json, profile: &str) -> Result<Vec<Json>, NoMap> {
    let mut patch = Vec::new();
    match object.pointer("/metadata/annotations") {
        None | Some(Json::Null) => {
            patch.push(json!({"op": "add", "path": "/metadata/annotations", "value": {}}));
        }
        Some(Json::Object(_)) => {}
        Some(_) => return Err(NoMap),
    }
    let place = format!("/metadata/annotations/{}", PROFILE.replace('/', "~1"));
    patch.push(json!({"op": "add", "path": place, "value": profile}));
    Ok(patch)
}
