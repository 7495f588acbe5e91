//! The three kinds of patch that are not apply: JSON patch, merge patch and strategic merge patch.
//! The last knows the merge keys of `fields.rs` and the directives `$patch: delete|replace` and
//! `$deleteFromPrimitiveList`; `$setElementOrder` is accepted and ignored.

use json_patch::{AddOperation, PatchOperation};
use serde_json::{Map, Value};

use crate::{
    fields::{self, ListKind, Path, Step, Topology},
    status::Refusal,
};

/// What a patch request says, by its content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchKind {
    pub(crate) fn of(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            "application/apply-patch+yaml" => Some(Self::Apply),
            _ => None,
        }
    }
}

/// Applies a JSON patch.
pub(crate) fn json(object: &Value, body: &[u8]) -> Result<Value, Refusal> {
    let operations: Vec<Value> = serde_json::from_slice(body)
        .map_err(|error| Refusal::bad_request(format!("error decoding patch: {error}")))?;
    let patch: json_patch::Patch =
        serde_json::from_value(Value::Array(operations)).map_err(|_| Refusal::patch_failed())?;
    let mut changed = object.clone();
    for operation in patch.0 {
        if let Some(operation) = as_servers_read(operation, &changed) {
            json_patch::patch(&mut changed, &[operation]).map_err(|_| Refusal::patch_failed())?;
        }
    }
    Ok(changed)
}

/// To the real server, a field that a map lacks is null: it can be replaced, and it equals null.
fn as_servers_read(operation: PatchOperation, object: &Value) -> Option<PatchOperation> {
    let is_missing = |path: &str| {
        let parent = path.rsplit_once('/');
        let parent = parent.and_then(|(parent, _)| object.pointer(parent));
        parent.is_some_and(Value::is_object) && object.pointer(path).is_none()
    };
    match operation {
        PatchOperation::Replace(it) if is_missing(it.path.as_str()) => {
            let (path, value) = (it.path, it.value);
            Some(PatchOperation::Add(AddOperation { path, value }))
        }
        PatchOperation::Test(it) if it.value.is_null() && is_missing(it.path.as_str()) => None,
        other => Some(other),
    }
}

/// Applies a merge patch.
pub(crate) fn merge(object: &Value, body: &[u8]) -> Result<Value, Refusal> {
    let changes = read(body)?;
    let mut patched = object.clone();
    json_patch::merge(&mut patched, &changes);
    Ok(patched)
}

/// Applies a strategic merge patch.
pub(crate) fn strategic(
    object: &Value,
    body: &[u8],
    topology: Topology<'_>,
) -> Result<Value, Refusal> {
    let changes = read(body)?;
    let mut patched = object.clone();
    merge_strategic(&mut patched, &changes, topology, &mut Vec::new());
    Ok(patched)
}

fn read(body: &[u8]) -> Result<Value, Refusal> {
    match serde_json::from_slice::<Value>(body) {
        Ok(patch) if patch.is_object() => Ok(patch),
        Ok(_) => Err(Refusal::bad_request(
            "error decoding patch: it is not an object",
        )),
        Err(error) => Err(Refusal::bad_request(format!(
            "error decoding patch: {error}"
        ))),
    }
}

fn merge_strategic(into: &mut Value, change: &Value, topology: Topology<'_>, path: &mut Path) {
    match (&mut *into, change) {
        (Value::Object(map), Value::Object(changes)) => merge_map(map, changes, topology, path),
        (Value::Array(list), Value::Array(changes)) => merge_list(list, changes, topology, path),
        (_, Value::Object(changes)) => {
            let mut fresh = Map::new();
            merge_map(&mut fresh, changes, topology, path);
            *into = Value::Object(fresh);
        }
        _ => *into = change.clone(),
    }
}

fn merge_map(
    map: &mut Map<String, Value>,
    changes: &Map<String, Value>,
    topology: Topology<'_>,
    path: &mut Path,
) {
    if changes
        .get("$patch")
        .is_some_and(|directive| directive == "replace")
    {
        map.clear();
    }
    for (name, change) in changes {
        if let Some(field) = name.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = change.as_array().map(Vec::as_slice).unwrap_or_default();
            if let Some(list) = map.get_mut(field).and_then(Value::as_array_mut) {
                list.retain(|item| !gone.contains(item));
            }
        }
        if name.starts_with('$') {
            continue;
        }
        if change.is_null() {
            map.shift_remove(name);
            continue;
        }
        path.push(Step::Field(name.clone()));
        let empty = if change.is_array() {
            Value::Array(Vec::new())
        } else {
            Value::Null
        };
        let present = map.entry(name.clone()).or_insert(empty);
        merge_strategic(present, change, topology, path);
        path.pop();
    }
}

fn merge_list(list: &mut Vec<Value>, changes: &[Value], topology: Topology<'_>, path: &mut Path) {
    let kind = topology.list(path);
    let replaces = changes
        .iter()
        .any(|c| c.get("$patch").is_some_and(|d| d == "replace"));
    if kind == ListKind::Atomic || replaces {
        *list = changes
            .iter()
            .filter(|c| c.get("$patch").is_none())
            .cloned()
            .collect();
        return;
    }
    for change in changes {
        let Some(step) = fields::step_of(change, &kind) else {
            continue;
        };
        if change
            .get("$patch")
            .is_some_and(|directive| directive == "delete")
        {
            list.retain(|item| !fields::is_item(item, &step));
            continue;
        }
        match list.iter_mut().find(|item| fields::is_item(item, &step)) {
            Some(present) => {
                path.push(step);
                merge_strategic(present, change, topology, path);
                path.pop();
            }
            None => list.push(change.clone()),
        }
    }
}
