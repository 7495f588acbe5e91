//! Refusals of the API server as values: code, reason, message and details, and the Status body
//! made of them. The texts are those of the real server, because clients match on them. It knows
//! nothing of why a request is refused.

use serde_json::{Map, Value, json};

use crate::kinds::Kind;

/// A request that the API server refuses, with everything its Status body says.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason, such as `NotFound`.
    pub reason: &'static str,
    /// The text for people.
    pub message: String,
    /// `details` of the Status; `Null` for none.
    pub details: Box<Value>,
    /// `metadata` of the Status; carries the token with which an expired listing may go on.
    pub metadata: Box<Value>,
}

/// One field error of an `Invalid` refusal.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// The reason, such as `FieldValueInvalid`.
    pub reason: &'static str,
    /// What is wrong, without the field.
    pub message: String,
    /// The path of the field.
    pub field: String,
}

impl Cause {
    fn new(reason: &'static str, field: &str, message: String) -> Self {
        Self {
            reason,
            message,
            field: field.to_owned(),
        }
    }

    /// A value that is not accepted; `value` is printed as Go would print it.
    pub fn invalid(field: &str, value: &Value, detail: &str) -> Self {
        let message = format!("Invalid value: {}: {detail}", go_value(value));
        Self::new("FieldValueInvalid", field, message)
    }

    /// A value that is not accepted and too large to print.
    pub fn invalid_part(field: &str, detail: &str) -> Self {
        let message = format!("Invalid value: {detail}");
        Self::new("FieldValueInvalid", field, message)
    }

    /// A value that must be there and is not.
    pub fn required(field: &str, detail: &str) -> Self {
        let message = if detail.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {detail}")
        };
        Self::new("FieldValueRequired", field, message)
    }

    /// A field that may not be set here.
    pub fn forbidden(field: &str, detail: &str) -> Self {
        let message = format!("Forbidden: {detail}");
        Self::new("FieldValueForbidden", field, message)
    }

    /// A value that is there twice; nothing is printed of objects and lists.
    pub(crate) fn duplicate(field: &str, value: Option<&Value>) -> Self {
        let message = match value {
            Some(value) => format!("Duplicate value: {value}"),
            None => "Duplicate value".to_owned(),
        };
        Self::new("FieldValueDuplicate", field, message)
    }

    /// A text of more bytes than are allowed.
    pub(crate) fn too_long(field: &str, max: impl std::fmt::Display) -> Self {
        let message = format!("Too long: may not be more than {max} bytes");
        Self::new("FieldValueTooLong", field, message)
    }

    /// A list or an object with more items than are allowed.
    pub(crate) fn too_many(field: &str, length: u64, max: u64) -> Self {
        let message = format!("Too many: {length}: must have at most {max} items");
        Self::new("FieldValueTooMany", field, message)
    }

    /// A value outside a closed set.
    pub fn not_supported(field: &str, value: &Value, allowed: &[String]) -> Self {
        let message = format!(
            "Unsupported value: {}: supported values: {}",
            go_value(value),
            allowed.join(", ")
        );
        Self::new("FieldValueNotSupported", field, message)
    }
}

fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        other => other.to_string(),
    }
}

