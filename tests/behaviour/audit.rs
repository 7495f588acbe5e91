//! Requests as the servers saw them: the proof of what the manager did, whatever it believes.

use fake_cluster::AuditEntry;
use jiff::Timestamp;
use loadtest::control_plane::AuditEvent;
use tokio::time::Instant;

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Who asked.
    pub user: String,
    /// What the client calls itself.
    pub user_agent: String,
    /// `get`, `create`, …
    pub verb: String,
    /// The plural, with the subresource after a slash if there is one.
    pub resource: String,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The status of the answer.
    pub code: u16,
    /// When it arrived.
    pub received: Timestamp,
    /// When it was answered.
    pub answered: Timestamp,
}

impl Request {
    /// Whether it could change something: refused attempts count, too.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch" | "head")
    }

    /// Whether it is this verb on this object.
    pub fn is(&self, verb: &str, resource: &str, name: &str) -> bool {
        (
            self.verb.as_str(),
            self.resource.as_str(),
            self.name.as_str(),
        ) == (verb, resource, name)
    }
}

impl From<AuditEvent> for Request {
    fn from(event: AuditEvent) -> Self {
        Self {
            user: event.user,
            user_agent: event.user_agent,
            verb: event.verb,
            resource: full_resource(&event.resource, &event.subresource),
            namespace: event.namespace,
            name: event.name,
            code: event.code,
            received: event.received,
            answered: event.answered,
        }
    }
}

/// Ties the times of a cluster in memory to the time of day.
#[derive(Clone, Copy, Debug)]
pub struct Anchor {
    instant: Instant,
    time: Timestamp,
}

impl Anchor {
    /// Now is now.
    pub fn now() -> Self {
        Self {
            instant: Instant::now(),
            time: Timestamp::now(),
        }
    }

    /// The request; a cluster in memory executes it at once, so that it has one time only.
    pub fn request(self, entry: AuditEntry) -> Request {
        let since = entry.at.duration_since(self.instant);
        let at = self
            .time
            .saturating_add(since)
            .expect("a duration of today");
        Request {
            user: entry.user,
            user_agent: entry.user_agent,
            verb: entry.verb.as_str().to_owned(),
            resource: full_resource(&entry.target.resource, &entry.target.subresource),
            namespace: entry.target.namespace,
            name: entry.target.name,
            code: entry.code,
            received: at,
            answered: at,
        }
    }
}

fn full_resource(resource: &str, subresource: &str) -> String {
    if subresource.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}/{subresource}")
    }
}

/// The requests as a text, for messages.
pub fn told(requests: &[Request]) -> String {
    requests.iter().fold(String::new(), |text, it| {
        format!(
            "{text}{} {} {} {}/{} -> {}\n",
            it.received, it.verb, it.resource, it.namespace, it.name, it.code
        )
    })
}
