//! Tables, as `kubectl get` asks for them: name, the columns of a custom kind or of a few built-in
//! ones, age. The other built-in kinds show name and age only.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    kinds::Kind,
    meta::{name, text},
};

struct Column {
    name: String,
    kind: String,
    format: String,
    priority: i64,
    source: Source,
}

enum Source {
    Name,
    Pointer(String),
    Count(&'static str),
}

fn column(name: &str, kind: &str, source: Source) -> Column {
    Column {
        name: name.to_owned(),
        kind: kind.to_owned(),
        format: String::new(),
        priority: 0,
        source,
    }
}

fn columns(kind: &Kind) -> Vec<Column> {
    let mut columns = vec![column("Name", "string", Source::Name)];
    let pointer = |path: &str| Source::Pointer(path.to_owned());
    match (&kind.custom, kind.resource.as_str()) {
        (Some(custom), _) => {
            columns.extend(custom.columns.iter().map(custom_column));
            if !custom.columns.is_empty() {
                return columns;
            }
        }
        (None, "secrets") => {
            columns.push(column("Type", "string", pointer("/type")));
            columns.push(column("Data", "string", Source::Count("/data")));
        }
        (None, "configmaps") => columns.push(column("Data", "string", Source::Count("/data"))),
        (None, "namespaces") => {
            columns.push(column("Status", "string", pointer("/status/phase")));
        }
        (None, "leases") => {
            columns.push(column("Holder", "string", pointer("/spec/holderIdentity")));
        }
        _ => {}
    }
    columns.push(column(
        "Age",
        "date",
        pointer("/metadata/creationTimestamp"),
    ));
    columns
}

fn custom_column(definition: &Value) -> Column {
    let path = text(definition, "/jsonPath").replace("\\.", "\u{1}");
    let steps: Vec<String> = path
        .split(['.', '[', ']'])
        .filter(|step| !step.is_empty())
        .map(|step| {
            let step = step.trim_matches(['\'', '"']).replace('\u{1}', ".");
            format!("/{}", step.replace('~', "~0").replace('/', "~1"))
        })
        .collect();
    let pointer = steps.concat();
    Column {
        name: text(definition, "/name").to_owned(),
        kind: text(definition, "/type").to_owned(),
        format: text(definition, "/format").to_owned(),
        priority: definition
            .get("priority")
            .and_then(Value::as_i64)
            .unwrap_or_default(),
        source: Source::Pointer(pointer),
    }
}

fn cell(object: &Value, column: &Column) -> Value {
    match &column.source {
        Source::Name => json!(name(object)),
        Source::Count(pointer) => {
            let count = object
                .pointer(pointer)
                .and_then(Value::as_object)
                .map_or(0, serde_json::Map::len);
            json!(count.to_string())
        }
        // Times are sent as they are; only the real server turns them into ages.
        Source::Pointer(pointer) => match object.pointer(pointer) {
            Some(value @ (Value::Object(_) | Value::Array(_))) => json!(value.to_string()),
            Some(value) => value.clone(),
            None => json!("<none>"),
        },
    }
}

/// The table of some objects.
pub(crate) fn of(kind: &Kind, objects: &[Arc<Value>], metadata: &Value) -> Value {
    let columns = columns(kind);
    let definitions: Vec<Value> = columns
        .iter()
        .map(|column| {
            json!({
                "name": column.name, "type": column.kind, "format": column.format,
                "description": "", "priority": column.priority,
            })
        })
        .collect();
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells: Vec<Value> = columns.iter().map(|column| cell(object, column)).collect();
            let shown = json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": object.get("metadata").cloned().unwrap_or_default(),
            });
            json!({ "cells": cells, "object": shown })
        })
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": rows,
    })
}
