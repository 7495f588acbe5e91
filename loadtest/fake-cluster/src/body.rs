//! Reads request bodies into objects and brings objects into shape: the right kind and place,
//! built-in types, defaults, the part that a subresource may change, and the stored form. Protobuf
//! is left out; `kubectl create` sends it for built-in kinds, `kubectl apply` does not.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use crate::{
    kinds::Kind,
    meta::{copy, remove, set, set_metadata, text},
    request::Call,
    status::{Cause, Refusal},
};

/// The body as JSON; YAML is read too.
pub(crate) fn value(call: &Call) -> Result<Value, Refusal> {
    let content_type = call
        .content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    match content_type {
        "application/yaml" | "application/apply-patch+yaml" => {
            let text = String::from_utf8_lossy(&call.body);
            serde_saphyr::from_str::<Value>(&text)
                .map_err(|error| Refusal::bad_request(format!("error decoding YAML: {error}")))
        }
        "" | "application/json" | "*/*" => serde_json::from_slice(&call.body)
            .map_err(|error| Refusal::bad_request(format!("error decoding JSON: {error}"))),
        _ => Err(Refusal::unsupported_media(
            "application/json, application/yaml",
        )),
    }
}

/// The body as an object of the kind that the path names.
pub(crate) fn object(call: &Call, kind: &Kind) -> Result<Value, Refusal> {
    let mut object = value(call)?;
    if !object.is_object() {
        return Err(Refusal::bad_request("the body is not an object"));
    }
    let (api_version, kind_name) = (text(&object, "/apiVersion"), text(&object, "/kind"));
    if !api_version.is_empty() && api_version != kind.api_version() {
        return Err(Refusal::bad_request(format!(
            "the API version in the data ({api_version}) does not match the expected API version \
             ({})",
            kind.api_version()
        )));
    }
    if kind_name.is_empty() && call.content_type.starts_with("application/apply-patch") {
        return Err(Refusal::bad_request("invalid object type: /, Kind="));
    }
    if kind.custom.is_some() && !kind_name.is_empty() && kind_name != kind.kind {
        let detail = format!("must be {}", kind.kind);
        let cause = Cause::invalid("kind", &json!(kind_name), &detail);
        return Err(Refusal::invalid(
            kind,
            text(&object, "/metadata/name"),
            &[cause],
        ));
    }
    if kind.custom.is_some() && kind_name.is_empty() {
        return Err(Refusal::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing",
            kind.kind
        )));
    }
    if !kind_name.is_empty() && kind_name != kind.kind {
        return Err(Refusal::bad_request(format!(
            "{kind_name} in version \"{}\" cannot be handled as a {}: converting ({kind_name}) to \
             ({}): unknown conversion",
            kind.version, kind.kind, kind.kind
        )));
    }
    let mut whole = Map::new();
    whole.insert("apiVersion".to_owned(), json!(kind.api_version()));
    whole.insert("kind".to_owned(), json!(kind.kind));
    whole.insert("metadata".to_owned(), json!({}));
    if let Some(fields) = object.as_object_mut() {
        whole.append(fields);
    }
    set(&mut object, &[], Value::Object(whole));
    if !object.get("metadata").is_some_and(Value::is_object) {
        set(&mut object, &["metadata"], json!({}));
    }
    if kind.custom.is_some() {
        return typed_metadata(kind, object);
    }
    let given = object.clone();
    let object = typed(kind, object)?;
    let mut dropped = Vec::new();
    missing(&given, &object, "", &mut dropped);
    refuse_unknown(call, kind, (&object, &dropped))?;
    Ok(object)
}

