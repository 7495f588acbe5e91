//! Faults as data: what goes wrong, for which requests, and how often.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use serde_json::Value;

use crate::request::{Target, Verb};

/// Tells which watch events get lost.
pub type EventFilter = Arc<dyn Fn(&Value) -> bool + Send + Sync>;

/// Creates the chunks of a response body, which may have no end.
pub type Chunks = Arc<dyn Fn() -> Box<dyn Iterator<Item = Bytes> + Send> + Send + Sync>;

/// What goes wrong.
#[derive(Clone)]
pub enum Fault {
    /// The request is not executed; it is answered with 200 and these chunks, which end when all
    /// faults are cleared.
    Body(Chunks),
    /// The request is not executed; it is answered with this code.
    Status {
        /// The HTTP status code.
        code: u16,
        /// The `Retry-After` header.
        retry_after: Option<Duration>,
    },
    /// The request is executed, and then answered with this code as if it had failed.
    StatusAfter {
        /// The HTTP status code.
        code: u16,
    },
    /// The request is not executed and never answered.
    Hang,
    /// The request is executed, and never answered.
    HangAfter,
    /// The answer waits; the request is executed after the wait.
    Delay(Duration),
    /// A watch breaks off, in the middle of a line, after this many events.
    CloseMidWatch {
        /// Events that still go through.
        events: u64,
    },
    /// Objects come with a `metadata` that cannot be read.
    BadObject,
    /// Reads show the state as it was this many revisions ago.
    StaleList {
        /// How far back, as far as the log goes.
        revisions: u64,
    },
    /// No connection can be made (over TLS, where there is one already: it is reset).
    ConnectionRefused,
    /// The connection breaks before the request is executed.
    ConnectionReset,
    /// The connection breaks after the request is executed.
    ConnectionResetAfter,
    /// Watch events for which the filter says true are lost, silently.
    DropWatchEvents(EventFilter),
}

impl Fault {
    /// The request is not executed; it is answered with this code.
    pub fn status(code: u16) -> Self {
        Self::Status {
            code,
            retry_after: None,
        }
    }

    /// The request is not executed; the client is to ask again after this time.
    pub fn overloaded(retry_after: Duration) -> Self {
        Self::Status {
            code: 429,
            retry_after: Some(retry_after),
        }
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body(_) => f.write_str("Body"),
            Self::Status { code, retry_after } => f
                .debug_struct("Status")
                .field("code", code)
                .field("after", retry_after)
                .finish(),
            Self::StatusAfter { code } => f.debug_tuple("StatusAfter").field(code).finish(),
            Self::Hang => f.write_str("Hang"),
            Self::HangAfter => f.write_str("HangAfter"),
            Self::Delay(time) => f.debug_tuple("Delay").field(time).finish(),
            Self::CloseMidWatch { events } => f.debug_tuple("CloseMidWatch").field(events).finish(),
            Self::BadObject => f.write_str("BadObject"),
            Self::StaleList { revisions } => f.debug_tuple("StaleList").field(revisions).finish(),
            Self::ConnectionRefused => f.write_str("ConnectionRefused"),
            Self::ConnectionReset => f.write_str("ConnectionReset"),
            Self::ConnectionResetAfter => f.write_str("ConnectionResetAfter"),
            Self::DropWatchEvents(_) => f.write_str("DropWatchEvents"),
        }
    }
}

/// Which requests: every field that is set must match. The default matches all.
#[derive(Debug, Clone, Default)]
pub struct Matcher {
    /// One of these verbs; empty for all, also for paths that are no resources.
    pub verbs: Vec<Verb>,
    /// The plural resource, with its subresource after a slash if it has one.
    pub resource: Option<String>,
    /// The namespace of the request.
    pub namespace: Option<String>,
    /// The name of the object.
    pub name: Option<String>,
    /// The user.
    pub user: Option<String>,
    /// Only the n-th matching request, counted from 1.
    pub nth: Option<u64>,
    /// Only this share of the requests, from 0.0 to 1.0.
    pub probability: Option<f64>,
}

