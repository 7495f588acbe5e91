//! Structural schemas of custom kinds: pruning of unknown fields, defaults and validation. Rules in
//! CEL (`x-kubernetes-validations`) are not evaluated here but in `rules.rs`.

use std::{collections::HashMap, sync::Mutex};

use regex::Regex;
use serde_json::{Map, Value, json};

use crate::status::Cause;

pub(crate) fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name) == Some(&json!(true))
}

pub(crate) fn field(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Drops fields that the schema does not know, and tells their paths.
pub(crate) fn prune(value: &mut Value, schema: &Value) -> Vec<String> {
    let mut dropped = Vec::new();
    if let (Some(object), true) = (value.as_object_mut(), schema.is_object()) {
        let place = Place {
            path: "",
            root: true,
            keep: false,
        };
        prune_object(object, schema, &place, &mut dropped);
    }
    dropped
}

struct Place<'a> {
    path: &'a str,
    /// An object of its own with apiVersion, kind and metadata.
    root: bool,
    keep: bool,
}

fn prune_value(value: &mut Value, schema: &Value, place: &Place<'_>, dropped: &mut Vec<String>) {
    match value {
        Value::Object(object) => prune_object(object, schema, place, dropped),
        Value::Array(list) => {
            let Some(items) = schema.get("items") else {
                return;
            };
            for (index, item) in list.iter_mut().enumerate() {
                let path = format!("{}[{index}]", place.path);
                let inner = Place {
                    path: &path,
                    root: false,
                    keep: place.keep,
                };
                prune_value(item, items, &inner, dropped);
            }
        }
        _ => {}
    }
}

fn prune_object(
    object: &mut Map<String, Value>,
    schema: &Value,
    place: &Place<'_>,
    dropped: &mut Vec<String>,
) {
    let keep = flag(schema, "x-kubernetes-preserve-unknown-fields")
        || (place.keep && schema.get("properties").is_none());
    let root = place.root || flag(schema, "x-kubernetes-embedded-resource");
    let properties = schema.get("properties").and_then(Value::as_object);
    let additional = schema.get("additionalProperties");
    let names: Vec<String> = object.keys().cloned().collect();
    for name in names {
        if root && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        let path = field(place.path, &name);
        let known = properties.and_then(|p| p.get(&name)).or(additional);
        match (known, object.get_mut(&name)) {
            (Some(inner), Some(value)) if inner.is_object() => {
                let place = Place {
                    path: &path,
                    root: false,
                    keep,
                };
                prune_value(value, inner, &place, dropped);
            }
            (Some(inner), _) if *inner == json!(true) => {}
            _ if keep => {}
            _ => {
                object.shift_remove(&name);
                dropped.push(path);
            }
        }
    }
}

/// Fills in defaults where a field is absent (or null and not nullable).
pub(crate) fn default(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(object) => {
            for (name, inner) in schema
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
            {
                if object.get(name) == Some(&Value::Null) && !flag(inner, "nullable") {
                    object.shift_remove(name);
                }
                if let (None, Some(default)) = (object.get(name), inner.get("default")) {
                    object.insert(name.clone(), default.clone());
                }
                if let Some(present) = object.get_mut(name) {
                    default(present, inner);
                }
            }
            if let Some(inner) = schema
                .get("additionalProperties")
                .filter(|inner| inner.is_object())
            {
                let known = schema.get("properties").and_then(Value::as_object);
                if !flag(inner, "nullable") {
                    object.retain(|_, value| !value.is_null());
                }
                for (name, present) in object.iter_mut() {
                    if known.is_none_or(|known| !known.contains_key(name)) {
                        default(present, inner);
                    }
                }
            }
        }
        Value::Array(list) => {
            if let Some(inner) = schema.get("items") {
                for item in list {
                    default(item, inner);
                }
            }
        }
        _ => {}
    }
}

/// Field errors of a value under a schema.
pub(crate) fn validate(value: &Value, schema: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if schema.is_object() {
        check(value, schema, "", &mut causes);
    }
    causes
}

fn check(value: &Value, schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    if value.is_null() && flag(schema, "nullable") {
        return;
    }
    if !has_type(value, schema) {
        let expected = schema
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or("integer,string");
        causes.push(type_error(value, path, expected));
        return;
    }
    check_enum(value, schema, path, causes);
    match value {
        Value::String(text) => check_text(text, schema, path, causes),
        Value::Number(_) => check_number(value, schema, path, causes),
        Value::Array(list) => check_list(list, schema, path, causes),
        Value::Object(object) => check_object(object, schema, path, causes),
        _ => {}
    }
}

