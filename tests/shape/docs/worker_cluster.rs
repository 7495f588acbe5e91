//! The page of WorkerClusters: made from the schema of their kind.

use kube::CustomResourceExt;
use osm::api::worker_cluster::WorkerCluster;
use serde_json::Value;

use super::{between, check_table, read, root};

/// Conditions are Kubernetes' own type.
const CONDITIONS: &str = "status.conditions";

/// The fields of a spec that `--tenant-defaults` refuses.
fn of_one_tenant() -> Vec<String> {
    let source = read(&root().join("src/settings/tenant_defaults.rs"));
    let (_, list) = source.split_once("NOT_DEFAULTS").expect("it has the list");
    let list = list.split("];").next().unwrap_or_default();
    between(list, '"')
        .map(|name| format!("spec.{name}"))
        .collect()
}

fn text<'a>(schema: &'a Value, key: &str) -> Option<&'a str> {
    schema.get(key)?.as_str()
}

/// The type of a field; of several where it stands in a list or a map.
fn type_of(schema: &Value, plural: &str) -> String {
    let of = |key: &str| schema.get(key).filter(|inner| inner.is_object());
    if let Some(values) = of("additionalProperties") {
        return format!("map{plural} of {}", type_of(values, "s"));
    }
    if let Some(items) = of("items") {
        return format!("list{plural} of {}", type_of(items, "s"));
    }
    let name = match text(schema, "format") {
        Some("date-time") => "timestamp",
        _ => text(schema, "type").unwrap_or("object"),
    };
    format!("{name}{plural}")
}

/// What a field may be: its default, and what the API server refuses.
fn limits(schema: &Value) -> Vec<String> {
    let mut limits = Vec::new();
    if let Some(default) = schema.get("default") {
        let default = default.as_str().map_or(default.to_string(), str::to_owned);
        limits.push(format!("default `{default}`"));
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let values = values.iter().filter_map(Value::as_str);
        let values: Vec<String> = values.map(|value| format!("`{value}`")).collect();
        limits.push(format!("one of {}", values.join(", ")));
    }
    if let Some(pattern) = text(schema, "pattern") {
        limits.push(format!("matches `{}`", pattern.replace('|', "\\|")));
    }
    for (least, most, unit) in [
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
    ] {
        let number = |key: &str| schema.get(key).and_then(Value::as_f64);
        match (number(least), number(most)) {
            (Some(least), Some(most)) => limits.push(format!("{least} to {most}{unit}")),
            (Some(least), None) => limits.push(format!("at least {least}{unit}")),
            (None, Some(most)) => limits.push(format!("at most {most}{unit}")),
            (None, None) => {}
        }
    }
    limits
}

/// Adds a row for each field below, and for the fields of those.
fn add_rows(rows: &mut Vec<String>, path: &str, schema: &Value) {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| {
        let mut names = required.into_iter().flatten();
        path.starts_with("spec") && names.any(|it| it.as_str() == Some(name))
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, field) in properties.into_iter().flatten() {
        let path = format!("{path}.{name}");
        let mut limits = limits(field);
        if is_required(name) {
            limits.insert(0, "required".to_owned());
        }
        if of_one_tenant().contains(&path) {
            limits.push("not in `--tenant-defaults`".to_owned());
        }
        let meaning = text(field, "description").unwrap_or_default();
        let meaning: Vec<&str> = meaning.split_whitespace().collect();
        let cells = [
            &format!("`{path}`"),
            &type_of(field, ""),
            &limits.join("; "),
            &meaning.join(" ").replace('|', "\\|"),
        ];
        rows.push(format!("| {} |\n", cells.map(String::as_str).join(" | ")));
        if path == CONDITIONS {
            continue;
        }
        match field.get("items") {
            Some(items) => add_rows(rows, &format!("{path}[]"), items),
            None => add_rows(rows, &path, field),
        }
    }
}

#[test]
fn the_page_of_worker_clusters_is_what_the_schema_says() {
    let definition = WorkerCluster::crd();
    let version = definition.spec.versions.first();
    let version = serde_json::to_value(version).expect("a definition is plain values");
    let schema = version.pointer("/schema/openAPIV3Schema/properties");
    let schema = schema.expect("the kind has a schema");
    let mut rows = Vec::new();
    for half in ["spec", "status"] {
        add_rows(&mut rows, half, &schema[half]);
    }
    check_table("worker-cluster.md", &rows);
}