impl Matcher {
    /// All requests.
    pub fn any() -> Self {
        Self::default()
    }

    /// These verbs on this resource.
    pub fn on(verbs: &[Verb], resource: &str) -> Self {
        Self {
            verbs: verbs.to_vec(),
            resource: Some(resource.to_owned()),
            ..Self::default()
        }
    }

    pub(crate) fn fits(&self, verb: Verb, target: &Target, user: &str) -> bool {
        let is = |wanted: &Option<String>, actual: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == actual)
        };
        let resource = if target.subresource.is_empty() {
            target.resource.clone()
        } else {
            format!("{}/{}", target.resource, target.subresource)
        };
        (self.verbs.is_empty() || self.verbs.contains(&verb))
            && is(&self.resource, &resource)
            && is(&self.namespace, &target.namespace)
            && is(&self.name, &target.name)
            && is(&self.user, user)
    }
}

/// Names an injected fault, to clear it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultId(u64);

#[derive(Debug)]
struct Injected {
    id: u64,
    matcher: Matcher,
    fault: Fault,
    times_left: Option<u64>,
    seen: u64,
    random: u64,
}

impl Injected {
    /// Counts the request and tells whether it is hit.
    fn hits(&mut self) -> bool {
        if self.times_left == Some(0) {
            return false;
        }
        self.seen += 1;
        if self.matcher.nth.is_some_and(|nth| nth != self.seen) {
            return false;
        }
        if let Some(share) = self.matcher.probability
            && next_share(&mut self.random) >= share
        {
            return false;
        }
        if let Some(left) = &mut self.times_left {
            *left -= 1;
        }
        true
    }
}

/// The next number from 0.0 to 1.0 of a seeded row.
pub(crate) fn next_share(random: &mut u64) -> f64 {
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *random;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    // 20 bits are plenty for a probability and convert without loss.
    f64::from(u32::try_from(mixed >> 44).unwrap_or_default()) / f64::from(1_u32 << 20)
}

/// The faults of one cluster.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    injected: Vec<Injected>,
    next_id: u64,
    seed: u64,
    /// Lives until all faults are cleared.
    until_cleared: Arc<()>,
}

impl Faults {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }

    pub(crate) fn inject(&mut self, matcher: Matcher, fault: Fault, times: Option<u64>) -> FaultId {
        self.next_id += 1;
        let (id, random) = (self.next_id, self.seed.wrapping_add(self.next_id));
        self.injected.push(Injected {
            id,
            matcher,
            fault,
            times_left: times,
            seen: 0,
            random,
        });
        FaultId(id)
    }

    pub(crate) fn clear(&mut self, id: FaultId) {
        self.injected.retain(|injected| injected.id != id.0);
    }

    pub(crate) fn clear_all(&mut self) {
        self.injected.clear();
        self.until_cleared = Arc::default();
    }

    /// Returns what is gone when all faults are cleared: a body without end ends then.
    pub(crate) fn until_cleared(&self) -> Weak<()> {
        Arc::downgrade(&self.until_cleared)
    }

    /// The faults that hit this request, in the order of their injection.
    pub(crate) fn hit(&mut self, verb: Verb, target: &Target, user: &str) -> Vec<Fault> {
        self.injected
            .iter_mut()
            .filter(|injected| !matches!(injected.fault, Fault::DropWatchEvents(_)))
            .filter(|injected| injected.matcher.fits(verb, target, user))
            .filter_map(|injected| injected.hits().then(|| injected.fault.clone()))
            .collect()
    }

    /// Whether an event of this watch gets lost.
    pub(crate) fn drops(&mut self, target: &Target, user: &str, event: &Value) -> bool {
        self.injected
            .iter_mut()
            .any(|injected| match &injected.fault {
                Fault::DropWatchEvents(filter) => {
                    let lost = injected.matcher.fits(Verb::Watch, target, user) && filter(event);
                    lost && injected.hits()
                }
                _ => false,
            })
    }
}
