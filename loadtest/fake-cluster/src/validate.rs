//! Rules for objects of built-in kinds and for the metadata of all: names, labels, Secrets, leases.
//! Only rules that clients of this project can meet are here; the rest of the real server's long
//! list is left out.

use serde_json::{Value, json};

use crate::{
    kinds::Kind,
    meta::{account_of, name, text, texts},
    status::Cause,
};

const DATA_BYTES_MAX: usize = 1024 * 1024;

/// Field errors of an object that is to be created.
pub(crate) fn create(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = metadata(kind, object);
    causes.extend(content(kind, object));
    if kind.is("events.k8s.io", "events") && text(object, "/eventTime").is_empty() {
        causes.push(Cause::required("eventTime", ""));
    }
    causes
}

/// Field errors of an object that is to replace another.
pub(crate) fn update(kind: &Kind, old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = labels(new);
    if is_deleting(old) {
        let before = texts(old, "/metadata/finalizers");
        let mut added = texts(new, "/metadata/finalizers");
        added.retain(|finalizer| !before.contains(finalizer));
        if !added.is_empty() {
            let list: Vec<String> = added.iter().map(|f| format!("\"{f}\"")).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new \
                 finalizers []string{{{}}}",
                list.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &detail));
        }
    }
    if kind.is("", "secrets") || kind.is("", "configmaps") {
        causes.extend(immutable_data(kind, old, new));
    }
    if (kind.is("rbac.authorization.k8s.io", "rolebindings")
        || kind.is("rbac.authorization.k8s.io", "clusterrolebindings"))
        && old.get("roleRef") != new.get("roleRef")
    {
        let value = new.get("roleRef").cloned().unwrap_or_default();
        causes.push(Cause::invalid("roleRef", &value, "cannot change roleRef"));
    }
    causes.extend(content(kind, new));
    causes
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

fn metadata(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = labels(object);
    let value = name(object);
    let (good, detail) = match (kind.group.as_str(), kind.resource.as_str()) {
        ("", "namespaces" | "services") => (is_label(value), LABEL_RULE),
        ("rbac.authorization.k8s.io", _) => (
            !value.contains(['/', '%']) && value != "." && value != "..",
            "may not contain '/'",
        ),
        _ => (is_subdomain(value), SUBDOMAIN_RULE),
    };
    if !good {
        causes.push(Cause::invalid("metadata.name", &json!(value), detail));
    }
    for (index, finalizer) in texts(object, "/metadata/finalizers").iter().enumerate() {
        if !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer.as_str()) {
            causes.push(Cause::invalid(
                &format!("metadata.finalizers[{index}]"),
                &json!(finalizer),
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    causes
}

const STANDARD_FINALIZERS: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];

const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric \
    characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
    '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case \
    alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character \
    (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const LABEL_VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric \
    characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
    'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn is_label(text: &str) -> bool {
    is_part(text) && text.len() <= 63
}

fn is_part(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

fn labels(object: &Value) -> Vec<Cause> {
    let labels = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object);
    let mut causes = Vec::new();
    for (_, value) in labels.into_iter().flatten() {
        let text = value.as_str().unwrap_or_default();
        if text.len() > 63 {
            causes.push(Cause::too_long("metadata.labels", 63));
        } else if !is_label_value(text) {
            causes.push(Cause::invalid("metadata.labels", value, LABEL_VALUE_RULE));
        }
    }
    causes
}

fn is_label_value(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && edge(text.chars().next())
        && edge(text.chars().next_back())
}

fn content(kind: &Kind, object: &Value) -> Vec<Cause> {
    match (kind.group.as_str(), kind.resource.as_str()) {
        ("", "secrets" | "configmaps") => data(kind, object),
        ("coordination.k8s.io", "leases") => lease(object),
        _ => Vec::new(),
    }
}

fn data(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let entries = object.get("data").and_then(Value::as_object);
    let mut total = 0;
    for (key, value) in entries.into_iter().flatten() {
        let bytes = value.as_str().map_or(0, str::len);
        total += if kind.resource == "secrets" {
            bytes / 4 * 3
        } else {
            bytes
        };
        let good = key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        if !good || key.is_empty() {
            causes.push(Cause::invalid(
                &format!("data[{key}]"),
                &json!(key),
                "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
                 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is \
                 '[-._a-zA-Z0-9]+')",
            ));
        }
    }
    if total > DATA_BYTES_MAX {
        let is_secret = kind.resource == "secrets";
        let field = if is_secret { "data" } else { "" };
        causes.push(Cause::too_long(field, DATA_BYTES_MAX));
    }
    let is_token = text(object, "/type") == "kubernetes.io/service-account-token";
    if is_token && account_of(object).is_empty() {
        causes.push(Cause::required(
            "metadata.annotations[kubernetes.io/service-account.name]",
            "",
        ));
    }
    causes
}

fn immutable_data(kind: &Kind, old: &Value, new: &Value) -> Vec<Cause> {
    const WHY: &str = "field is immutable when `immutable` is set";
    let mut causes = Vec::new();
    if kind.resource == "secrets" && old.get("type") != new.get("type") {
        let value = new.get("type").cloned().unwrap_or_default();
        causes.push(Cause::invalid("type", &value, "field is immutable"));
    }
    if old.get("immutable") != Some(&json!(true)) {
        return causes;
    }
    if new.get("immutable") != Some(&json!(true)) {
        causes.push(Cause::forbidden("immutable", WHY));
    }
    let entries = |object: &Value, name: &str| {
        object
            .get(name)
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    };
    for name in ["data", "binaryData"] {
        if entries(old, name) != entries(new, name) {
            causes.push(Cause::forbidden(name, WHY));
        }
    }
    causes
}

fn lease(object: &Value) -> Vec<Cause> {
    let number = |field: &str| {
        object
            .pointer(&format!("/spec/{field}"))
            .and_then(Value::as_i64)
    };
    let mut causes = Vec::new();
    if let Some(seconds) = number("leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        let (field, detail) = ("spec.leaseDurationSeconds", "must be greater than 0");
        causes.push(Cause::invalid(field, &json!(seconds), detail));
    }
    if let Some(count) = number("leaseTransitions").filter(|count| *count < 0) {
        let field = "spec.leaseTransitions";
        let detail = "must be greater than or equal to 0";
        causes.push(Cause::invalid(field, &json!(count), detail));
    }
    causes
}
