//! Create, update and patch: what every write goes through before it reaches the store. Deletion,
//! server-side apply and what follows from a write have files of their own.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    apply::{self, Context, Manager},
    body,
    fields::Topology,
    kinds::Kind,
    meta::{copy, name, namespace, remove, same_but, set_metadata, text, texts},
    patch::{self, PatchKind},
    request::{Call, Verb},
    rules::Broken,
    schema,
    state::State,
    status::{Cause, Refusal},
    store::Key,
    validate,
};

/// The answer to a write: its code and the object as it is now.
#[derive(Debug)]
pub(crate) struct Done {
    pub code: u16,
    pub object: Arc<Value>,
}

impl Done {
    /// An object that was there before.
    pub(crate) fn ok(object: Arc<Value>) -> Self {
        Self { code: 200, object }
    }
}

pub(crate) fn topology(kind: &Kind) -> Topology<'_> {
    Topology {
        schema: kind.custom.as_ref().map(|custom| &custom.schema),
    }
}

/// Where an object of this kind lives; cluster-wide kinds have no namespace.
pub(crate) fn key_of(kind: &Kind, call: &Call) -> Key {
    let namespace = kind.scope(&call.target.namespace).to_owned();
    (namespace, call.target.name.clone())
}

fn manager(kind: &Kind, call: &Call) -> Manager {
    Manager {
        name: call.field_manager(),
        operation: if is_apply(call) { "Apply" } else { "Update" },
        api_version: kind.api_version(),
        subresource: call.target.subresource.clone(),
    }
}

fn is_apply(call: &Call) -> bool {
    call.verb == Verb::Patch && PatchKind::of(&call.content_type) == Some(PatchKind::Apply)
}

impl State {
    pub(crate) fn create(&mut self, call: &Call, kind: &Arc<Kind>) -> Result<Done, Refusal> {
        let mut object = body::object(call, kind)?;
        self.name_new(call, kind, &mut object)?;
        self.create_object(call, kind, object)
    }