fn has_type(value: &Value, schema: &Value) -> bool {
    if flag(schema, "x-kubernetes-int-or-string") {
        return value.is_string() || value.is_i64() || value.is_u64();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        Some("number") => value.is_number(),
        _ => true,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn type_error(value: &Value, path: &str, expected: &str) -> Cause {
    let actual = type_name(value);
    let detail = format!("{path} in body must be of type {expected}: \"{actual}\"");
    let mut cause = Cause::invalid(path, &json!(actual), &detail);
    cause.reason = "FieldValueTypeInvalid";
    cause
}

fn check_enum(value: &Value, schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Some(allowed) = schema.get("enum").and_then(Value::as_array) else {
        return;
    };
    if !allowed.contains(value) {
        let allowed: Vec<String> = allowed.iter().map(Value::to_string).collect();
        causes.push(Cause::not_supported(path, value, &allowed));
    }
}

fn count(schema: &Value, name: &str) -> Option<u64> {
    schema.get(name).and_then(Value::as_u64)
}

fn check_text(text: &str, schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
    let value = json!(text);
    if let Some(max) = count(schema, "maxLength").filter(|max| length > *max) {
        causes.push(Cause::too_long(path, max));
    }
    if let Some(min) = count(schema, "minLength").filter(|min| length < *min) {
        let detail = format!("{path} in body should be at least {min} chars long");
        causes.push(Cause::invalid(path, &value, &detail));
    }
    let Some(pattern) = schema.get("pattern").and_then(Value::as_str) else {
        return;
    };
    if !matches_pattern(pattern, text) {
        let detail = format!("{path} in body should match '{pattern}'");
        causes.push(Cause::invalid(path, &value, &detail));
    }
}

/// A pattern that this engine cannot read lets every text pass.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    static COMPILED: Mutex<Option<HashMap<String, Option<Regex>>>> = Mutex::new(None);
    let Ok(mut compiled) = COMPILED.lock() else {
        return true;
    };
    let compiled = compiled.get_or_insert_with(HashMap::new);
    let regex = compiled
        .entry(pattern.to_owned())
        .or_insert_with(|| Regex::new(pattern).ok());
    regex.as_ref().is_none_or(|regex| regex.is_match(text))
}

fn check_number(value: &Value, schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let number = value.as_f64().unwrap_or_default();
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    if let Some(max) = bound("maximum").filter(|max| number > *max) {
        let detail = format!("{path} in body should be less than or equal to {max}");
        causes.push(Cause::invalid(path, value, &detail));
    }
    if let Some(min) = bound("minimum").filter(|min| number < *min) {
        let detail = format!("{path} in body should be greater than or equal to {min}");
        causes.push(Cause::invalid(path, value, &detail));
    }
}

fn check_list(list: &[Value], schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let length = u64::try_from(list.len()).unwrap_or(u64::MAX);
    if let Some(max) = count(schema, "maxItems").filter(|max| length > *max) {
        causes.push(Cause::too_many(path, length, max));
    }
    if let Some(min) = count(schema, "minItems").filter(|min| length < *min) {
        let detail = format!("{path} in body should have at least {min} items");
        causes.push(Cause::invalid(path, &json!(length), &detail));
    }
    check_unique(list, schema, path, causes);
    if let Some(inner) = schema.get("items") {
        for (index, item) in list.iter().enumerate() {
            check(item, inner, &format!("{path}[{index}]"), causes);
        }
    }
}

fn check_unique(list: &[Value], schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let keys: Option<Vec<&str>> = match schema.get("x-kubernetes-list-type").and_then(Value::as_str)
    {
        Some("set") => None,
        Some("map") => Some(
            schema
                .get("x-kubernetes-list-map-keys")
                .and_then(Value::as_array)
                .map(|keys| keys.iter().filter_map(Value::as_str).collect())
                .unwrap_or_default(),
        ),
        _ => return,
    };
    let mut seen = Vec::new();
    for (index, item) in list.iter().enumerate() {
        let identity = match &keys {
            None => item.clone(),
            Some(keys) => keys
                .iter()
                .filter_map(|key| {
                    item.get(*key)
                        .map(|value| ((*key).to_owned(), value.clone()))
                })
                .collect::<Map<_, _>>()
                .into(),
        };
        if seen.contains(&identity) {
            let field = format!("{path}[{index}]");
            causes.push(Cause::duplicate(&field, Some(&identity)));
        }
        seen.push(identity);
    }
}

fn check_object(object: &Map<String, Value>, schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    for name in schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if let Some(name) = name.as_str().filter(|name| !object.contains_key(*name)) {
            causes.push(Cause::required(&field(path, name), ""));
        }
    }
    let length = u64::try_from(object.len()).unwrap_or(u64::MAX);
    if let Some(max) = count(schema, "maxProperties").filter(|max| length > *max) {
        causes.push(Cause::too_many(path, length, max));
    }
    if let Some(min) = count(schema, "minProperties").filter(|min| length < *min) {
        let detail = format!("{path} in body should have at least {min} properties");
        causes.push(Cause::invalid(path, &json!(length), &detail));
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let additional = schema
        .get("additionalProperties")
        .filter(|inner| inner.is_object());
    for (name, value) in object {
        if let Some(inner) = properties.and_then(|known| known.get(name)).or(additional) {
            check(value, inner, &field(path, name), causes);
        }
    }
}
