//! Tables, as `kubectl get` asks for them: name, the columns of a custom kind or of a few built-in
//! ones, age. The other built-in kinds show name and age only. Of `JSONPath`, columns may use
//! fields, indices and `[?(@.field=="text")]`.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    age,
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
    Path(Vec<Step>),
    Count(&'static str),
}

/// A step from a value to one below it.
enum Step {
    To(String),
    /// To the first element whose field has this text.
    Where(String, String),
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
    Column {
        name: text(definition, "/name").to_owned(),
        kind: text(definition, "/type").to_owned(),
        format: text(definition, "/format").to_owned(),
        priority: definition
            .get("priority")
            .and_then(Value::as_i64)
            .unwrap_or_default(),
        source: Source::Path(steps(text(definition, "/jsonPath"))),
    }
}

/// `.a.b[0].c`, where a backslash keeps a dot from ending a name.
fn steps(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        let (word, after) = match first {
            '[' => rest.split_once(']').unwrap_or((rest, "")),
            _ => plain(rest),
        };
        rest = after;
        let word = word.trim_start_matches(['.', '[']);
        if let Some((field, value)) = filter(word) {
            steps.push(Step::Where(field, value));
        } else if !word.is_empty() {
            let word = word.trim_matches(['\'', '"']).replace("\\.", ".");
            steps.push(Step::To(word));
        }
    }
    steps
}

/// The text up to the next step, and what follows.
fn plain(path: &str) -> (&str, &str) {
    let mut before = '\0';
    for (index, letter) in path.char_indices().skip(1) {
        if letter == '[' || (letter == '.' && before != '\\') {
            return path.split_at(index);
        }
        before = letter;
    }
    (path, "")
}

/// `?(@.field=="value")`
fn filter(word: &str) -> Option<(String, String)> {
    let inner = word.strip_prefix("?(@.")?.strip_suffix(')')?;
    let (field, value) = inner.split_once("==")?;
    let value = value.trim().trim_matches(['\'', '"']);
    Some((field.trim().to_owned(), value.to_owned()))
}

fn walk<'a>(object: &'a Value, steps: &[Step]) -> Option<&'a Value> {
    steps.iter().try_fold(object, |value, step| match step {
        Step::To(name) => match value {
            Value::Array(list) => list.get(name.parse::<usize>().ok()?),
            _ => value.get(name),
        },
        Step::Where(field, wanted) => value
            .as_array()?
            .iter()
            .find(|element| element.get(field).and_then(Value::as_str) == Some(wanted)),
    })
}

/// A table to be.
pub(crate) struct Table<'a> {
    pub kind: &'a Kind,
    pub objects: &'a [Arc<Value>],
    pub metadata: &'a Value,
    /// The time that ages are counted to.
    pub now: Timestamp,
}

impl Table<'_> {
    pub(crate) fn value(&self) -> Value {
        let columns = columns(self.kind);
        let definitions: Vec<Value> = columns
            .iter()
            .map(|column| {
                json!({
                    "name": column.name, "type": column.kind, "format": column.format,
                    "description": "", "priority": column.priority,
                })
            })
            .collect();
        let rows: Vec<Value> = self
            .objects
            .iter()
            .map(|object| {
                let cells = columns.iter().map(|column| self.cell(object, column));
                let shown = json!({
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": object.get("metadata").cloned().unwrap_or_default(),
                });
                json!({ "cells": cells.collect::<Vec<_>>(), "object": shown })
            })
            .collect();
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": self.metadata,
            "columnDefinitions": definitions,
            "rows": rows,
        })
    }

    fn cell(&self, object: &Value, column: &Column) -> Value {
        let found = match &column.source {
            Source::Name => return json!(name(object)),
            Source::Count(pointer) => {
                let count = object
                    .pointer(pointer)
                    .and_then(Value::as_object)
                    .map_or(0, serde_json::Map::len);
                return json!(count.to_string());
            }
            Source::Pointer(pointer) => object.pointer(pointer),
            Source::Path(steps) => walk(object, steps),
        };
        match found {
            Some(Value::String(time)) if column.kind == "date" => {
                json!(age::of(time, self.now).unwrap_or_else(|| "<unknown>".to_owned()))
            }
            Some(value @ (Value::Object(_) | Value::Array(_))) => json!(value.to_string()),
            Some(value) => value.clone(),
            None => Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_finds_its_value() {
        let object = json!({
            "metadata": { "annotations": { "a.b/c": "dotted" } },
            "status": { "conditions": [
                { "type": "Other", "status": "False" },
                { "type": "Ready", "status": "True" },
            ] },
        });
        for (path, value) in [
            (
                r#".status.conditions[?(@.type=="Ready")].status"#,
                json!("True"),
            ),
            (r".metadata.annotations.a\.b/c", json!("dotted")),
            (".metadata.annotations['a.b/c']", json!("dotted")),
            (".status.conditions[0].type", json!("Other")),
            (
                r#".status.conditions[?(@.type=="None")].status"#,
                Value::Null,
            ),
            (".spec.replicas", Value::Null),
        ] {
            let found = walk(&object, &steps(path)).cloned().unwrap_or_default();
            assert_eq!(found, value, "{path}");
        }
    }
}
