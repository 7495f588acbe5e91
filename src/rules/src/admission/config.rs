//! Reviews of configs: they never change.

use super::{Answer, Asked, Operation, spec};
use osm_api::config::OperatingSystemConfigSpec as Spec;

/// Evaluates a write of a config.
pub fn review(asked: &Asked<'_>) -> Answer {
    let uid = asked.uid;
    match asked.operation {
        Operation::Update if !asked.is_deleting() && is_changed(asked) => {
            let message = format!(
                "operatingSystemConfig validation request {uid} denied: OperatingSystemConfig is \
                 immutable and updates are not allowed"
            );
            Answer::refused(403, message)
        }
        Operation::Connect => {
            let operation = asked.operation.as_str();
            Answer::refused(400, format!("{operation} not supported on osc resources"))
        }
        Operation::Create | Operation::Update | Operation::Delete => {
            let message = format!("operatingSystemConfig validation request {uid} allowed");
            Answer::allowed(Some(message))
        }
    }
}

/// Returns true if the specs differ in more than how they write that nothing is there.
fn is_changed(asked: &Asked<'_>) -> bool {
    let written = |object: &serde_json::Value| object.get("spec").cloned();
    if written(asked.object) == written(asked.old_object) {
        return false;
    }
    let new = spec::<Spec>(asked.object);
    !matches!((spec::<Spec>(asked.old_object), new), (Ok(old), Ok(new)) if old == new)
}
