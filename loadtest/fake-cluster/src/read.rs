//! Get and list: the versions a reader may ask for, paging with tokens that expire, and the form in
//! which objects are shown (whole, metadata only, table).

use std::{borrow::Cow, ops::Bound, sync::Arc};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    body,
    kinds::Kind,
    meta::{remove, set, text},
    request::{Call, Verb},
    selector::{Selector, in_scope},
    state::State,
    status::Refusal,
    store::{Key, Objects},
    table,
    write::key_of,
};

/// How objects are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Whole,
    Metadata,
    /// With ages at this time: of the request, also where a watch goes on after it.
    Table(Timestamp),
}

impl Form {
    /// The first form that the client accepts.
    pub(crate) fn of(accept: &str, now: Timestamp) -> Result<Self, Refusal> {
        if accept.is_empty() {
            return Ok(Self::Whole);
        }
        for part in accept.split(',').map(str::trim) {
            let mut options = part.split(';').map(str::trim);
            let media = options.next().unwrap_or_default();
            if !matches!(media, "application/json" | "*/*" | "application/*") {
                continue;
            }
            let shown = options.find_map(|option| option.strip_prefix("as="));
            match shown {
                None => return Ok(Self::Whole),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => {
                    return Ok(Self::Metadata);
                }
                Some("Table") => return Ok(Self::Table(now)),
                Some(_) => {}
            }
        }
        Err(Refusal::not_acceptable())
    }
}

/// One object in a form, as get and watch send it.
pub(crate) fn show(kind: &Kind, object: &Arc<Value>, form: Form) -> Value {
    let object = body::from_storage(kind, object);
    match form {
        Form::Whole => Value::clone(&object),
        Form::Metadata => metadata_only(&object),
        Form::Table(now) => table::Table {
            kind,
            objects: std::slice::from_ref(&object),
            metadata: &json!({
                "resourceVersion": text(&object, "/metadata/resourceVersion"),
            }),
            now,
        }
        .value(),
    }
}

fn metadata_only(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_default(),
    })
}

/// Where a page starts and in which revision.
struct Token {
    revision: Option<u64>,
    start: Key,
}

impl Token {
    fn read(text: &str) -> Result<Option<Self>, Refusal> {
        if text.is_empty() {
            return Ok(None);
        }
        let bad = |what: &str| {
            Refusal::bad_request(format!(
                "invalid continue token: continue key is not valid: {what}"
            ))
        };
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|error| bad(&error.to_string()))?;
        let value: Value =
            serde_json::from_slice(&bytes).map_err(|error| bad(&error.to_string()))?;
        let start = value
            .get("start")
            .and_then(Value::as_array)
            .map(Vec::as_slice);
        let Some([Value::String(namespace), Value::String(name)]) = start else {
            return Err(bad("incorrect encoded start key"));
        };
        let revision = value.get("rv").and_then(Value::as_u64);
        Ok(Some(Self {
            revision,
            start: (namespace.clone(), name.clone()),
        }))
    }

    fn write(revision: Option<u64>, after: &Key) -> String {
        let (namespace, name) = after;
        let token = json!({ "v": "meta.k8s.io/v1", "rv": revision, "start": [namespace, name] });
        URL_SAFE_NO_PAD.encode(token.to_string())
    }
}

fn expired_token(start: &Key) -> Refusal {
    let mut refusal = Refusal::expired(
        "The provided continue parameter is too old to display a consistent list result. You can \
         start a new list without the continue parameter, or use the continue token in this \
         response to retrieve the remainder of the results. Continuing with the provided token \
         results in an inconsistent list - objects that were created, modified, or deleted between \
         the time the first chunk was returned and now may show up in the list.",
    );
    *refusal.metadata = json!({ "continue": Token::write(None, start) });
    refusal
}

/// Reads a resourceVersion option: none, or a number.
pub(crate) fn version(call: &Call) -> Result<Option<u64>, Refusal> {
    let text = call.option("resourceVersion");
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        let why = format!(
            "resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": \
             invalid syntax"
        );
        if call.verb == Verb::Watch {
            Refusal::internal(why)
        } else {
            Refusal::bad_request(format!("invalid resource version: {why}"))
        }
    })
}

/// The objects that a list reads from, and the revision it speaks of.
struct Snapshot<'a> {
    objects: Cow<'a, Objects>,
    revision: u64,
}

impl State {
    pub(crate) fn get(&self, call: &Call, kind: &Kind) -> Result<Value, Refusal> {
        let form = Form::of(&call.accept, self.timestamp())?;
        let object = self
            .store
            .get(&kind.storage, &key_of(kind, call))
            .ok_or_else(|| Refusal::not_found(kind, &call.target.name))?;
        Ok(show(kind, object, form))
    }

