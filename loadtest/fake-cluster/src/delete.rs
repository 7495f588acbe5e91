//! Deletion: preconditions, finalizers, collections. Garbage collection by owner references is a
//! controller of its own and left out; propagation policies are accepted and have no effect.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    body,
    kinds::Kind,
    meta::{name, set, set_metadata, text},
    request::Call,
    selector::{Selector, in_scope},
    state::State,
    status::{Refusal, details},
    store::Key,
    validate::is_deleting,
    write::{Done, finished, key_of},
};

/// The options of a delete request.
struct DeleteOptions {
    uid: Option<String>,
    resource_version: Option<String>,
    dry_run: bool,
}

impl DeleteOptions {
    fn read(call: &Call) -> Result<Self, Refusal> {
        let body = if call.body.is_empty() {
            json!({})
        } else {
            body::value(call)?
        };
        // An empty text is a condition, too, which no object meets.
        let condition = |field: &str| {
            let found = body.pointer("/preconditions")?.get(field)?.as_str();
            found.map(str::to_owned)
        };
        Ok(Self {
            uid: condition("uid"),
            resource_version: condition("resourceVersion"),
            dry_run: call.is_dry_run()
                || crate::meta::texts(&body, "/dryRun")
                    .iter()
                    .any(|value| value == "All"),
        })
    }

    fn check(&self, kind: &Kind, object: &Value) -> Result<(), Refusal> {
        let (uid, version) = (
            text(object, "/metadata/uid"),
            text(object, "/metadata/resourceVersion"),
        );
        let why = match (&self.uid, &self.resource_version) {
            (Some(wanted), _) if wanted != uid => format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The \
                 object might have been deleted and then recreated"
            ),
            (_, Some(wanted)) if wanted != version => format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion \
                 in record ({version}). The object might have been modified"
            ),
            _ => return Ok(()),
        };
        Err(Refusal::precondition(kind, name(object), &why))
    }
}

impl State {
    pub(crate) fn delete(&mut self, call: &Call, kind: &Arc<Kind>) -> Result<Done, Refusal> {
        let options = DeleteOptions::read(call)?;
        self.delete_one(kind, &key_of(kind, call), &options)
    }

    fn delete_one(
        &mut self,
        kind: &Arc<Kind>,
        key: &Key,
        options: &DeleteOptions,
    ) -> Result<Done, Refusal> {
        let Some(object) = self.store.get(&kind.storage, key).cloned() else {
            return Err(Refusal::not_found(kind, &key.1));
        };
        options.check(kind, &object)?;
        if kind.is("", "namespaces") && PROTECTED.contains(&key.1.as_str()) {
            return Err(Refusal::forbidden(
                kind,
                &key.1,
                "this namespace may not be deleted",
            ));
        }
        if finished(kind, &object) {
            if !options.dry_run {
                self.remove(kind, key);
            }
            let object = if kind.returns_deleted() {
                body::from_storage(kind, &object)
            } else {
                Arc::new(success(kind, &object))
            };
            return Ok(Done::ok(object));
        }
        if is_deleting(&object) {
            return Ok(Done::ok(body::from_storage(kind, &object)));
        }
        let mut marked = Value::clone(&object);
        set_metadata(&mut marked, "deletionTimestamp", self.now());
        if kind.is("", "namespaces") {
            set(&mut marked, &["status", "phase"], json!("Terminating"));
        } else {
            set_metadata(&mut marked, "deletionGracePeriodSeconds", 0);
        }
        if let Some(generation) = marked
            .pointer("/metadata/generation")
            .and_then(Value::as_i64)
        {
            set_metadata(&mut marked, "generation", generation + 1);
        }
        if options.dry_run {
            return Ok(Done::ok(Arc::new(marked)));
        }
        let stored = self.store.put(&kind.storage, key.clone(), marked);
        self.after_write(kind, &stored);
        Ok(Done::ok(body::from_storage(kind, &stored)))
    }

    pub(crate) fn delete_collection(
        &mut self,
        call: &Call,
        kind: &Arc<Kind>,
    ) -> Result<Value, Refusal> {
        let options = DeleteOptions::read(call)?;
        let selector = Selector::read(call, kind)?;
        let namespace = kind.scope(&call.target.namespace);
        let chosen: Vec<(Key, Arc<Value>)> = self
            .store
            .all(&kind.storage)
            .filter(|(_, object)| in_scope(object, namespace, &selector))
            .map(|(key, object)| (key.clone(), Arc::clone(object)))
            .collect();
        let mut items = Vec::new();
        for (key, object) in chosen {
            self.delete_one(kind, &key, &options)?;
            items.push(Value::clone(&body::from_storage(kind, &object)));
        }
        Ok(json!({
            "apiVersion": kind.api_version(),
            "kind": kind.list_kind,
            "metadata": { "resourceVersion": self.store.revision().to_string() },
            "items": items,
        }))
    }
}

const PROTECTED: [&str; 3] = ["default", "kube-system", "kube-public"];

fn success(kind: &Kind, object: &Value) -> Value {
    let mut about = details(name(object), &kind.group, &kind.resource);
    set(&mut about, &["uid"], json!(text(object, "/metadata/uid")));
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": about,
    })
}
