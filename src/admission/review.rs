//! An `AdmissionReview` of `admission.k8s.io/v1`, as it comes and as it goes.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tracing::Span;

use crate::api::profile::null_is_absent;
use crate::rules::admission::{Answer, Asked, Operation};

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// The API server hands on 256 characters of a warning and 4,096 of all, at the least.
const WARNING_CHARACTERS_MAX: usize = 256;
const WARNINGS_MAX: usize = 10;

/// A request of the API server.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Review {
    api_version: String,
    kind: String,
    request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    operation: Verb,
    #[serde(default)]
    kind: Kind,
    #[serde(default, deserialize_with = "null_is_absent")]
    namespace: String,
    #[serde(default, deserialize_with = "null_is_absent")]
    name: String,
    #[serde(default)]
    object: Json,
    #[serde(default)]
    old_object: Json,
}

#[derive(Default, Deserialize)]
struct Kind {
    #[serde(default)]
    kind: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Verb {
    Create,
    Update,
    Delete,
    Connect,
}

/// The body is no review. What stands in it is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is no AdmissionReview of admission.k8s.io/v1")]
pub(super) struct NotAReview;

impl Review {
    /// Reads a body.
    pub(super) fn read(body: &[u8]) -> Result<Self, NotAReview> {
        // What is skipped, too, must be text.
        let text = str::from_utf8(body).map_err(|_| NotAReview)?;
        let review: Self = serde_json::from_str(text).map_err(|_| NotAReview)?;
        let is_one = review.api_version == API_VERSION && review.kind == KIND;
        if is_one { Ok(review) } else { Err(NotAReview) }
    }

    /// Returns the object to validate.
    pub(super) fn asked(&self) -> Asked<'_> {
        let request = &self.request;
        Asked {
            uid: &request.uid,
            operation: match request.operation {
                Verb::Create => Operation::Create,
                Verb::Update => Operation::Update,
                Verb::Delete => Operation::Delete,
                Verb::Connect => Operation::Connect,
            },
            object: &request.object,
            old_object: &request.old_object,
        }
    }

    /// Tells a span what it is about: nothing of the object but its name.
    pub(super) fn record(&self, span: &Span) {
        let request = &self.request;
        span.record("osm.request.verb", self.asked().operation.as_str());
        for (field, text) in [
            ("osm.request.kind", &request.kind.kind),
            ("namespace", &request.namespace),
            ("name", &request.name),
        ] {
            span.record(field, one_line(text));
        }
    }

    /// The review that goes back.
    pub(super) fn answered(&self, answer: &Answer, remarks: Vec<String>) -> Json {
        let uid = &self.request.uid;
        let mut response = match answer {
            Answer::Refused { code, message } => json!({
                "uid": uid,
                "allowed": false,
                "status": {
                    "status": "Failure",
                    "reason": reason(*code),
                    "code": code,
                    "message": message,
                },
            }),
            Answer::Allowed { message, patch } => {
                let mut response = json!({"uid": uid, "allowed": true});
                if let Some(message) = message {
                    let status = json!({"code": 200, "message": message});
                    put(&mut response, "status", status);
                }
                if !patch.is_empty() {
                    let patch = serde_json::to_vec(patch).unwrap_or_default();
                    put(&mut response, "patchType", json!("JSONPatch"));
                    put(&mut response, "patch", json!(STANDARD.encode(patch)));
                }
                response
            }
        };
        let warnings = warnings(remarks);
        if !warnings.is_empty() {
            put(&mut response, "warnings", json!(warnings));
        }
        json!({"apiVersion": API_VERSION, "kind": KIND, "response": response})
    }
}

fn put(object: &mut Json, key: &str, value: Json) {
    if let Json::Object(fields) = object {
        fields.insert(key.to_owned(), value);
    }
}

const fn reason(code: u16) -> &'static str {
    match code {
        403 => "Forbidden",
        422 => "Invalid",
        _ => "BadRequest",
    }
}

/// Returns the warnings that the API server passes on: one line each, not too long, and not too
/// many.
fn warnings(remarks: Vec<String>) -> Vec<String> {
    let more = remarks.len().saturating_sub(WARNINGS_MAX);
    let mut warnings: Vec<String> = remarks
        .into_iter()
        .take(WARNINGS_MAX)
        .map(|remark| one_line(&remark))
        .collect();
    if more > 0 {
        warnings.push(format!("{more} more; `osm lint` lists them all"));
    }
    warnings
}

fn one_line(text: &str) -> String {
    let plain = |character: char| {
        if character.is_control() {
            ' '
        } else {
            character
        }
    };
    if text.chars().count() <= WARNING_CHARACTERS_MAX {
        return text.chars().map(plain).collect();
    }
    let kept = text.chars().take(WARNING_CHARACTERS_MAX - 1);
    kept.map(plain).chain(['…']).collect()
}
