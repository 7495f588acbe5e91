//! Compares a value with a schema, as the API server would. It knows the part of the schema
//! language that our definitions use.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use regex::Regex;
use serde_json::Value as Json;

use super::document::field;

/// A difference between a value and its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The field.
    pub path: String,
    /// How it differs.
    pub kind: MismatchKind,
}

/// How a value differs from its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MismatchKind {
    /// No such field exists; the API server drops it silently.
    UnknownField {
        /// The field that was probably meant.
        similar: Option<String>,
    },
    /// The value is of another type.
    WrongType {
        /// The type that the field has.
        expected: String,
    },
    /// The value is none of those that are allowed.
    WrongValue {
        /// The value.
        found: String,
        /// The values that are allowed.
        allowed: Vec<String>,
    },
    /// The value is not as it must be.
    Refused {
        /// How it must be.
        must: String,
    },
    /// A field that must be there is not.
    Missing,
}

impl Mismatch {
    /// Returns what is wrong, starting with the field, and how to correct it. A value is quoted
    /// only if the schema lists the allowed values.
    pub fn sentences(&self) -> (String, String) {
        let (problem, fix) = match &self.kind {
            MismatchKind::UnknownField { similar } => (
                "no such field exists, and the API server would drop it".to_owned(),
                similar.as_ref().map_or("remove it".to_owned(), |name| {
                    format!("did you mean `{name}`?")
                }),
            ),
            MismatchKind::WrongType { expected } => (
                format!("the value is not of type {expected}"),
                format!("write a value of type {expected}"),
            ),
            MismatchKind::WrongValue { found, allowed } => (
                format!("`{found}` is not allowed"),
                format!("write one of {}", allowed.join(", ")),
            ),
            MismatchKind::Refused { must } => (
                format!("the value must {must}"),
                "write one that does".to_owned(),
            ),
            MismatchKind::Missing => ("it is missing".to_owned(), "add it".to_owned()),
        };
        (format!("{}: {problem}", self.path), fix)
    }
}

/// The schema of a definition's objects, with what every Kubernetes object has beside it.
pub fn schema_of(definition: CustomResourceDefinition) -> Json {
    let version = definition.spec.versions.into_iter().next();
    let schema = version.and_then(|version| version.schema?.open_api_v3_schema);
    // A definition is made of plain values, so writing it as JSON cannot fail.
    let mut schema = serde_json::to_value(schema).unwrap_or_default();
    if let Some(properties) = schema.get_mut("properties").and_then(Json::as_object_mut) {
        for (name, kind) in [
            ("apiVersion", "string"),
            ("kind", "string"),
            ("metadata", "object"),
        ] {
            properties.insert(name.to_owned(), serde_json::json!({ "type": kind }));
        }
    }
    schema
}

/// Compares a value with a schema, in the order of the value.
pub fn mismatches(schema: &Json, value: &Json, path: &str) -> Vec<Mismatch> {
    let mut found = Vec::new();
    compare(schema, value, path, &mut found);
    found
}

fn compare(schema: &Json, value: &Json, path: &str, found: &mut Vec<Mismatch>) {
    let mut report = |kind| {
        found.push(Mismatch {
            path: path.to_owned(),
            kind,
        });
    };
    let expected = schema.get("type").and_then(Json::as_str).unwrap_or("any");
    if !is_of_type(expected, value) {
        let expected = expected.to_owned();
        report(MismatchKind::WrongType { expected });
        return;
    }
    if let Some(allowed) = schema.get("enum").and_then(Json::as_array)
        && !allowed.contains(value)
    {
        let allowed = allowed.iter().filter_map(Json::as_str).map(str::to_owned);
        report(MismatchKind::WrongValue {
            found: value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned),
            allowed: allowed.collect(),
        });
    }
    if let Some(must) = limit(schema, value) {
        report(MismatchKind::Refused { must });
    }
    match value {
        Json::Array(items) => {
            let schema = schema.get("items").unwrap_or(&Json::Null);
            for (index, item) in items.iter().enumerate() {
                compare(schema, item, &format!("{path}[{index}]"), found);
            }
        }
        Json::Object(_) => compare_map(schema, value, path, found),
        _ => {}
    }
}

/// Returns which limit a value exceeds. Lengths of texts are in characters.
fn limit(schema: &Json, value: &Json) -> Option<String> {
    let number = |key| schema.get(key).and_then(Json::as_f64);
    let count = |key| schema.get(key).and_then(Json::as_u64);
    let (size, of, [least, most]) = match value {
        Json::String(text) => {
            let pattern = schema.get("pattern").and_then(Json::as_str);
            if let Some(pattern) = pattern
                && Regex::new(pattern).is_ok_and(|it| !it.is_match(text))
            {
                return Some(format!("match `{pattern}`"));
            }
            (
                text.chars().count(),
                "characters",
                ["minLength", "maxLength"],
            )
        }
        Json::Array(items) => (items.len(), "items", ["minItems", "maxItems"]),
        Json::Object(fields) => (fields.len(), "fields", ["minProperties", "maxProperties"]),
        Json::Number(found) => {
            let found = found.as_f64()?;
            let least = number("minimum").filter(|least| found < *least);
            let most = number("maximum").filter(|most| found > *most);
            let least = least.map(|it| format!("be at least {it}"));
            return least.or(most.map(|it| format!("be at most {it}")));
        }
        Json::Bool(_) | Json::Null => return None,
    };
    let size = u64::try_from(size).unwrap_or(u64::MAX);
    let least = count(least).filter(|least| size < *least);
    let most = count(most).filter(|most| size > *most);
    let least = least.map(|it| format!("have at least {it} {of}"));
    least.or(most.map(|it| format!("have at most {it} {of}")))
}