    pub(crate) fn list(&self, call: &Call, kind: &Kind) -> Result<Value, Refusal> {
        let form = Form::of(&call.accept, self.timestamp())?;
        let selector = Selector::read(call, kind)?;
        let token = Token::read(call.option("continue"))?;
        let snapshot = self.snapshot(call, kind, token.as_ref())?;
        let namespace = kind.scope(&call.target.namespace);
        let first = match &token {
            Some(token) => Bound::Excluded(token.start.clone()),
            None => Bound::Included((namespace.to_owned(), String::new())),
        };
        let in_namespace = snapshot
            .objects
            .range((first, Bound::Unbounded))
            .take_while(|(key, _)| namespace.is_empty() || key.0 == namespace);
        let mut rest = in_namespace.filter(|(_, object)| in_scope(object, namespace, &selector));
        let limit: usize = call.option("limit").parse().unwrap_or(0);
        let from_cache = version(call)? == Some(0) && token.is_none();
        let mut metadata = json!({ "resourceVersion": snapshot.revision.to_string() });
        // What comes after a page is counted and not collected: long lists have many pages.
        let page_max = if limit > 0 && !from_cache {
            limit
        } else {
            usize::MAX
        };
        let found: Vec<(&Key, &Arc<Value>)> = rest.by_ref().take(page_max).collect();
        let has_more = rest.next().is_some();
        if let (true, Some((last, _))) = (has_more, found.last()) {
            let next = Token::write(Some(snapshot.revision), last);
            set(&mut metadata, &["continue"], json!(next));
            if selector.is_empty() {
                let left = rest.count() + 1;
                set(&mut metadata, &["remainingItemCount"], json!(left));
            }
        }
        let found: Vec<Arc<Value>> = found
            .into_iter()
            .map(|(_, object)| body::from_storage(kind, object))
            .collect();
        Ok(show_list(kind, &found, form, &metadata))
    }

    fn snapshot<'a>(
        &'a self,
        call: &Call,
        kind: &Kind,
        token: Option<&Token>,
    ) -> Result<Snapshot<'a>, Refusal> {
        let store = &self.store;
        let (asked, rule) = (version(call)?, call.option("resourceVersionMatch"));
        let at = |revision: u64| Snapshot {
            objects: store.at(&kind.storage, revision),
            revision,
        };
        if let Some(token) = token {
            return match token.revision {
                Some(revision) if revision < store.compacted() => Err(expired_token(&token.start)),
                Some(revision) => Ok(at(revision)),
                None => Ok(at(store.revision())),
            };
        }
        let exact = rule == "Exact" || (rule.is_empty() && !call.option("limit").is_empty());
        match asked {
            Some(asked) if asked > store.revision() => {
                Err(Refusal::too_large_version(asked, store.revision()))
            }
            Some(asked) if exact && asked > 0 && asked < store.compacted() => Err(
                Refusal::expired("The resourceVersion for the provided list is too old."),
            ),
            Some(asked) if exact && asked > 0 => Ok(at(asked)),
            asked => {
                let floor = asked.unwrap_or_default().max(1);
                Ok(at(store.revision().saturating_sub(call.behind).max(floor)))
            }
        }
    }
}

fn show_list(kind: &Kind, found: &[Arc<Value>], form: Form, metadata: &Value) -> Value {
    let (api_version, list_kind, items) = match form {
        Form::Table(now) => {
            let objects = found;
            return table::Table {
                kind,
                objects,
                metadata,
                now,
            }
            .value();
        }
        Form::Metadata => (
            "meta.k8s.io/v1".to_owned(),
            "PartialObjectMetadataList",
            found
                .iter()
                .map(|object| metadata_only(object))
                .collect::<Vec<_>>(),
        ),
        Form::Whole => (
            kind.api_version(),
            kind.list_kind.as_str(),
            found.iter().map(|object| list_item(kind, object)).collect(),
        ),
    };
    let mut list = json!({ "kind": list_kind, "apiVersion": api_version, "metadata": metadata });
    // Within the macro each item would be copied once more.
    set(&mut list, &["items"], Value::Array(items));
    list
}

/// Items of built-in lists do not repeat their kind; items of custom kinds do.
fn list_item(kind: &Kind, object: &Value) -> Value {
    let mut item = object.clone();
    if kind.custom.is_none() {
        remove(&mut item, &["apiVersion"]);
        remove(&mut item, &["kind"]);
    }
    item
}
