//! Reviews of WorkerClusters: none is refused, and a changed setting is answered with what it takes
//! on running machines.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

use super::{Answer, Asked, Operation, effect_remark, spec};
use crate::profile_effects::settings_effects;
use osm_api::worker_cluster::WorkerClusterSpec as Spec;
use osm_tenant::settings::TenantSettings;

/// Allows every write of a WorkerCluster: the reconcile reports an invalid setting in a condition,
/// and keeps the one before.
pub fn review(_: &Asked<'_>) -> Answer {
    Answer::allowed(None)
}

/// Returns an invalid setting, or what the changed ones take on running machines of the default
/// profiles, each a sentence. It renders all of them, which takes its time.
pub fn remarks(asked: &Asked<'_>) -> Vec<String> {
    let is_as_before = asked.old_object.get("spec") == asked.object.get("spec");
    let is_write = matches!(asked.operation, Operation::Create | Operation::Update);
    if !is_write || is_as_before || asked.is_deleting() {
        return Vec::new();
    }
    let settings = |object| {
        let spec = spec::<Spec>(object).ok()?;
        Some(TenantSettings::default().with(&spec))
    };
    match (settings(asked.old_object), settings(asked.object)) {
        (_, Some(Err(invalid))) => vec![invalid.to_string()],
        (Some(Ok(old)), Some(Ok(new))) => {
            let effects = settings_effects(&old, &new);
            let changed = changed_fields(asked.old_object, asked.object);
            effect_remark(&changed.join(", "), &effects)
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the fields of a spec that differ, as `spec.name`.
fn changed_fields(old: &Json, new: &Json) -> Vec<String> {
    let specs = [old, new].into_iter().filter_map(|it| it.get("spec"));
    let names: BTreeSet<&String> = specs
        .filter_map(Json::as_object)
        .flat_map(Map::keys)
        .collect();
    let value = |object: &Json, name: &str| object.get("spec")?.get(name).cloned();
    let differing = names
        .into_iter()
        .filter(|name| value(old, name) != value(new, name));
    differing.map(|name| format!("spec.{name}")).collect()
}
