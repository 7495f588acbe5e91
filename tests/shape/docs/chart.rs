//! The page of the chart's values: made from the comments of `values.yaml` and from the schema.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{check_table, read, root};

const CHART: &str = "manifests/helm/osm";

/// The keys of `values.yaml` with a comment above them, in their order: the path, and the comment.
fn described(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut parents: Vec<(usize, &str)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in text.lines() {
        let content = line.trim_start();
        let indent = line.len() - content.len();
        if let Some(more) = content.strip_prefix('#') {
            comment.push(more.trim());
            continue;
        }
        let above = std::mem::take(&mut comment);
        let Some((key, _)) = content.split_once(':') else {
            continue;
        };
        if content.starts_with("- ") {
            continue;
        }
        parents.retain(|(outer, _)| *outer < indent);
        parents.push((indent, key));
        if !above.is_empty() {
            let path: Vec<&str> = parents.iter().map(|(_, key)| *key).collect();
            found.push((path.join("."), above.join(" ")));
        }
    }
    found
}

/// The schema that a reference stands for.
fn resolved<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let reference = schema["$ref"].as_str().unwrap_or_default();
    let name = reference.strip_prefix("#/$defs/");
    name.and_then(|name| root.get("$defs")?.get(name))
        .unwrap_or(schema)
}

/// The schema of the value at a path.
fn at<'a>(path: &str, root: &'a Value) -> Option<&'a Value> {
    let keys = path.split('.').filter(|key| !key.is_empty());
    let mut schema = root;
    for key in keys {
        schema = resolved(schema.get("properties")?.get(key)?, root);
    }
    Some(schema)
}

/// The type of a value; of several where they are in a list or a map.
fn type_of(schema: &Value, root: &Value, plural: &str) -> String {
    let schema = resolved(schema, root);
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> = values.iter().filter_map(Value::as_str).map(code).collect();
        return values.join(" or ");
    }
    if let Some(one) = schema["anyOf"].as_array() {
        let mut types: Vec<String> = one.iter().map(|it| type_of(it, root, plural)).collect();
        types.sort_by_key(|name| name == "null");
        return types.join(" or ");
    }
    if let Some(items) = schema.get("items") {
        return format!("list{plural} of {}", type_of(items, root, "s"));
    }
    if let Some(values) = schema
        .get("additionalProperties")
        .filter(|it| it.is_object())
    {
        return format!("map{plural} of {}", type_of(values, root, "s"));
    }
    match &schema["type"] {
        Value::Array(types) => {
            let types: Vec<&str> = types.iter().filter_map(Value::as_str).collect();
            types.join(" or ")
        }
        name => format!("{}{plural}", name.as_str().unwrap_or("object")),
    }
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn parent(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(parent, _)| parent)
}

#[test]
fn the_page_of_the_chart_is_what_its_values_and_schema_say() {
    let text = read(&root().join(CHART).join("values.yaml"));
    let values: Value = serde_saphyr::from_str(&text).expect("the values are YAML");
    let schema = read(&root().join(CHART).join("values.schema.json"));
    let schema: Value = serde_json::from_str(&schema).expect("the schema is JSON");
    let described = described(&text);
    let paths: BTreeSet<&str> = described.iter().map(|(path, _)| path.as_str()).collect();
    let parents: BTreeSet<&str> = paths.iter().map(|path| parent(path)).collect();
    for outer in &parents {
        let inner = at(outer, &schema).and_then(|it| it["properties"].as_object());
        for key in inner.expect("the schema has it").keys() {
            let path = format!("{outer}.{key}");
            let path = path.trim_start_matches('.');
            assert!(paths.contains(path), "{path} has no comment in values.yaml");
        }
    }
    let rows: Vec<String> = described
        .iter()
        .map(|(path, comment)| {
            let schema_of = at(path, &schema);
            assert!(schema_of.is_some(), "{path} is not in the schema");
            let schema_of = schema_of.unwrap_or(&Value::Null);
            let default = values.pointer(&format!("/{}", path.replace('.', "/")));
            assert!(default.is_some(), "{path} has no default");
            let default = default.unwrap_or(&Value::Null).to_string();
            let is_outer = parents.contains(path.as_str());
            let default = if is_outer {
                String::new()
            } else {
                code(&default)
            };
            let kind = type_of(schema_of, &schema, "");
            format!("| {} | {kind} | {default} | {comment} |\n", code(path))
        })
        .collect();
    assert!(rows.len() > 100, "{}", rows.len());
    check_table(&format!("../{CHART}/README.md"), &rows);
}

#[test]
fn a_comment_belongs_to_the_key_below_it() {
    let text = "# Two\n# lines.\na:\n  # Inner.\n  b: 1\n  c:\n  - d: 1\n# None.\n\nf: 1\n";
    let found: BTreeMap<String, String> = described(text).into_iter().collect();
    let expected = [("a", "Two lines."), ("a.b", "Inner.")];
    let expected = expected.map(|(path, comment)| (path.to_owned(), comment.to_owned()));
    assert_eq!(found, expected.into());
}
