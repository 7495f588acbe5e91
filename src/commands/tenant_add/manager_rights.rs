//! What the manager may do in the management cluster for credentials that end.

use anyhow::Context as _;
use serde_json::{Value, json};

use super::Params;
use crate::tenant::access::renewal::ServiceAccountName;

const FEDERATION: &str = include_str!("../../../manifests/rbac/management-federation.yaml");
const TOKEN_RENEWAL: &str = include_str!("../../../manifests/rbac/tenant-token-renewal.yaml");

/// Returns the right to renew the token in the registration. It goes with that Secret, once its uid
/// is known.
pub(super) fn token_renewal(params: &Params, uid: Option<&str>) -> anyhow::Result<Vec<Value>> {
    let mut documents: Vec<Value> =
        serde_saphyr::from_multiple(TOKEN_RENEWAL).context("cannot parse an embedded manifest")?;
    for document in &mut documents {
        if let Some(metadata) = document.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("namespace".to_owned(), json!(params.namespace));
            if let Some(uid) = uid {
                let owner = json!({
                    "apiVersion": "v1", "kind": "Secret", "name": params.name, "uid": uid,
                });
                metadata.insert("ownerReferences".to_owned(), json!([owner]));
            }
        }
        if let Some(names) = document.pointer_mut("/rules/0/resourceNames") {
            *names = json!([params.name]);
        }
        for_manager(document, &params.manager);
    }
    Ok(documents)
}

/// Returns the manager's right to request tokens for itself.
pub(super) fn federation(manager: &ServiceAccountName) -> anyhow::Result<Vec<Value>> {
    let mut documents: Vec<Value> =
        serde_saphyr::from_multiple(FEDERATION).context("cannot parse an embedded manifest")?;
    for document in &mut documents {
        set(document, "/metadata/namespace", &json!(manager.namespace));
        set(document, "/rules/0/resourceNames", &json!([manager.name]));
        for_manager(document, manager);
    }
    Ok(documents)
}

/// Makes the manager the subject of a binding.
fn for_manager(document: &mut Value, manager: &ServiceAccountName) {
    set(document, "/subjects/0/name", &json!(manager.name));
    set(document, "/subjects/0/namespace", &json!(manager.namespace));
}

fn set(document: &mut Value, pointer: &str, value: &Value) {
    if let Some(found) = document.pointer_mut(pointer) {
        found.clone_from(value);
    }
}