    fn name_new(&mut self, call: &Call, kind: &Kind, object: &mut Value) -> Result<(), Refusal> {
        if !text(object, "/metadata/resourceVersion").is_empty() {
            return Err(Refusal::internal(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        body::place(call, kind, object)?;
        if name(object).is_empty() {
            let prefix = text(object, "/metadata/generateName").to_owned();
            if prefix.is_empty() {
                let detail = "name or generateName is required";
                let cause = Cause::required("metadata.name", detail);
                return Err(Refusal::invalid(kind, "", &[cause]));
            }
            let suffix = self.new_suffix();
            set_metadata(object, "name", format!("{prefix}{suffix}"));
        }
        Ok(())
    }

    /// Creates a named object: by POST, by apply, or by PUT where that may create.
    fn create_object(
        &mut self,
        call: &Call,
        kind: &Arc<Kind>,
        mut object: Value,
    ) -> Result<Done, Refusal> {
        let name = name(&object).to_owned();
        let namespace = kind.scope(&call.target.namespace);
        self.check_namespace(kind, &name, namespace)?;
        let given = is_apply(call).then(|| object.clone());
        for field in [
            "resourceVersion",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            remove(&mut object, &["metadata", field]);
        }
        if kind.status {
            remove(&mut object, &["status"]);
        }
        let uid = self.new_uid();
        set_metadata(&mut object, "uid", uid);
        set_metadata(&mut object, "creationTimestamp", self.now());
        remove(&mut object, &["metadata", "generation"]);
        if kind.has_generation() {
            set_metadata(&mut object, "generation", 1);
        }
        body::default(kind, &mut object, None);
        let mut object = through_schema(call, kind, object)?;
        let mut causes = validate::create(kind, &object);
        causes.extend(custom_causes(kind, &object, None));
        causes.extend(rule_causes(kind, (&object, None), &causes));
        if !causes.is_empty() {
            return Err(Refusal::invalid(kind, &name, &causes));
        }
        let key = (namespace.to_owned(), name.clone());
        if self.store.get(&kind.storage, &key).is_some() {
            return Err(Refusal::already_exists(kind, &name));
        }
        self.complete(kind, &mut object);
        let context = Context {
            topology: topology(kind),
            now: self.now(),
        };
        let mut writer = manager(kind, call);
        writer.subresource.clear();
        match given {
            Some(given) => apply::own_applied(&mut object, &given, &writer, &context),
            None => apply::track(None, &mut object, &writer, &context),
        }
        Ok(Done {
            code: 201,
            object: self.commit(call, kind, object),
        })
    }

    fn check_namespace(&self, kind: &Kind, name: &str, namespace: &str) -> Result<(), Refusal> {
        if !kind.namespaced {
            return Ok(());
        }
        let namespaces = self.kind_by_resource("namespaces");
        match self.store.find("/namespaces", "", namespace) {
            Some(object) if validate::is_deleting(object) => {
                Err(Refusal::terminating(kind, name, namespace))
            }
            Some(_) => Ok(()),
            None => Err(namespaces.map_or_else(Refusal::unserved, |namespaces| {
                Refusal::not_found(&namespaces, namespace)
            })),
        }
    }

    /// What the server itself adds at the end.
    fn complete(&self, kind: &Kind, object: &mut Value) {
        if kind.is("apiextensions.k8s.io", "customresourcedefinitions") {
            crate::crd::complete(object, &self.now());
        }
    }

    /// Stores an object, unless it is a dry run, and lets the controllers see it.
    pub(crate) fn commit(
        &mut self,
        call: &Call,
        kind: &Arc<Kind>,
        mut object: Value,
    ) -> Arc<Value> {
        if call.is_dry_run() {
            return Arc::new(object);
        }
        body::to_storage(kind, &mut object);
        let namespace = kind.scope(namespace(&object));
        let key = (namespace.to_owned(), name(&object).to_owned());
        let stored = self.store.put(&kind.storage, key, object);
        self.after_write(kind, &stored);
        stored
    }

    pub(crate) fn update(&mut self, call: &Call, kind: &Arc<Kind>) -> Result<Done, Refusal> {
        let mut object = body::object(call, kind)?;
        body::place(call, kind, &mut object)?;
        check_name(call, &object)?;
        let url_name = &call.target.name;
        let key = key_of(kind, call);
        let Some(old) = self.store.get(&kind.storage, &key).cloned() else {
            let may_create = creates_on_update(kind) && call.target.subresource.is_empty();
            if !may_create {
                return Err(Refusal::not_found(kind, url_name));
            }
            return self.create_object(call, kind, object);
        };
        if text(&object, "/metadata/resourceVersion").is_empty() && needs_version(kind) {
            return Err(Refusal::version_missing(kind, url_name));
        }
        self.replace(call, kind, &Replacement { old, new: object })
    }

    pub(crate) fn patch(&mut self, call: &Call, kind: &Arc<Kind>) -> Result<Done, Refusal> {
        let patch_kind = PatchKind::of(&call.content_type)
            .filter(|patch| kind.custom.is_none() || *patch != PatchKind::Strategic)
            .ok_or_else(|| Refusal::unsupported_media(accepted_patches(kind)))?;
        let key = key_of(kind, call);
        let old = self.store.get(&kind.storage, &key).cloned();
        if patch_kind == PatchKind::Apply {
            return self.apply(call, kind, old);
        }
        let old = old.ok_or_else(|| Refusal::not_found(kind, &call.target.name))?;
        let shown = body::from_storage(kind, &old);
        let patched = match patch_kind {
            PatchKind::Json => patch::json(&shown, &call.body)?,
            PatchKind::Strategic => patch::strategic(&shown, &call.body, topology(kind))?,
            PatchKind::Merge | PatchKind::Apply => patch::merge(&shown, &call.body)?,
        };
        self.replace(call, kind, &Replacement { old, new: patched })
    }

    fn apply(
        &mut self,
        call: &Call,
        kind: &Arc<Kind>,
        old: Option<Arc<Value>>,
    ) -> Result<Done, Refusal> {
        if call.option("fieldManager").is_empty() {
            let cause = Cause::required("fieldManager", "is required for apply patch");
            return Err(Refusal::invalid_options("PatchOptions", &[cause]));
        }
        let mut applied = body::object(call, kind)?;
        if !crate::meta::items(&applied, "/metadata/managedFields").is_empty() {
            return Err(Refusal::bad_request("metadata.managedFields must be nil"));
        }
        body::place(call, kind, &mut applied)?;
        if old.is_some() && name(&applied).is_empty() {
            // What exists is named by the path.
            set_metadata(&mut applied, "name", call.target.name.as_str());
        }
        check_name(call, &applied)?;
        let Some(old) = old else {
            if !call.target.subresource.is_empty() {
                return Err(Refusal::not_found(kind, &call.target.name));
            }
            return self.create_object(call, kind, applied);
        };
        let version = text(&applied, "/metadata/resourceVersion").to_owned();
        if !version.is_empty() && version != text(&old, "/metadata/resourceVersion") {
            return Err(Refusal::modified(kind, &call.target.name));
        }
        body::keep_part(kind, &call.target.subresource, &mut applied);
        let applied = body::typed(kind, applied)?;
        let context = apply::ApplyContext {
            inner: Context {
                topology: topology(kind),
                now: self.now(),
            },
            force: call.flag("force"),
        };
        let writer = manager(kind, call);
        let live = body::from_storage(kind, &old);
        let merged = apply::apply(&live, &applied, &writer, &context)?;
        self.replace(call, kind, &Replacement { old, new: merged })
    }

    /// Puts a new state in the place of an old one, by the rules for updates.
    fn replace(
        &mut self,
        call: &Call,
        kind: &Arc<Kind>,
        replacement: &Replacement,
    ) -> Result<Done, Refusal> {
        let Replacement { old, new } = replacement;
        let name = call.target.name.clone();
        let old = body::from_storage(kind, old);
        check_name(call, new)?;
        check_identity(kind, &old, new)?;
        let mut new = body::merge_part(kind, &call.target.subresource, &old, new.clone());
        keep_system_metadata(&old, &mut new);
        body::default(kind, &mut new, Some(&old));
        let mut new = through_schema(call, kind, new)?;
        let mut causes = validate::update(kind, &old, &new);
        causes.extend(custom_causes(kind, &new, Some(&old)));
        causes.extend(rule_causes(kind, (&new, Some(&old)), &causes));
        if !causes.is_empty() {
            return Err(Refusal::invalid(kind, &name, &causes));
        }
        self.complete(kind, &mut new);
        if kind.has_generation()
            && call.target.subresource.is_empty()
            && spec_changed(kind, &old, &new)
        {
            let generation = old.pointer("/metadata/generation").and_then(Value::as_i64);
            let next = generation.unwrap_or_default() + 1;
            set_metadata(&mut new, "generation", next);
        }
        if !is_apply(call) {
            let context = Context {
                topology: topology(kind),
                now: self.now(),
            };
            apply::track(Some(&old), &mut new, &manager(kind, call), &context);
        }
        let unchanged = apply::same_but_times(&old, &new);
        if unchanged {
            return Ok(Done::ok(old));
        }
        let key = key_of(kind, call);
        if validate::is_deleting(&new) && finished(kind, &new) && !call.is_dry_run() {
            let last = Arc::new(new);
            self.remove(kind, &key);
            return Ok(Done::ok(last));
        }
        Ok(Done::ok(self.commit(call, kind, new)))
    }
}

struct Replacement {
    old: Arc<Value>,
    new: Value,
}

/// Whether nothing holds back the removal any more.
pub(crate) fn finished(kind: &Kind, object: &Value) -> bool {
    texts(object, "/metadata/finalizers").is_empty()
        && (!kind.is("", "namespaces") || texts(object, "/spec/finalizers").is_empty())
}

fn accepted_patches(kind: &Kind) -> &'static str {
    if kind.custom.is_some() {
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    } else {
        "application/json-patch+json, application/merge-patch+json, \
         application/strategic-merge-patch+json, application/apply-patch+yaml, \
         application/apply-patch+cbor"
    }
}

fn creates_on_update(kind: &Kind) -> bool {
    matches!(
        (kind.group.as_str(), kind.resource.as_str()),
        ("coordination.k8s.io", "leases")
            | ("rbac.authorization.k8s.io", _)
            | ("" | "events.k8s.io", "events")
            | ("", "endpoints" | "limitranges" | "services")
    )
}

fn needs_version(kind: &Kind) -> bool {
    kind.custom.is_some()
        || kind.is("coordination.k8s.io", "leases")
        || kind.is("apiextensions.k8s.io", "customresourcedefinitions")
}

fn check_name(call: &Call, object: &Value) -> Result<(), Refusal> {
    let (given, wanted) = (name(object), &call.target.name);
    if given == wanted {
        return Ok(());
    }
    if given.is_empty() {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be \
             provided"
        )));
    }
    Err(Refusal::bad_request(format!(
        "the name of the object ({given}) does not match the name on the URL ({wanted})"
    )))
}

