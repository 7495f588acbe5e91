//! Applies one object, and determines whether that changed anything.

use std::fmt;

use anyhow::Context as _;
use kube::{
    ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::commands::cluster_client::{api_of, metadata};

/// The field manager of objects that the commands apply.
const FIELD_MANAGER: &str = "osm-tenant";
/// The label on everything that the commands created, and not on what existed before.
pub(in crate::commands) const MADE_BY: &str = "app.kubernetes.io/managed-by";
/// The value of that label.
pub(in crate::commands) const US: &str = "osm-tenant";

/// States whether anything is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Objects are written.
    Write,
    /// Nothing is written. The output describes what would be.
    DryRun,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Created,
    Changed,
    Unchanged,
}

/// An object that was applied.
pub(super) struct Applied {
    /// The object as it is stored, without secrets and bookkeeping.
    pub(super) object: Value,
    outcome: Outcome,
    mode: Mode,
}

impl Applied {
    /// Returns true if it was written, or would be.
    pub(super) fn is_written(&self) -> bool {
        self.outcome != Outcome::Unchanged
    }
}

impl fmt::Display for Applied {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let permission = match (self.outcome, self.mode) {
            (Outcome::Created, Mode::Write) => "created",
            (Outcome::Created, Mode::DryRun) => "would create",
            (Outcome::Changed, Mode::Write) => "changed",
            (Outcome::Changed, Mode::DryRun) => "would change",
            (Outcome::Unchanged, _) => "unchanged:",
        };
        write!(formatter, "{permission} {}", called(&self.object))
    }
}

/// Returns a name such as `Role operating-system-manager-worker in kube-system`.
pub(super) fn called(object: &Value) -> String {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or("?");
    let name = metadata(object, "name");
    match metadata(object, "namespace") {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {name} in {namespace}"),
    }
}

/// Applies objects to one cluster.
pub(super) struct Applier {
    pub(super) client: kube::Client,
    pub(super) mode: Mode,
}

impl Applier {
    /// Applies an object with our label, unless it exists and was created by others.
    pub(super) async fn mark_and_apply(&self, mut document: Value) -> anyhow::Result<Applied> {
        let before = self.read(&document).await?;
        let is_ours = before
            .as_ref()
            .is_none_or(|found| found.labels().get(MADE_BY).is_some_and(|by| by == US));
        if let (true, Some(metadata)) = (is_ours, document.get_mut("metadata")) {
            merge_label(metadata, (MADE_BY, US));
        }
        self.write(document, before).await
    }

    async fn read(&self, document: &Value) -> anyhow::Result<Option<DynamicObject>> {
        let api = api_of(&self.client, document)?;
        let found = api.get_opt(metadata(document, "name")).await;
        found.with_context(|| format!("cannot read {}", called(document)))
    }

    async fn write(
        &self,
        document: Value,
        before: Option<DynamicObject>,
    ) -> anyhow::Result<Applied> {
        let Some(before) = before else {
            return self.create(document).await;
        };
        let after = self.send(&document).await.with_context(|| {
            let is_immutable = before.data.get("immutable") == Some(&Value::Bool(true));
            let help = if is_immutable {
                "; it is immutable: delete it first"
            } else {
                ""
            };
            format!("cannot change {}{help}", called(&document))
        })?;
        let outcome = if wanted(&before) == wanted(&after) {
            Outcome::Unchanged
        } else {
            Outcome::Changed
        };
        Ok(self.applied(&document, (printable(&after), outcome)))
    }

    /// Creates an object. A dry run sends no request, because the object's namespace may be
    /// missing.
    async fn create(&self, document: Value) -> anyhow::Result<Applied> {
        let made = match self.mode {
            Mode::Write => {
                let sent = self.send(&document).await;
                printable(&sent.with_context(|| format!("cannot create {}", called(&document)))?)
            }
            Mode::DryRun => document.clone(),
        };
        Ok(self.applied(&document, (made, Outcome::Created)))
    }

    fn applied(&self, document: &Value, (object, outcome): (Value, Outcome)) -> Applied {
        let mut object = without_secrets(object);
        for key in ["apiVersion", "kind"] {
            if let (Some(fields), Some(value)) = (object.as_object_mut(), document.get(key)) {
                fields.insert(key.to_owned(), value.clone());
            }
        }
        Applied {
            object,
            outcome,
            mode: self.mode,
        }
    }

    async fn send(&self, document: &Value) -> anyhow::Result<DynamicObject> {
        let api = api_of(&self.client, document)?;
        let params = PatchParams {
            dry_run: self.mode == Mode::DryRun,
            ..PatchParams::apply(FIELD_MANAGER).force()
        };
        let name = metadata(document, "name");
        Ok(api.patch(name, &params, &Patch::Apply(document)).await?)
    }
}

fn merge_label(metadata: &mut Value, (key, value): (&str, &str)) {
    let Some(metadata) = metadata.as_object_mut() else {
        return;
    };
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if let Some(labels) = labels.as_object_mut() {
        labels.insert(key.to_owned(), json!(value));
    }
}

/// Returns the object without the fields that each write changes.
fn printable(object: &DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(key);
        }
    }
    value
}

/// Returns the object without its status, which others may write in the meantime.
fn wanted(object: &DynamicObject) -> Value {
    let mut value = printable(object);
    if let Some(fields) = value.as_object_mut() {
        fields.remove("status");
    }
    value
}

/// Redacts the values of a Secret, but not its keys.
fn without_secrets(mut object: Value) -> Value {
    if object.get("kind").and_then(Value::as_str) != Some("Secret") && object.get("data").is_none()
    {
        return object;
    }
    for field in ["data", "stringData"] {
        if let Some(data) = object.get_mut(field).and_then(Value::as_object_mut) {
            for value in data.values_mut() {
                *value = json!("<redacted>");
            }
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_secret_holds_is_said_by_its_keys_alone() {
        let secret = json!({
            "kind": "Secret", "data": {"kubeconfig": "a2V5"}, "stringData": {"token": "key"},
        });
        let text = without_secrets(secret).to_string();
        assert!(
            text.contains("kubeconfig") && text.contains("token"),
            "{text}"
        );
        assert!(!text.contains("a2V5") && !text.contains("key\""), "{text}");
    }
}
