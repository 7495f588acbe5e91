//! Label and field selectors: reading them and matching objects. Fields are those of the real
//! server for the kinds where selecting by them is usual.

use serde_json::Value;

use crate::{kinds::Kind, meta::text, request::Call, status::Refusal};

#[derive(Debug, Clone, PartialEq)]
enum Rule {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

/// What a list or watch is restricted to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    labels: Vec<Rule>,
    /// Pointer, value, and whether they must be equal.
    fields: Vec<(String, String, bool)>,
}

impl Selector {
    pub(crate) fn read(call: &Call, kind: &Kind) -> Result<Self, Refusal> {
        let labels = read_labels(call.option("labelSelector"))?;
        let mut fields = Vec::new();
        for part in call
            .option("fieldSelector")
            .split(',')
            .filter(|part| !part.is_empty())
        {
            let (name, value, equal) = split_field(part).ok_or_else(|| {
                Refusal::bad_request(format!(
                    "invalid selector: '{part}'; can't understand '{part}'"
                ))
            })?;
            let pointer = pointer_of(kind, name).ok_or_else(|| unknown_field(kind, name))?;
            fields.push((pointer, value.to_owned(), equal));
        }
        Ok(Self { labels, fields })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        if self.is_empty() {
            // Each page of a long list counts what comes after it.
            return true;
        }
        let labels = object.pointer("/metadata/labels");
        let label = |key: &str| labels.and_then(|all| all.get(key)).and_then(Value::as_str);
        self.labels.iter().all(|rule| match rule {
            Rule::In(key, values) => label(key).is_some_and(|v| values.iter().any(|w| w == v)),
            Rule::NotIn(key, values) => label(key).is_none_or(|v| values.iter().all(|w| w != v)),
            Rule::Exists(key) => label(key).is_some(),
            Rule::Absent(key) => label(key).is_none(),
        }) && self
            .fields
            .iter()
            .all(|(pointer, value, equal)| (field_text(object, pointer) == *value) == *equal)
    }
}

fn field_text(object: &Value, pointer: &str) -> String {
    match object.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None if pointer == "/spec/unschedulable" => "false".to_owned(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

fn split_field(part: &str) -> Option<(&str, &str, bool)> {
    if let Some((name, value)) = part.split_once("!=") {
        return Some((name, value, false));
    }
    let (name, value) = part.split_once('=')?;
    Some((name, value.strip_prefix('=').unwrap_or(value), true))
}

fn pointer_of(kind: &Kind, name: &str) -> Option<String> {
    let known: &[&str] = match (kind.group.as_str(), kind.resource.as_str()) {
        ("", "secrets") => &["type"],
        ("", "namespaces") => &["status.phase"],
        ("", "nodes") => &["spec.unschedulable"],
        ("certificates.k8s.io", "certificatesigningrequests") => &["spec.signerName"],
        ("", "pods") => &["spec.nodeName", "status.phase", "spec.restartPolicy"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "reason",
            "type",
            "reportingComponent",
            "source",
        ],
        ("events.k8s.io", "events") => &["regarding.kind", "regarding.name", "reason", "type"],
        _ => &[],
    };
    let is_known = name == "metadata.name"
        || (name == "metadata.namespace" && kind.namespaced)
        || known.contains(&name);
    is_known.then(|| format!("/{}", name.replace('.', "/")))
}

fn unknown_field(kind: &Kind, name: &str) -> Refusal {
    Refusal::bad_request(format!(
        "\"{name}\" is not a known field selector: only {}",
        if kind.namespaced {
            "\"metadata.name\", \"metadata.namespace\""
        } else {
            "\"metadata.name\""
        }
    ))
}

fn read_labels(selector: &str) -> Result<Vec<Rule>, Refusal> {
    split_outside_parentheses(selector)
        .into_iter()
        .map(|part| part.trim().to_owned())
        .filter(|part| !part.is_empty())
        .map(|part| read_label(&part))
        .collect()
}

fn split_outside_parentheses(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0_i32;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts
}

fn read_label(part: &str) -> Result<Rule, Refusal> {
    if part.starts_with('=') {
        let message = "found '==', expected: !, identifier, or 'end of string'";
        return Err(Refusal::bad_request(message));
    }
    let owned = |text: &str| text.trim().to_owned();
    let set = |text: &str| -> Vec<String> {
        text.trim()
            .trim_matches(['(', ')'])
            .split(',')
            .map(owned)
            .collect()
    };
    if let Some((key, values)) = part.split_once(" notin ") {
        return Ok(Rule::NotIn(owned(key), set(values)));
    }
    if let Some((key, values)) = part.split_once(" in ") {
        return Ok(Rule::In(owned(key), set(values)));
    }
    if let Some((key, value)) = part.split_once("!=") {
        return Ok(Rule::NotIn(owned(key), vec![owned(value)]));
    }
    if let Some((key, value)) = part.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value);
        return Ok(Rule::In(owned(key), vec![owned(value)]));
    }
    let key = part.trim_start_matches('!').trim();
    if key.is_empty() || key.contains([' ', '(', ')']) {
        return Err(Refusal::bad_request(format!(
            "unable to parse requirement: found '{part}', expected: identifier"
        )));
    }
    Ok(if part.starts_with('!') {
        Rule::Absent(owned(key))
    } else {
        Rule::Exists(owned(key))
    })
}

/// Whether an object is in the scope of a request: its namespace and its selectors.
pub(crate) fn in_scope(object: &Value, namespace: &str, selector: &Selector) -> bool {
    (namespace.is_empty() || text(object, "/metadata/namespace") == namespace)
        && selector.matches(object)
}
