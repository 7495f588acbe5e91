//! Server-side apply and the book-keeping of field managers for all writes. The fidelity is that of
//! ownership, conflicts and the removal of what is no longer applied; the "." entries of maps and
//! the cap on the number of managers are left out.

use serde_json::{Value, json};

use crate::{
    fields::{self, Fields, ListKind, Path, Step, Topology},
    meta::{items, remove, same_but, set, set_metadata, text},
    status::Refusal,
};

/// Who writes, through what.
#[derive(Debug, Clone)]
pub(crate) struct Manager {
    pub name: String,
    pub operation: &'static str,
    pub api_version: String,
    pub subresource: String,
}

#[derive(Debug, Clone)]
struct Entry {
    manager: Manager,
    time: Value,
    fields: Fields,
}

impl Entry {
    fn is_of(&self, manager: &Manager) -> bool {
        self.manager.name == manager.name
            && self.manager.operation == manager.operation
            && self.manager.subresource == manager.subresource
            && (manager.operation == "Apply" || self.manager.api_version == manager.api_version)
    }
}

fn read(object: &Value) -> Vec<Entry> {
    items(object, "/metadata/managedFields")
        .iter()
        .map(|entry| Entry {
            manager: Manager {
                name: text(entry, "/manager").to_owned(),
                operation: if text(entry, "/operation") == "Apply" {
                    "Apply"
                } else {
                    "Update"
                },
                api_version: text(entry, "/apiVersion").to_owned(),
                subresource: text(entry, "/subresource").to_owned(),
            },
            time: entry.get("time").cloned().unwrap_or_default(),
            fields: entry
                .get("fieldsV1")
                .map(fields::from_v1)
                .unwrap_or_default(),
        })
        .collect()
}

fn write(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    if entries.is_empty() {
        remove(object, &["metadata", "managedFields"]);
        return;
    }
    entries.sort_by_key(|entry| {
        let time = entry.time.as_str().unwrap_or_default().to_owned();
        (entry.manager.operation, time, entry.manager.name.clone())
    });
    let list: Vec<Value> = entries
        .iter()
        .map(|entry| {
            let mut value = json!({
                "manager": entry.manager.name,
                "operation": entry.manager.operation,
                "apiVersion": entry.manager.api_version,
                "time": entry.time,
                "fieldsType": "FieldsV1",
                "fieldsV1": fields::to_v1(&entry.fields),
            });
            if !entry.manager.subresource.is_empty() {
                set(
                    &mut value,
                    &["subresource"],
                    json!(entry.manager.subresource),
                );
            }
            value
        })
        .collect();
    set_metadata(object, "managedFields", Value::Array(list));
}

/// What managers can own: everything but what the system sets.
fn ownable(object: &Value, topology: Topology<'_>) -> Fields {
    let mut bare = object.clone();
    for path in [&["apiVersion"][..], &["kind"]] {
        remove(&mut bare, path);
    }
    for name in SYSTEM_METADATA {
        remove(&mut bare, &["metadata", name]);
    }
    let mut found = fields::leaves(&bare, topology);
    found.remove(&Vec::new());
    found.remove(&vec![Step::Field("metadata".to_owned())]);
    found
}

const SYSTEM_METADATA: [&str; 11] = [
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
    "generateName",
];

/// Notes in `new` who owns what after a create or update by `manager`.
pub(crate) fn track(
    old: Option<&Value>,
    new: &mut Value,
    manager: &Manager,
    context: &Context<'_>,
) {
    let empty = json!({});
    let old = old.unwrap_or(&empty);
    // A client that sends no managed fields does not want them lost.
    let source = if new.pointer("/metadata/managedFields").is_some() {
        &*new
    } else {
        old
    };
    let mut entries = read(source);
    let before = ownable(old, context.topology);
    let after = ownable(new, context.topology);
    let changed: Fields = after
        .iter()
        .filter(|path| !same(old, new, path))
        .cloned()
        .collect();
    let (before_maps, after_maps) = (fields::containers(&before), fields::containers(&after));
    let new_maps = after_maps
        .difference(&before_maps)
        .filter(|path| !is_metadata(path));
    let gone: Vec<&Path> = before.difference(&after).collect();
    for entry in &mut entries {
        let own = entry.is_of(manager);
        entry.fields.retain(|path| {
            !gone.contains(&path) && (own || !changed.contains(path)) && exists(new, path)
        });
    }
    if !changed.is_empty() {
        own(&mut entries, manager, &context.now)
            .fields
            .extend(changed.iter().chain(new_maps).cloned());
    }
    write(new, entries);
}