impl Refusal {
    fn plain(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            code,
            reason,
            message,
            details: Box::default(),
            metadata: Box::new(json!({})),
        }
    }

    fn about(self, kind: &Kind, name: &str) -> Self {
        self.with_details(details(name, &kind.group, &kind.resource))
    }

    fn with_details(mut self, details: Value) -> Self {
        *self.details = details;
        self
    }

    fn with_cause(mut self, reason: &str, message: &str) -> Self {
        if !self.details.is_object() {
            *self.details = json!({});
        }
        if let Some(map) = self.details.as_object_mut() {
            map.insert(
                "causes".to_owned(),
                json!([{ "reason": reason, "message": message }]),
            );
        }
        self
    }

    /// The object does not exist.
    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.qualified());
        Self::plain(404, "NotFound", message).about(kind, name)
    }

    /// The path leads to no kind that is served.
    pub(crate) fn unserved() -> Self {
        Self::plain(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
        .with_details(json!({}))
    }

    /// An object of that name is already there.
    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.qualified());
        Self::plain(409, "AlreadyExists", message).about(kind, name)
    }

    /// The write is based on an old state or a precondition does not hold.
    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            kind.qualified()
        );
        Self::plain(409, "Conflict", message).about(kind, name)
    }

    /// The usual conflict of a write with an old resourceVersion.
    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and \
             try again",
        )
    }

    /// Field errors. There must be at least one cause.
    pub(crate) fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        let kind_text = kind.qualified_kind();
        let mut refusal = Self::plain(
            422,
            "Invalid",
            format!("{kind_text} \"{name}\" is invalid: {}", join_causes(causes)),
        );
        *refusal.details = details(name, &kind.group, &kind.kind);
        refusal.set_causes(causes);
        refusal
    }

    /// Field errors of a request's options.
    pub(crate) fn invalid_options(options: &str, causes: &[Cause]) -> Self {
        let message = format!(
            "{options}.meta.k8s.io \"\" is invalid: {}",
            join_causes(causes)
        );
        let mut refusal = Self::plain(422, "Invalid", message);
        *refusal.details = json!({ "group": "meta.k8s.io", "kind": options });
        refusal.set_causes(causes);
        refusal
    }

    fn set_causes(&mut self, causes: &[Cause]) {
        let causes: Vec<Value> = causes
            .iter()
            .map(|c| json!({ "reason": c.reason, "message": c.message, "field": c.field }))
            .collect();
        if let Some(map) = self.details.as_object_mut() {
            map.insert("causes".to_owned(), Value::Array(causes));
        }
    }

    /// A precondition of a deletion does not hold; the real server names the kind here.
    pub(crate) fn precondition(kind: &Kind, name: &str, why: &str) -> Self {
        let qualified = kind.qualified_kind();
        let message = format!("Operation cannot be fulfilled on {qualified} \"{name}\": {why}");
        Self::plain(409, "Conflict", message).with_details(details(name, &kind.group, &kind.kind))
    }

    /// An update without the resourceVersion that its kind demands.
    pub(crate) fn version_missing(kind: &Kind, name: &str) -> Self {
        let detail = "must be specified for an update";
        let cause = Cause::invalid("metadata.resourceVersion", &json!(0), detail);
        let message = format!(
            "{} \"{name}\" is invalid: {}",
            kind.qualified(),
            join_causes(std::slice::from_ref(&cause))
        );
        let mut refusal = Self::plain(422, "Invalid", message).about(kind, name);
        refusal.set_causes(&[cause]);
        refusal
    }

    /// Fails without a reason, as the real server does where nobody thought of one.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::plain(500, "", message)
    }

    /// Refused for this object, whatever the rights.
    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.qualified());
        Self::plain(403, "Forbidden", message).about(kind, name)
    }

    /// The namespace is being terminated.
    pub(crate) fn terminating(kind: &Kind, name: &str, namespace: &str) -> Self {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let cause = format!("namespace {namespace} is being terminated");
        let mut refusal =
            Self::forbidden(kind, name, &why).with_cause("NamespaceTerminating", &cause);
        if let Some(cause) = refusal
            .details
            .pointer_mut("/causes/0")
            .and_then(Value::as_object_mut)
        {
            cause.insert("field".to_owned(), json!("metadata.namespace"));
        }
        refusal
    }

    /// Not authorized: the text of the authorizer with the attributes of the request.
    pub(crate) fn unauthorized_access(message: String, details: Value) -> Self {
        Self::plain(403, "Forbidden", message).with_details(details)
    }

    /// Nobody knows this user.
    pub(crate) fn unauthenticated() -> Self {
        Self::plain(401, "Unauthorized", "Unauthorized")
    }

    /// The user may not act as another one.
    pub(crate) fn not_impersonated(user: &str, other: &str) -> Self {
        let message = format!(
            "users \"{other}\" is forbidden: User \"{user}\" cannot impersonate resource \
             \"users\" in API group \"\" at the cluster scope"
        );
        Self::plain(403, "Forbidden", message)
    }

    /// The request makes no sense.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::plain(400, "BadRequest", message)
    }

    /// The history that the request needs is gone.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::plain(410, "Expired", message)
    }

    /// The verb is not served on this resource.
    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::plain(405, "MethodNotAllowed", message).with_details(json!({}))
    }

    /// The content type is not understood.
    pub(crate) fn unsupported_media(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: \
             {accepted}"
        );
        Self::plain(415, "UnsupportedMediaType", message)
    }

    /// None of the accepted content types is served.
    pub(crate) fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json";
        Self::plain(406, "NotAcceptable", message)
    }

    /// A patch that cannot be applied to the object.
    pub(crate) fn patch_failed() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::plain(422, "Invalid", message).with_details(json!({}))
    }

    /// Field managers own what an apply wants to change.
    pub(crate) fn apply_conflict(message: String, causes: &[Value]) -> Self {
        Self::plain(409, "Conflict", message).with_details(json!({ "causes": causes }))
    }

    /// A resourceVersion that the server has not reached.
    pub(crate) fn too_large_version(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        let mut refusal = Self::plain(504, "Timeout", message)
            .with_cause("ResourceVersionTooLarge", "Too large resource version");
        refusal.retry_after(1);
        refusal
    }

    /// A refusal by code alone, as faults need it.
    pub(crate) fn by_code(code: u16, retry_after_seconds: Option<u64>) -> Self {
        let (reason, message) = match code {
            400 => ("BadRequest", "the request was refused"),
            401 => ("Unauthorized", "Unauthorized"),
            403 => ("Forbidden", "the request was refused"),
            404 => (
                "NotFound",
                "the server could not find the requested resource",
            ),
            409 => ("Conflict", "the object has been modified"),
            410 => ("Expired", "the resource version is too old"),
            422 => ("Invalid", "the request was refused"),
            429 => (
                "TooManyRequests",
                "the server has received too many requests and has asked us to try again later",
            ),
            500 => ("InternalError", "Internal error occurred"),
            503 => (
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            ),
            504 => (
                "Timeout",
                "the server was unable to return a response in the time allotted, but may still be processing the request",
            ),
            _ => ("Unknown", "the request failed"),
        };
        let mut refusal = Self::plain(code, reason, message);
        if let Some(seconds) = retry_after_seconds {
            refusal.retry_after(seconds);
        }
        refusal
    }

    fn retry_after(&mut self, seconds: u64) {
        if !self.details.is_object() {
            *self.details = json!({});
        }
        if let Some(map) = self.details.as_object_mut() {
            map.insert("retryAfterSeconds".to_owned(), json!(seconds));
        }
    }

    /// The Status object that goes over the wire.
    pub fn body(&self) -> Value {
        let mut body = Map::new();
        body.insert("kind".to_owned(), json!("Status"));
        body.insert("apiVersion".to_owned(), json!("v1"));
        body.insert("metadata".to_owned(), Value::clone(&self.metadata));
        body.insert("status".to_owned(), json!("Failure"));
        body.insert("message".to_owned(), json!(self.message));
        if !self.reason.is_empty() {
            body.insert("reason".to_owned(), json!(self.reason));
        }
        if !self.details.is_null() {
            body.insert("details".to_owned(), Value::clone(&self.details));
        }
        body.insert("code".to_owned(), json!(self.code));
        Value::Object(body)
    }
}

fn join_causes(causes: &[Cause]) -> String {
    let texts: Vec<String> = causes
        .iter()
        .map(|c| {
            if c.field.is_empty() {
                c.message.clone()
            } else {
                format!("{}: {}", c.field, c.message)
            }
        })
        .collect();
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

pub(crate) fn details(name: &str, group: &str, kind: &str) -> Value {
    let mut details = Map::new();
    for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
        if !value.is_empty() {
            details.insert(key.to_owned(), json!(value));
        }
    }
    Value::Object(details)
}