fn check_identity(kind: &Kind, old: &Value, new: &Value) -> Result<(), Refusal> {
    let object_name = name(old);
    let uid = text(new, "/metadata/uid");
    if !uid.is_empty() && uid != text(old, "/metadata/uid") {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry{}/{}/{object_name}, \
             ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: \
             {uid}, UID in object meta: {}",
            kind.storage,
            namespace(old),
            text(old, "/metadata/uid")
        );
        return Err(Refusal::conflict(kind, object_name, &why));
    }
    let version = text(new, "/metadata/resourceVersion");
    if !version.is_empty() && version != text(old, "/metadata/resourceVersion") {
        return Err(Refusal::modified(kind, object_name));
    }
    Ok(())
}

fn keep_system_metadata(old: &Value, new: &mut Value) {
    for field in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "selfLink",
    ] {
        copy(old, new, &["metadata", field]);
    }
}

/// Returns true if anything but metadata and status has changed, which `generation` counts.
fn spec_changed(kind: &Kind, old: &Value, new: &Value) -> bool {
    let aside: &[&str] = if kind.status {
        &["metadata", "status"]
    } else {
        &["metadata"]
    };
    !same_but(aside, old, new)
}

/// Errors by the schema; what was wrong before in the same way is let through, as the real server
/// does since it ratchets.
fn custom_causes(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let Some(custom) = &kind.custom else {
        return Vec::new();
    };
    let mut causes = schema::validate(new, &custom.schema);
    if let (false, Some(old)) = (causes.is_empty(), old) {
        let before = schema::validate(old, &custom.schema);
        causes.retain(|cause| !before.contains(cause));
    }
    causes
}

