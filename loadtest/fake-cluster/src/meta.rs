//! Small readers and writers for the JSON of Kubernetes objects: text at a path, set, remove.
//! Nothing here knows what the fields mean.

use serde_json::{Map, Value, json};

/// What is at a JSON pointer. `Value::pointer` copies each step of it, and all that the cluster
/// does asks for some.
fn at<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    if pointer.contains('~') {
        return object.pointer(pointer);
    }
    let mut steps = pointer.split('/').skip(1);
    steps.try_fold(object, |at, step| match at {
        Value::Object(map) => map.get(step),
        Value::Array(list) => list.get(step.parse::<usize>().ok()?),
        _ => None,
    })
}

/// The text at a JSON pointer, or "" when there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    at(object, pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The name of an object.
pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// The namespace of an object, "" for cluster-wide ones.
pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// The name of the ServiceAccount that a token Secret is for.
pub(crate) fn account_of(secret: &Value) -> &str {
    text(
        secret,
        "/metadata/annotations/kubernetes.io~1service-account.name",
    )
}

/// The texts of a list at a JSON pointer.
pub(crate) fn texts(object: &Value, pointer: &str) -> Vec<String> {
    at(object, pointer)
        .and_then(Value::as_array)
        .map(|list| {
            list.iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        })
        .unwrap_or_default()
}

/// The list at a JSON pointer, empty when there is none.
pub(crate) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    at(object, pointer)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// Sets a field, making the objects on the way to it.
pub(crate) fn set(object: &mut Value, path: &[&str], value: Value) {
    let Some((last, way)) = path.split_last() else {
        *object = value;
        return;
    };
    let mut at = object;
    for step in way {
        at = entry(at, step);
    }
    if !at.is_object() {
        *at = json!({});
    }
    if let Some(map) = at.as_object_mut() {
        map.insert((*last).to_owned(), value);
    }
}

/// Sets a field of the metadata.
pub(crate) fn set_metadata(object: &mut Value, field: &str, value: impl Into<Value>) {
    set(object, &["metadata", field], value.into());
}

fn entry<'a>(at: &'a mut Value, step: &str) -> &'a mut Value {
    if !at.is_object() {
        *at = Value::Object(Map::new());
    }
    match at {
        Value::Object(map) => map.entry(step.to_owned()).or_insert_with(|| json!({})),
        // Not reached: it was made an object just above.
        other => other,
    }
}

/// Removes a field and returns it.
pub(crate) fn remove(object: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, way) = path.split_last()?;
    let mut at = object;
    for step in way {
        at = at.get_mut(*step)?;
    }
    at.as_object_mut()?.shift_remove(*last)
}

/// Copies a field from one object to another, or removes it where the first has none.
pub(crate) fn copy(from: &Value, to: &mut Value, path: &[&str]) {
    let mut at = Some(from);
    for step in path {
        at = at.and_then(|value| value.get(*step));
    }
    match at {
        Some(value) => set(to, path, value.clone()),
        None => {
            remove(to, path);
        }
    }
}

/// Whether two objects have the same fields, those left aside that are named.
pub(crate) fn same_but(aside: &[&str], old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return old == new;
    };
    let counted = |key: &&String| !aside.contains(&key.as_str());
    old.keys().filter(counted).count() == new.keys().filter(counted).count()
        && (old.iter().filter(|(key, _)| counted(key)))
            .all(|(key, value)| new.get(key) == Some(value))
}
