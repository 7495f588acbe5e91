//! Definitions of custom resources: what makes one valid, and the kinds that it lets the cluster
//! serve. Conversion between versions is "None" only: the `apiVersion` changes and nothing else.
//! Webhooks and the scale subresource are left out.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    kinds::{CustomVersion, Kind, storage_name},
    meta::{items, set, text, texts},
    rules,
    status::Cause,
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
            schema: version
                .pointer("/schema/openAPIV3Schema")
                .cloned()
                .unwrap_or_default(),
            columns: items(version, "/additionalPrinterColumns").to_vec(),
            selectable: items(version, "/selectableFields")
                .iter()
                .map(|field| text(field, "/jsonPath").to_owned())
                .collect(),
            storage_version: storage_version.to_owned(),
        }),
        group,
        resource,
        kind,
    }
}

/// What is wrong with a definition; only what breaks serving is looked at.
pub(crate) fn check(crd: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let expected = format!(
        "{}.{}",
        text(crd, "/spec/names/plural"),
        text(crd, "/spec/group")
    );
    if text(crd, "/metadata/name") != expected {
        causes.push(Cause::invalid(
            "metadata.name",
            &json!(text(crd, "/metadata/name")),
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    if !matches!(text(crd, "/spec/scope"), "Namespaced" | "Cluster") {
        causes.push(Cause::not_supported(
            "spec.scope",
            &json!(text(crd, "/spec/scope")),
            &["\"Cluster\"".to_owned(), "\"Namespaced\"".to_owned()],
        ));
    }
    let versions = items(crd, "/spec/versions");
    let stored = versions
        .iter()
        .filter(|v| v.get("storage") == Some(&json!(true)))
        .count();
    if stored != 1 {
        causes.push(Cause::invalid(
            "spec.versions",
            &json!(versions.len()),
            "must have exactly one version marked as storage version",
        ));
    }
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
        let Some(schema) = version.pointer("/schema/openAPIV3Schema") else {
            causes.push(Cause::required(&path, "schemas are required"));
            continue;
        };
        // The real server keeps a schema that all versions share in another place.
        let path = if versions.len() == 1 {
            "spec.validation.openAPIV3Schema"
        } else {
            &path
        };
        causes.extend(rules::uncompilable(schema, path));
    }
    causes.extend(check_protected_group(crd));
    causes
}

fn check_protected_group(crd: &Value) -> Option<Cause> {
    let group = text(crd, "/spec/group");
    let protected = group.ends_with(".k8s.io") || group.ends_with(".kubernetes.io");
    let approved = crd
        .pointer("/metadata/annotations/api-approved.kubernetes.io")
        .and_then(Value::as_str)
        .is_some_and(|value| !value.is_empty());
    (protected && !approved).then(|| {
        Cause::required(
            "metadata.annotations[api-approved.kubernetes.io]",
            "protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
             https://github.com/kubernetes/enhancements/pull/1111",
        )
    })
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
