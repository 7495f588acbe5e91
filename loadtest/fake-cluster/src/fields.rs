//! Sets of field paths, as managed fields name them, and what lists and maps mean for them: atomic,
//! a set, or a map by keys. Custom kinds say so in their schema; for built-in kinds there is a
//! small table. Who owns which set is decided in `apply.rs`.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Field(String),
    /// An item of a list that is a map: its keys as canonical JSON.
    Key(String),
    /// An item of a list that is a set: the item as JSON.
    Item(String),
}

pub(crate) type Path = Vec<Step>;
pub(crate) type Fields = BTreeSet<Path>;

/// How the items of a list are told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListKind {
    Atomic,
    Set,
    Map(Vec<String>),
}

/// Knows what lists and maps mean for one kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Topology<'a> {
    /// The schema of a custom kind.
    pub schema: Option<&'a Value>,
}

impl<'a> Topology<'a> {
    pub(crate) fn list(self, path: &[Step]) -> ListKind {
        let last = path.iter().rev().find_map(|step| match step {
            Step::Field(name) => Some(name.as_str()),
            _ => None,
        });
        let in_metadata = path.first() == Some(&Step::Field("metadata".to_owned()));
        match (in_metadata, last) {
            (true, Some("finalizers")) => return ListKind::Set,
            (true, Some("ownerReferences")) => return ListKind::Map(vec!["uid".to_owned()]),
            _ => {}
        }
        match self.schema {
            None => builtin_list(last.unwrap_or_default()),
            Some(_) => self.schema_at(path).map_or(ListKind::Atomic, schema_list),
        }
    }

    pub(crate) fn is_atomic_map(self, path: &[Step]) -> bool {
        let owner = Step::Field("ownerReferences".to_owned());
        if matches!(path, [_, list, Step::Key(_)] if *list == owner) {
            return true;
        }
        match self.schema {
            None => matches!(
                path.last(),
                Some(Step::Field(name))
                    if matches!(name.as_str(), "selector" | "nodeSelector" | "resourceFieldRef"
                        | "secretKeyRef" | "configMapKeyRef" | "fieldRef" | "involvedObject" | "roleRef")
            ),
            Some(_) => self
                .schema_at(path)
                .and_then(|schema| schema.get("x-kubernetes-map-type"))
                .is_some_and(|kind| kind == "atomic"),
        }
    }

    fn schema_at(self, path: &[Step]) -> Option<&'a Value> {
        path.iter()
            .try_fold(self.schema?, |schema, step| match step {
                Step::Field(name) => schema
                    .get("properties")
                    .and_then(|properties| properties.get(name))
                    .or_else(|| schema.get("additionalProperties")),
                _ => schema.get("items"),
            })
    }
}

fn schema_list(schema: &Value) -> ListKind {
    match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListKind::Set,
        Some("map") => ListKind::Map(crate::meta::texts(schema, "/x-kubernetes-list-map-keys")),
        _ => ListKind::Atomic,
    }
}

fn builtin_list(name: &str) -> ListKind {
    let keys: &[&str] = match name {
        "conditions" | "addresses" => &["type"],
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "volumes"
        | "imagePullSecrets"
        | "secrets" => &["name"],
        "volumeMounts" => &["mountPath"],
        "ports" => &["port", "containerPort", "protocol"],
        "hostAliases" => &["ip"],
        "podCIDRs" => return ListKind::Set,
        _ => return ListKind::Atomic,
    };
    ListKind::Map(keys.iter().map(|key| (*key).to_owned()).collect())
}

/// The step that names an item of a list, or `None` in an atomic list.
pub(crate) fn step_of(item: &Value, kind: &ListKind) -> Option<Step> {
    match kind {
        ListKind::Atomic => None,
        ListKind::Set => Some(Step::Item(item.to_string())),
        ListKind::Map(keys) => {
            let mut sorted = keys.clone();
            sorted.sort();
            let found: Map<String, Value> = sorted
                .iter()
                .filter_map(|key| Some((key.clone(), item.get(key)?.clone())))
                .collect();
            Some(Step::Key(Value::Object(found).to_string()))
        }
    }
}

/// The paths of all leaves of a value, and of the items of keyed lists.
pub(crate) fn leaves(value: &Value, topology: Topology<'_>) -> Fields {
    let mut fields = Fields::new();
    collect(value, topology, &mut Vec::new(), &mut fields);
    fields
}

fn collect(value: &Value, topology: Topology<'_>, path: &mut Path, fields: &mut Fields) {
    match value {
        Value::Object(map) if !map.is_empty() && !topology.is_atomic_map(path) => {
            for (name, inner) in map {
                path.push(Step::Field(name.clone()));
                collect(inner, topology, path, fields);
                path.pop();
            }
        }
        Value::Array(list) if !list.is_empty() => {
            let kind = topology.list(path);
            if kind == ListKind::Atomic {
                fields.insert(path.clone());
                return;
            }
            for item in list {
                let Some(step) = step_of(item, &kind) else {
                    continue;
                };
                path.push(step);
                fields.insert(path.clone());
                if item.is_object() && !topology.is_atomic_map(path) {
                    collect(item, topology, path, fields);
                }
                path.pop();
            }
        }
        _ => {
            fields.insert(path.clone());
        }
    }
}