/// `metadata` and what is no map of its own to own: top-level structs such as `spec` are owned.
fn is_metadata(path: &[Step]) -> bool {
    path == [Step::Field("metadata".to_owned())]
}

/// Notes that the manager owns what it applied, and nothing that was added to it.
pub(crate) fn own_applied(
    object: &mut Value,
    applied: &Value,
    manager: &Manager,
    context: &Context<'_>,
) {
    let mut entries = Vec::new();
    own(&mut entries, manager, &context.now).fields = ownable(applied, context.topology);
    write(object, entries);
}

/// Where a write happens: the meaning of lists and the time.
pub(crate) struct Context<'a> {
    pub topology: Topology<'a>,
    pub now: String,
}

fn exists(object: &Value, path: &[Step]) -> bool {
    fields::at(object, path).is_some()
}

/// Items of keyed lists are compared by presence alone: what is in them has paths of its own.
fn same(old: &Value, new: &Value, path: &[Step]) -> bool {
    let (old, new) = (fields::at(old, path), fields::at(new, path));
    match path.last() {
        Some(Step::Key(_)) => old.is_some() == new.is_some(),
        _ => old == new,
    }
}

fn own<'a>(entries: &'a mut Vec<Entry>, manager: &Manager, now: &str) -> &'a mut Entry {
    let index = entries
        .iter()
        .position(|entry| entry.is_of(manager))
        .unwrap_or_else(|| {
            entries.push(Entry {
                manager: manager.clone(),
                time: Value::Null,
                fields: Fields::new(),
            });
            entries.len() - 1
        });
    let entry = entries.remove(index);
    entries.push(Entry {
        time: json!(now),
        ..entry
    });
    entries.last_mut().expect("an entry was pushed just above")
}

/// Merges an applied configuration into the live object, or tells who else owns what it changes.
pub(crate) fn apply(
    live: &Value,
    applied: &Value,
    manager: &Manager,
    context: &ApplyContext<'_>,
) -> Result<Value, Refusal> {
    let topology = context.inner.topology;
    let mut merged = live.clone();
    merge(&mut merged, applied, topology, &mut Vec::new());
    let wanted = ownable(applied, topology);
    let mut entries = read(live);
    let changed: Fields = wanted
        .iter()
        .filter(|path| !same(live, &merged, path))
        .cloned()
        .collect();
    let conflicts: Vec<(Manager, Path)> = entries
        .iter()
        .filter(|entry| !entry.is_of(manager))
        .flat_map(|entry| {
            let owned = entry.fields.intersection(&changed);
            owned
                .map(|path| (entry.manager.clone(), path.clone()))
                .collect::<Vec<_>>()
        })
        .collect();
    if !conflicts.is_empty() && !context.force {
        return Err(refuse(&conflicts));
    }
    for entry in entries.iter_mut().filter(|entry| !entry.is_of(manager)) {
        entry.fields.retain(|path| !changed.contains(path));
    }
    let previous = entries
        .iter()
        .find(|entry| entry.is_of(manager))
        .map(|entry| entry.fields.clone())
        .unwrap_or_default();
    let dropped: Vec<&Path> = previous.difference(&wanted).collect();
    for path in dropped {
        let shared = entries
            .iter()
            .any(|e| !e.is_of(manager) && e.fields.iter().any(|owned| owned.starts_with(path)));
        let parent_kept = wanted.iter().any(|kept| kept.starts_with(path));
        if !shared && !parent_kept {
            fields::remove(&mut merged, path);
        }
    }
    let unchanged = merged == *live && previous == wanted;
    if !unchanged {
        own(&mut entries, manager, &context.inner.now).fields = wanted;
        for entry in &mut entries {
            entry.manager.api_version = if entry.is_of(manager) {
                manager.api_version.clone()
            } else {
                entry.manager.api_version.clone()
            };
        }
        write(&mut merged, entries);
    }
    Ok(merged)
}