fn is_required(schema: &Json, name: &str) -> bool {
    let required = schema.get("required").and_then(Json::as_array);
    required.is_some_and(|names| names.iter().any(|known| known == name))
}

fn compare_map(schema: &Json, value: &Json, path: &str, found: &mut Vec<Mismatch>) {
    let properties = schema.get("properties").and_then(Json::as_object);
    let additional = schema.get("additionalProperties");
    let keeps_unknown = schema.get("x-kubernetes-preserve-unknown-fields") == Some(&true.into())
        || (properties.is_none() && additional.is_none());
    for (name, value) in value.as_object().into_iter().flatten() {
        let path = field(path, name);
        let known = properties.and_then(|properties| properties.get(name));
        // Go writes `null` where it holds nothing.
        if value.is_null() && known.is_some() && !is_required(schema, name) {
            continue;
        }
        if let Some(schema) = known.or(additional) {
            compare(schema, value, &path, found);
        } else if !keeps_unknown {
            let names = properties.into_iter().flat_map(|known| known.keys());
            let similar = similar(name, names.map(String::as_str));
            let kind = MismatchKind::UnknownField { similar };
            found.push(Mismatch { path, kind });
        }
    }
    let required = schema.get("required").and_then(Json::as_array);
    for name in required.into_iter().flatten().filter_map(Json::as_str) {
        if value.get(name).is_none() {
            found.push(Mismatch {
                path: field(path, name),
                kind: MismatchKind::Missing,
            });
        }
    }
}

fn is_of_type(expected: &str, value: &Json) -> bool {
    match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    }
}

/// The name that differs in its case, or in two letters at most.
pub fn similar<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    const DISTANCE_MAX: usize = 2;
    names
        .map(|known| {
            let distance = strsim::osa_distance(&name.to_lowercase(), &known.to_lowercase());
            (distance, known)
        })
        .filter(|(distance, known)| *distance <= DISTANCE_MAX && *distance < known.len())
        .min()
        .map(|(_, known)| known.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(value: &Json) -> Vec<(String, MismatchKind)> {
        let schema = json!({
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"type": "string", "enum": ["aws", "azure"]},
                "count": {"type": "integer"},
                "list": {"type": "array", "items": {"type": "object", "properties": {"isOn": {"type": "boolean"}}}},
                "texts": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "few": {"type": "array", "maxItems": 1},
                "short": {"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^\\S*$"},
                "small": {"type": "integer", "minimum": 1, "maximum": 9},
                "pair": {"type": "object", "maxProperties": 2},
            },
        });
        let found = mismatches(&schema, value, "spec");
        found
            .into_iter()
            .map(|mismatch| (mismatch.path, mismatch.kind))
            .collect()
    }

    #[test]
    fn a_value_of_the_right_shape_has_no_mismatch() {
        let value = json!({"name": "aws", "count": 3, "list": [{"isOn": true}, {}],
            "texts": {"any": "text"}, "free": {"any": [1]}});
        assert_eq!(check(&value), []);
    }

    #[test]
    fn each_mismatch_is_reported_with_its_path() {
        let wrong_type = |expected: &str| MismatchKind::WrongType {
            expected: expected.to_owned(),
        };
        let unknown = |similar: Option<&str>| MismatchKind::UnknownField {
            similar: similar.map(str::to_owned),
        };
        for (value, path, kind) in [
            (json!({}), "spec.name", MismatchKind::Missing),
            (json!([]), "spec", wrong_type("object")),
            (
                json!({"name": "aws", "count": "3"}),
                "spec.count",
                wrong_type("integer"),
            ),
            (
                json!({"name": "aws", "texts": {"a": 1}}),
                "spec.texts.a",
                wrong_type("string"),
            ),
            (
                json!({"name": "aws", "list": [{}, {"ison": true}]}),
                "spec.list[1].ison",
                unknown(Some("isOn")),
            ),
            (
                json!({"name": "aws", "other": 1}),
                "spec.other",
                unknown(None),
            ),
            (
                json!({"name": "aw"}),
                "spec.name",
                MismatchKind::WrongValue {
                    found: "aw".to_owned(),
                    allowed: vec!["aws".to_owned(), "azure".to_owned()],
                },
            ),
        ] {
            assert_eq!(check(&value), [(path.to_owned(), kind)], "{value}");
        }
    }

    #[test]
    fn each_limit_is_reported_with_what_the_value_must_be() {
        for (field, value, must) in [
            ("few", json!([1, 2]), "have at most 1 items"),
            ("short", json!("ü"), "have at least 2 characters"),
            ("short", json!("üüüü"), "have at most 3 characters"),
            ("short", json!("a b"), r"match `^\S*$`"),
            ("small", json!(0), "be at least 1"),
            ("small", json!(10), "be at most 9"),
            (
                "pair",
                json!({"a": 1, "b": 2, "c": 3}),
                "have at most 2 fields",
            ),
        ] {
            let must = must.to_owned();
            let expected = (format!("spec.{field}"), MismatchKind::Refused { must });
            assert_eq!(check(&json!({"name": "aws", field: value})), [expected]);
        }
    }

    #[test]
    fn a_slip_of_the_pen_is_recognised() {
        let names = ["permissions", "path", "content"];
        let similar = |name| similar(name, names.into_iter());
        assert_eq!(similar("permission").as_deref(), Some("permissions"));
        assert_eq!(similar("pathh").as_deref(), Some("path"));
        assert_eq!(similar("mode"), None);
    }
}