/// Refuses unknown fields where the client wants that, and always in server-side apply.
pub(crate) fn refuse_unknown(
    call: &Call,
    kind: &Kind,
    found: (&Value, &[String]),
) -> Result<(), Refusal> {
    let (object, dropped) = found;
    let Some(first) = dropped.first() else {
        return Ok(());
    };
    if call.content_type.starts_with("application/apply-patch") {
        return Err(Refusal::internal(format!(
            "failed to create typed patch object ({}/{}; {}/{}, Kind={}): .{first}: field not \
             declared in schema",
            text(object, "/metadata/namespace"),
            text(object, "/metadata/name"),
            kind.group,
            kind.version,
            kind.kind,
        )));
    }
    if call.option("fieldValidation") != "Strict" {
        return Ok(());
    }
    let fields: Vec<String> = dropped
        .iter()
        .map(|path| format!("unknown field \"{path}\""))
        .collect();
    Err(Refusal::bad_request(format!(
        "{kind} in version \"{}\" cannot be handled as a {kind}: strict decoding error: {}",
        kind.version,
        fields.join(", "),
        kind = kind.kind,
    )))
}

/// The paths of what is in the first value and not in the second; empty values do not count.
fn missing(given: &Value, read: &Value, path: &str, found: &mut Vec<String>) {
    match (given, read) {
        (Value::Object(given), Value::Object(read)) => {
            for (name, value) in given {
                let inner = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                match read.get(name) {
                    Some(read) => missing(value, read, &inner, found),
                    None if value.is_null() => {}
                    None => found.push(inner),
                }
            }
        }
        (Value::Array(given), Value::Array(read)) => {
            for (index, (given, read)) in given.iter().zip(read).enumerate() {
                missing(given, read, &format!("{path}[{index}]"), found);
            }
        }
        _ => {}
    }
}

/// Reads the metadata of a custom object through its type.
fn typed_metadata(kind: &Kind, mut object: Value) -> Result<Value, Refusal> {
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    let metadata: ObjectMeta = serde_json::from_value(metadata)
        .map_err(|error| Refusal::bad_request(format!("{}: metadata: {error}", kind.kind)))?;
    set(
        &mut object,
        &["metadata"],
        serde_json::to_value(metadata).unwrap_or_default(),
    );
    Ok(object)
}

/// Empty lists and maps of the metadata are the same as none.
pub(crate) fn drop_empty_metadata(object: &mut Value) {
    for field in ["finalizers", "ownerReferences", "labels", "annotations"] {
        let is_empty = match object.pointer(&format!("/metadata/{field}")) {
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Null) => true,
            _ => false,
        };
        if is_empty {
            remove(object, &["metadata", field]);
        }
    }
}

/// Whole numbers are written without a fraction.
fn drop_fractions(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let whole = number
                .as_f64()
                .filter(|float| number.is_f64() && float.fract() == 0.0);
            if let Some(whole) = whole.and_then(|whole| format!("{whole:.0}").parse::<i64>().ok()) {
                *value = json!(whole);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(drop_fractions),
        Value::Object(map) => map.values_mut().for_each(drop_fractions),
        _ => {}
    }
}

/// Reads a built-in object through its type.
pub(crate) fn typed(kind: &Kind, object: Value) -> Result<Value, Refusal> {
    let Some(normalize) = kind.normalize else {
        return Ok(object);
    };
    let string_data = object.get("stringData").cloned();
    normalize(object)
        .map(|mut object| {
            if kind.resource == "customresourcedefinitions" {
                drop_fractions(&mut object);
            }
            if let Some(data) = string_data {
                set(&mut object, &["stringData"], data);
            }
            object
        })
        .map_err(|error| {
            Refusal::bad_request(format!(
                "{kind} in version \"{}\" cannot be handled as a {kind}: {error}",
                kind.version,
                kind = kind.kind,
            ))
        })
}

