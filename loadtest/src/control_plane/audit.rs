//! The API server's own account of what it was asked: the proof of what a client really sends,
//! whatever the client believes. Bodies are not recorded.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::Deserialize;

pub use k8s_openapi::jiff::Timestamp;

/// Everything but the API server's requests to itself and our questions whether it is ready.
pub(super) const POLICY: &str = r#"apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: ["RequestReceived"]
rules:
- level: None
  users: ["system:apiserver"]
- level: None
  nonResourceURLs: ["/readyz*", "/livez*", "/healthz*"]
- level: Metadata
"#;

/// How far an answer has come.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum AuditStage {
    /// A watch, or another long request, has begun to be answered.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// The API server failed while it answered.
    Panic,
}

/// One request, as the API server saw it. Text that does not apply is empty.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Line")]
pub struct AuditEvent {
    /// How far the answer has come.
    pub stage: AuditStage,
    /// The Kubernetes verb: `get`, `list`, `watch`, `create`, `patch`, …
    pub verb: String,
    /// The path and the query.
    pub request_uri: String,
    /// Who asked.
    pub user: String,
    /// What the client calls itself.
    pub user_agent: String,
    /// The API group; empty for the core group.
    pub api_group: String,
    /// The resource, in plural.
    pub resource: String,
    /// The subresource, such as `status`.
    pub subresource: String,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// When the request arrived.
    pub received: Timestamp,
    /// When the answer reached this stage.
    pub answered: Timestamp,
}

/// All events behind an offset, and the offset behind them. A last line that is still being written
/// is left for the next call.
pub(super) fn read_from(path: &Path, offset: u64) -> io::Result<(Vec<AuditEvent>, u64)> {
    let mut text = String::new();
    match File::open(path) {
        Ok(mut file) => {
            file.seek(SeekFrom::Start(offset))?;
            file.read_to_string(&mut text)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut events = Vec::new();
    let mut read = 0;
    for line in text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
    {
        events.push(serde_json::from_str(line)?);
        read += line.len();
    }
    Ok((events, offset + u64::try_from(read).unwrap_or_default()))
}

/// The shape of `audit.k8s.io/v1`, as far as it is of use.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: AuditStage,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: Object,
    #[serde(default)]
    response_status: Status,
    request_received_timestamp: MicroTime,
    stage_timestamp: MicroTime,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Object {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

impl From<Line> for AuditEvent {
    fn from(line: Line) -> Self {
        Self {
            stage: line.stage,
            verb: line.verb,
            request_uri: line.request_uri,
            user: line.user.username,
            user_agent: line.user_agent,
            api_group: line.object_ref.api_group,
            resource: line.object_ref.resource,
            subresource: line.object_ref.subresource,
            namespace: line.object_ref.namespace,
            name: line.object_ref.name,
            code: line.response_status.code,
            received: line.request_received_timestamp.0,
            answered: line.stage_timestamp.0,
        }
    }
}