/// Errors by the rules in CEL, unless what was found before makes their answers meaningless.
fn rule_causes(kind: &Kind, change: (&Value, Option<&Value>), found: &[Cause]) -> Vec<Cause> {
    let rules = kind.custom.as_ref().and_then(|it| it.rules.as_ref());
    let (new, old) = change;
    match rules {
        Some(_) if found.iter().any(is_blocking) => vec![unchecked()],
        Some(rules) => rules.check(new, old).into_iter().map(cause).collect(),
        None => Vec::new(),
    }
}

/// Whether an error keeps the rules from being looked at.
fn is_blocking(cause: &Cause) -> bool {
    matches!(
        cause.reason,
        "FieldValueNotSupported"
            | "FieldValueRequired"
            | "FieldValueTooLong"
            | "FieldValueTooMany"
            | "FieldValueTypeInvalid"
    )
}

/// Tells that the rules were not looked at.
fn unchecked() -> Cause {
    let detail = "some validation rules were not checked because the object was invalid; correct \
                  the existing errors to complete validation";
    Cause::invalid("<nil>", &Value::Null, detail)
}

fn cause(broken: Broken) -> Cause {
    let Broken {
        path,
        value,
        message,
    } = broken;
    match value {
        Some(value) => Cause::invalid(&path, &value, &message),
        None => Cause::invalid_part(&path, &message),
    }
}

/// Prunes and defaults by the schema of a custom kind, or reads through the built-in type.
fn through_schema(call: &Call, kind: &Kind, mut object: Value) -> Result<Value, Refusal> {
    let Some(custom) = &kind.custom else {
        return body::typed(kind, object);
    };
    let dropped = schema::prune(&mut object, &custom.schema);
    body::refuse_unknown(call, kind, (&object, &dropped))?;
    schema::default(&mut object, &custom.schema);
    Ok(object)
}
