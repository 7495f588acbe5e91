//! Definitions of custom resources, and the kinds that they let the cluster serve. None is refused.
//! Conversion between versions is "None" only: the `apiVersion` changes and nothing else.
//! Webhooks and the scale subresource are left out.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    kinds::{CustomVersion, Kind, storage_name},
    meta::{items, set, text, texts},
    rules::Rules,
};

/// The kinds that a definition serves, one per served version.
pub(crate) fn served_kinds(crd: &Value) -> Vec<Arc<Kind>> {
    let storage_version = items(crd, "/spec/versions")
        .iter()
        .find(|version| version.get("storage") == Some(&json!(true)))
        .map(|version| text(version, "/name").to_owned())
        .unwrap_or_default();
    items(crd, "/spec/versions")
        .iter()
        .filter(|version| version.get("served") == Some(&json!(true)))
        .map(|version| Arc::new(served_kind(crd, version, &storage_version)))
        .collect()
}

fn served_kind(crd: &Value, version: &Value, storage_version: &str) -> Kind {
    let owned = |pointer: &str| text(crd, pointer).to_owned();
    let (group, resource) = (owned("/spec/group"), owned("/spec/names/plural"));
    let kind = owned("/spec/names/kind");
    let or = |value: String, other: String| if value.is_empty() { other } else { value };
    let schema = version.pointer("/schema/openAPIV3Schema");
    let schema = schema.cloned().unwrap_or_default();
    Kind {
        storage: storage_name(&group, &resource),
        version: text(version, "/name").to_owned(),
        singular: or(owned("/spec/names/singular"), kind.to_lowercase()),
        list_kind: or(owned("/spec/names/listKind"), format!("{kind}List")),
        short_names: texts(crd, "/spec/names/shortNames"),
        categories: texts(crd, "/spec/names/categories"),
        namespaced: text(crd, "/spec/scope") == "Namespaced",
        status: version.pointer("/subresources/status").is_some(),
        create_only: false,
        normalize: None,
        custom: Some(CustomVersion {
            rules: Rules::compile(&schema),
            schema,
            columns: items(version, "/additionalPrinterColumns").to_vec(),
            storage_version: storage_version.to_owned(),
        }),
        group,
        resource,
        kind,
    }
}

/// Fills in what the real server's controllers and defaults add to a definition.
pub(crate) fn complete(crd: &mut Value, now: &str) {
    let kind = text(crd, "/spec/names/kind").to_owned();
    if text(crd, "/spec/names/singular").is_empty() {
        set(
            crd,
            &["spec", "names", "singular"],
            json!(kind.to_lowercase()),
        );
    }
    if text(crd, "/spec/names/listKind").is_empty() {
        set(
            crd,
            &["spec", "names", "listKind"],
            json!(format!("{kind}List")),
        );
    }
    if crd.pointer("/spec/conversion").is_none() {
        set(crd, &["spec", "conversion"], json!({ "strategy": "None" }));
    }
    let stored: Vec<Value> = items(crd, "/spec/versions")
        .iter()
        .filter(|version| version.get("storage") == Some(&json!(true)))
        .filter_map(|version| version.get("name").cloned())
        .collect();
    let since = crd
        .pointer("/status/conditions/0/lastTransitionTime")
        .cloned()
        .unwrap_or_else(|| json!(now));
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": since,
        })
    };
    let status = json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": crd.pointer("/spec/names").cloned().unwrap_or_default(),
        "storedVersions": stored,
    });
    set(crd, &["status"], status);
}