/// The value at a path.
pub(crate) fn at<'a>(value: &'a Value, path: &[Step]) -> Option<&'a Value> {
    path.iter().try_fold(value, |at, step| match step {
        Step::Field(name) => at.get(name),
        other => at.as_array()?.iter().find(|item| is_item(item, other)),
    })
}

/// Removes what is at a path, and containers that become empty by it.
pub(crate) fn remove(value: &mut Value, path: &[Step]) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    if rest.is_empty() {
        match (value, first) {
            (Value::Object(map), Step::Field(name)) => {
                map.shift_remove(name);
            }
            (Value::Array(list), step) => list.retain(|item| !is_item(item, step)),
            _ => {}
        }
        return;
    }
    let inner = match (&mut *value, first) {
        (Value::Object(map), Step::Field(name)) => map.get_mut(name),
        (Value::Array(list), step) => list.iter_mut().find(|item| is_item(item, step)),
        _ => None,
    };
    let Some(inner) = inner else { return };
    remove(inner, rest);
    let emptied = match inner {
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    if emptied && matches!(first, Step::Field(_)) {
        remove(value, std::slice::from_ref(first));
    }
}

pub(crate) fn is_item(item: &Value, step: &Step) -> bool {
    match step {
        Step::Field(_) => false,
        Step::Item(text) => serde_json::from_str(text).is_ok_and(|wanted: Value| wanted == *item),
        Step::Key(text) => serde_json::from_str::<Map<String, Value>>(text)
            .is_ok_and(|keys| keys.iter().all(|(key, value)| item.get(key) == Some(value))),
    }
}

/// The path as conflicts print it: `.spec.ports[port=80]`.
pub(crate) fn display(path: &[Step]) -> String {
    let mut out = String::new();
    for step in path {
        match step {
            Step::Field(name) => {
                out.push('.');
                out.push_str(name);
            }
            Step::Item(text) => {
                out.push_str("[=");
                out.push_str(text);
                out.push(']');
            }
            Step::Key(text) => {
                let keys: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
                let keys: Vec<String> = keys
                    .iter()
                    .map(|(key, value)| format!("{key}={value}"))
                    .collect();
                out.push('[');
                out.push_str(&keys.join(","));
                out.push(']');
            }
        }
    }
    out
}

/// The nested form of `fieldsV1`.
pub(crate) fn to_v1(fields: &Fields) -> Value {
    let mut root = json!({});
    let mut rest = fields.iter().peekable();
    while let Some(path) = rest.next() {
        // Paths come in order: what lies below this one follows at once.
        let has_below = rest.peek().is_some_and(|next| next.starts_with(path));
        insert_v1(&mut root, path, if has_below { &["."] } else { &[] });
    }
    root
}

fn insert_v1(at: &mut Value, path: &[Step], mark: &[&str]) {
    let Some(map) = at.as_object_mut() else {
        return;
    };
    match path.split_first() {
        Some((first, rest)) => {
            insert_v1(
                map.entry(step_v1(first)).or_insert_with(|| json!({})),
                rest,
                mark,
            );
        }
        None => map.extend(mark.iter().map(|mark| ((*mark).to_owned(), json!({})))),
    }
}

fn step_v1(step: &Step) -> String {
    match step {
        Step::Field(name) => format!("f:{name}"),
        Step::Key(keys) => format!("k:{keys}"),
        Step::Item(item) => format!("v:{item}"),
    }
}

/// The paths of all maps and keyed lists that are not empty.
pub(crate) fn containers(fields: &Fields) -> Fields {
    fields
        .iter()
        .flat_map(|path| (1..path.len()).filter_map(|length| path.get(..length)))
        .map(<[Step]>::to_vec)
        .collect()
}

/// Reads `fieldsV1`.
pub(crate) fn from_v1(value: &Value) -> Fields {
    let mut fields = Fields::new();
    read_v1(value, &mut Vec::new(), &mut fields);
    fields
}

fn read_v1(value: &Value, path: &mut Path, fields: &mut Fields) {
    let Some(map) = value.as_object() else { return };
    if map.is_empty() && !path.is_empty() {
        fields.insert(path.clone());
    }
    for (key, inner) in map {
        let step = match key.split_once(':') {
            Some(("f", name)) => Step::Field(name.to_owned()),
            Some(("k", keys)) => Step::Key(keys.to_owned()),
            Some(("v", item)) => Step::Item(item.to_owned()),
            _ => {
                fields.insert(path.clone());
                continue;
            }
        };
        path.push(step);
        read_v1(inner, path, fields);
        path.pop();
    }
}