/// As [`Context`], with the will to take over what others own.
pub(crate) struct ApplyContext<'a> {
    pub inner: Context<'a>,
    pub force: bool,
}

fn refuse(conflicts: &[(Manager, Path)]) -> Refusal {
    let causes: Vec<Value> = conflicts
        .iter()
        .map(|(manager, path)| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {}", describe(manager)),
                "field": fields::display(path),
            })
        })
        .collect();
    let count = conflicts.len();
    let mut managers: Vec<String> = conflicts
        .iter()
        .map(|(manager, _)| describe(manager))
        .collect();
    managers.dedup();
    let message = match (conflicts, managers.as_slice()) {
        ([(manager, path)], _) => format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            describe(manager),
            fields::display(path)
        ),
        (_, managers) => {
            let parts: Vec<String> = managers
                .iter()
                .map(|name| {
                    let paths: Vec<String> = conflicts
                        .iter()
                        .filter(|(manager, _)| describe(manager) == *name)
                        .map(|(_, path)| format!("- {}", fields::display(path)))
                        .collect();
                    format!("conflicts with {name}:\n{}", paths.join("\n"))
                })
                .collect();
            format!("Apply failed with {count} conflicts: {}", parts.join("\n"))
        }
    };
    Refusal::apply_conflict(message, &causes)
}

fn describe(manager: &Manager) -> String {
    let mut out = format!("\"{}\"", manager.name);
    if !manager.subresource.is_empty() {
        out = format!("{out} with subresource \"{}\"", manager.subresource);
    }
    if manager.operation == "Update" {
        out = format!("{out} using {}", manager.api_version);
    }
    out
}

fn merge(live: &mut Value, applied: &Value, topology: Topology<'_>, path: &mut Path) {
    match (&mut *live, applied) {
        (Value::Object(into), Value::Object(from)) if !topology.is_atomic_map(path) => {
            for (name, value) in from {
                path.push(Step::Field(name.clone()));
                match into.get_mut(name) {
                    Some(present) => merge(present, value, topology, path),
                    None => {
                        into.insert(name.clone(), value.clone());
                    }
                }
                path.pop();
            }
        }
        (Value::Array(into), Value::Array(from)) => {
            let kind = topology.list(path);
            if kind == ListKind::Atomic {
                *live = applied.clone();
                return;
            }
            for item in from {
                let Some(step) = fields::step_of(item, &kind) else {
                    continue;
                };
                match into
                    .iter_mut()
                    .find(|present| fields::is_item(present, &step))
                {
                    Some(present) => {
                        path.push(step);
                        merge(present, item, topology, path);
                        path.pop();
                    }
                    None => into.push(item.clone()),
                }
            }
        }
        (live, applied) => *live = applied.clone(),
    }
}

/// Whether nothing has changed but times in the managed fields.
pub(crate) fn same_but_times(old: &Value, new: &Value) -> bool {
    let (of_old, of_new) = (old.get("metadata"), new.get("metadata"));
    let (of_old, of_new) = (
        of_old.unwrap_or(&Value::Null),
        of_new.unwrap_or(&Value::Null),
    );
    let managed = |metadata: &Value| metadata.get("managedFields").cloned();
    same_but(&["metadata"], old, new)
        && same_but(&["managedFields"], of_old, of_new)
        && managed(of_old).map(without_times) == managed(of_new).map(without_times)
}

fn without_times(mut managed: Value) -> Value {
    for entry in managed.as_array_mut().into_iter().flatten() {
        remove(entry, &["time"]);
    }
    managed
}