/// Checks the namespace of the object against the path, and fills it in.
pub(crate) fn place(call: &Call, kind: &Kind, object: &mut Value) -> Result<(), Refusal> {
    if !kind.namespaced {
        remove(object, &["metadata", "namespace"]);
        return Ok(());
    }
    let given = text(object, "/metadata/namespace");
    if !given.is_empty() && given != call.target.namespace {
        return Err(Refusal::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    set_metadata(object, "namespace", call.target.namespace.as_str());
    Ok(())
}

/// Defaults of built-in kinds that the types do not know.
pub(crate) fn default(kind: &Kind, object: &mut Value, old: Option<&Value>) {
    drop_empty_metadata(object);
    match (kind.group.as_str(), kind.resource.as_str()) {
        ("", "secrets") => default_secret(object, old),
        ("", "namespaces") => {
            let name = text(object, "/metadata/name").to_owned();
            set(
                object,
                &["metadata", "labels", "kubernetes.io/metadata.name"],
                json!(name),
            );
            if old.is_none() {
                set(object, &["spec", "finalizers"], json!(["kubernetes"]));
                set(object, &["status", "phase"], json!("Active"));
            }
        }
        _ => {}
    }
}

fn default_secret(object: &mut Value, old: Option<&Value>) {
    if let Some(Value::Object(texts)) = remove(object, &["stringData"]) {
        for (key, value) in texts {
            let encoded = STANDARD.encode(value.as_str().unwrap_or_default());
            set(object, &["data", &key], json!(encoded));
        }
    }
    if text(object, "/type").is_empty() {
        let kind = old.map_or("Opaque", |old| text(old, "/type")).to_owned();
        set(object, &["type"], json!(kind));
    }
}

/// What a write to this subresource makes of the old and the new state.
pub(crate) fn merge_part(kind: &Kind, subresource: &str, old: &Value, new: Value) -> Value {
    match subresource {
        "status" if kind.custom.is_some() => {
            let mut merged = old.clone();
            copy(&new, &mut merged, &["status"]);
            copy(&new, &mut merged, &["metadata", "managedFields"]);
            merged
        }
        "status" => {
            let mut merged = new;
            copy(old, &mut merged, &["spec"]);
            merged
        }
        "finalize" => {
            let mut merged = old.clone();
            copy(&new, &mut merged, &["spec", "finalizers"]);
            merged
        }
        _ => {
            let mut merged = new;
            if kind.status {
                copy(old, &mut merged, &["status"]);
            }
            if kind.is("", "namespaces") {
                copy(old, &mut merged, &["spec", "finalizers"]);
            }
            merged
        }
    }
}

/// Leaves of an applied object what the subresource may set.
pub(crate) fn keep_part(kind: &Kind, subresource: &str, applied: &mut Value) {
    if subresource == "status" {
        if let Some(map) = applied.as_object_mut() {
            map.retain(|key, _| {
                matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status")
            });
        }
        let name = applied
            .pointer("/metadata/name")
            .cloned()
            .unwrap_or_default();
        if kind.custom.is_some() {
            set(applied, &["metadata"], json!({ "name": name }));
        }
    } else if kind.status {
        remove(applied, &["status"]);
    }
}

const EVENT_NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(value) = remove(object, &[from]) {
        set(object, &[to], value);
    }
}

/// Brings an object into the version in which it is kept.
pub(crate) fn to_storage(kind: &Kind, object: &mut Value) {
    if kind.is("events.k8s.io", "events") {
        for (core, events) in EVENT_NAMES {
            rename(object, events, core);
        }
        set(object, &["apiVersion"], json!("v1"));
    } else if let Some(custom) = &kind.custom {
        let api_version = crate::kinds::api_version(&kind.group, &custom.storage_version);
        set(object, &["apiVersion"], json!(api_version));
    }
}

/// Brings a kept object into the version of the kind.
pub(crate) fn from_storage(kind: &Kind, object: &Arc<Value>) -> Arc<Value> {
    let api_version = kind.api_version();
    if text(object, "/apiVersion") == api_version {
        return Arc::clone(object);
    }
    let mut shown = Value::clone(object);
    if kind.is("events.k8s.io", "events") {
        for (core, events) in EVENT_NAMES {
            rename(&mut shown, core, events);
        }
    }
    set(&mut shown, &["apiVersion"], json!(api_version));
    Arc::new(shown)
}
