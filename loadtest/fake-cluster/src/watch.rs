//! Watches: where one starts, which events it sees, bookmarks, and how it ends. Each watch reads
//! the store's log from its own place, so a slow reader holds back nobody and buffers nothing.

use std::{
    collections::VecDeque,
    sync::{Arc, PoisonError},
};

use bytes::Bytes;
use futures::Stream;
use http_body::Frame;
use serde_json::{Value, json};
use tokio::{
    sync::watch,
    time::{Duration, Instant, sleep_until},
};

use crate::{
    cluster::Inner,
    kinds::Kind,
    meta::set,
    read::{self, Form},
    request::{Call, Target},
    selector::{Selector, in_scope},
    state::State,
    status::Refusal,
    store::Change,
};

/// Any error that a body or a connection can end with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The real server picks a time between 30 and 60 minutes when the client names none.
const TIMEOUT_DEFAULT: Duration = Duration::from_mins(30);

/// A watch that was accepted but does not run yet.
#[derive(Debug)]
pub(crate) struct WatchPlan {
    kind: Arc<Kind>,
    target: Target,
    namespace: String,
    selector: Selector,
    form: Form,
    cursor: u64,
    first: VecDeque<Value>,
    bookmarks: bool,
    timeout: Duration,
    ends_at_once: bool,
}

impl State {
    pub(crate) fn plan_watch(&self, call: &Call, kind: &Arc<Kind>) -> Result<WatchPlan, Refusal> {
        let asked = read::version(call)?;
        let initial = call.option("sendInitialEvents");
        let seconds: u64 = call.option("timeoutSeconds").parse().unwrap_or(0);
        let mut plan = WatchPlan {
            kind: Arc::clone(kind),
            target: call.target.clone(),
            namespace: if kind.namespaced {
                call.target.namespace.clone()
            } else {
                String::new()
            },
            selector: Selector::read(call, kind)?,
            form: Form::of(&call.accept, self.timestamp())?,
            cursor: asked.unwrap_or_default(),
            first: VecDeque::new(),
            bookmarks: call.flag("allowWatchBookmarks"),
            timeout: if seconds == 0 {
                TIMEOUT_DEFAULT
            } else {
                Duration::from_secs(seconds)
            },
            ends_at_once: false,
        };
        let from_now = asked.unwrap_or_default() == 0;
        if initial == "true" || (from_now && initial.is_empty()) {
            self.add_initial_events(&mut plan);
            if plan.bookmarks {
                let mut bookmark = plan.bookmark();
                let key = "k8s.io/initial-events-end";
                set(
                    &mut bookmark,
                    &["object", "metadata", "annotations", key],
                    json!("true"),
                );
                plan.first.push_back(bookmark);
            }
        } else if from_now {
            plan.cursor = self.store.revision();
        } else if plan.cursor < self.store.compacted() {
            let message = format!(
                "too old resource version: {} ({})",
                plan.cursor,
                self.store.compacted()
            );
            plan.first
                .push_back(error_event(&Refusal::expired(message)));
            plan.ends_at_once = true;
        }
        Ok(plan)
    }

    fn add_initial_events(&self, plan: &mut WatchPlan) {
        plan.cursor = self.store.revision();
        for (_, object) in self.store.all(&plan.kind.storage) {
            if in_scope(object, &plan.namespace, &plan.selector) {
                let shown = read::show(&plan.kind, object, plan.form);
                plan.first
                    .push_back(json!({ "type": "ADDED", "object": shown }));
            }
        }
    }
}

impl WatchPlan {
    fn bookmark(&self) -> Value {
        let (api_version, kind) = match self.form {
            Form::Metadata => ("meta.k8s.io/v1".to_owned(), "PartialObjectMetadata"),
            _ => (self.kind.api_version(), self.kind.kind.as_str()),
        };
        json!({ "type": "BOOKMARK", "object": {
            "kind": kind,
            "apiVersion": api_version,
            "metadata": { "resourceVersion": self.cursor.to_string() },
        } })
    }

    /// The event that a change is for this watch, if any.
    fn event(&self, change: &Change) -> Option<Value> {
        let sees = |object: &Value| in_scope(object, &self.namespace, &self.selector);
        let before = change.before.as_deref().is_some_and(sees);
        let after = !change.deleted && sees(&change.object);
        let (kind, object) = match (before, after) {
            (false, true) => ("ADDED", Arc::clone(&change.object)),
            (true, true) => ("MODIFIED", Arc::clone(&change.object)),
            (true, false) => ("DELETED", last_seen(change)),
            (false, false) => return None,
        };
        Some(json!({ "type": kind, "object": read::show(&self.kind, &object, self.form) }))
    }
}

/// What leaves the view of a watch is shown as it last was in it, with the version of its leaving.
fn last_seen(change: &Change) -> Arc<Value> {
    match (&change.before, change.deleted) {
        (Some(before), false) => {
            let mut last = Value::clone(before);
            let version = json!(change.revision.to_string());
            set(&mut last, &["metadata", "resourceVersion"], version);
            Arc::new(last)
        }
        _ => Arc::clone(&change.object),
    }
}

fn error_event(refusal: &Refusal) -> Value {
    json!({ "type": "ERROR", "object": refusal.body() })
}

/// How a running watch is disturbed by faults.
pub(crate) struct WatchFaults {
    pub events_left: Option<u64>,
    pub bad_objects: bool,
}

/// A running watch.
pub(crate) struct Watching {
    plan: WatchPlan,
    inner: Arc<Inner>,
    user: String,
    faults: WatchFaults,
    changed: watch::Receiver<u64>,
    closing: watch::Receiver<u64>,
    deadline: Instant,
    next_bookmark: Instant,
    broken: bool,
    done: bool,
}

impl Watching {
    pub(crate) fn start(
        plan: WatchPlan,
        inner: &Arc<Inner>,
        user: String,
        faults: WatchFaults,
    ) -> impl Stream<Item = Result<Frame<Bytes>, BoxError>> + Send + use<> {
        let interval = inner.lock().options.bookmark_interval;
        let watching = Self {
            deadline: Instant::now() + plan.timeout,
            next_bookmark: next_bookmark(interval, Instant::now() + plan.timeout),
            done: plan.ends_at_once,
            changed: inner.changed.subscribe(),
            closing: inner.closing.subscribe(),
            inner: Arc::clone(inner),
            broken: false,
            plan,
            user,
            faults,
        };
        futures::stream::unfold(watching, Self::next)
    }

    async fn next(mut self) -> Option<(Result<Frame<Bytes>, BoxError>, Self)> {
        loop {
            if self.broken {
                self.done = true;
                self.broken = false;
                self.plan.first.clear();
                let error = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
                return Some((Err(error.into()), self));
            }
            if let Some(event) = self.plan.first.pop_front() {
                let bytes = self.line(event);
                return Some((Ok(Frame::data(bytes)), self));
            }
            if self.done {
                return None;
            }
            self.changed.borrow_and_update();
            self.collect();
            if self.plan.first.is_empty() {
                self.wait().await;
            }
        }
    }

    /// The event as a line, or half a line where the connection is to break.
    fn line(&mut self, mut event: Value) -> Bytes {
        if self.faults.bad_objects {
            set(
                &mut event,
                &["object", "metadata", "labels"],
                json!("not a map"),
            );
        }
        let mut line = event.to_string();
        line.push('\n');
        match &mut self.faults.events_left {
            Some(0) => {
                self.broken = true;
                line.truncate(line.len() / 2);
            }
            Some(left) => *left -= 1,
            None => {}
        }
        Bytes::from(line)
    }

    fn collect(&mut self) {
        let mut state = self
            .inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if self.plan.cursor < state.store.compacted() && !self.caught_up(&state) {
            let message = format!(
                "too old resource version: {} ({})",
                self.plan.cursor,
                state.store.compacted()
            );
            self.plan
                .first
                .push_back(error_event(&Refusal::expired(message)));
            self.done = true;
            return;
        }
        let events: Vec<Value> = state
            .store
            .changes_after(&self.plan.kind.storage, self.plan.cursor)
            .filter_map(|change| self.plan.event(change))
            .collect();
        let kept: VecDeque<Value> = events
            .into_iter()
            .filter(|event| {
                let object = event.get("object").unwrap_or(event);
                !state.faults.drops(&self.plan.target, &self.user, object)
            })
            .collect();
        self.plan.first.extend(kept);
        self.plan.cursor = self.plan.cursor.max(state.store.revision());
    }

    /// A running watch that has missed nothing lives through a compaction.
    fn caught_up(&self, state: &State) -> bool {
        state
            .store
            .log()
            .next()
            .is_none_or(|oldest| oldest.revision <= self.plan.cursor + 1)
    }

    async fn wait(&mut self) {
        let bookmarks = self.plan.bookmarks;
        // Biased, so that a cut wins over news.
        tokio::select! {
            biased;
            _ = self.closing.changed() => self.broken = true,
            changed = self.changed.changed() => self.done |= changed.is_err(),
            () = sleep_until(self.deadline) => {
                self.done = true;
            }
            () = sleep_until(self.next_bookmark), if bookmarks => {
                let interval = self.inner.lock().options.bookmark_interval;
                self.next_bookmark = next_bookmark(interval, self.deadline);
                self.plan.first.push_back(self.plan.bookmark());
            }
        }
    }
}

/// One object that a client cannot read, for the fault of that name.
pub(crate) fn spoil(answer: &mut Value) {
    match answer.get_mut("items").and_then(Value::as_array_mut) {
        Some(items) => {
            for item in items {
                set(item, &["metadata", "labels"], json!("not a map"));
            }
        }
        None => set(answer, &["metadata", "labels"], json!("not a map")),
    }
}

/// The last bookmark comes two seconds before the end, as on the real server.
fn next_bookmark(interval: Duration, deadline: Instant) -> Instant {
    let now = Instant::now();
    let regular = now + interval;
    match deadline.checked_sub(Duration::from_secs(2)) {
        Some(last) if last > now && last < regular => last,
        _ => regular,
    }
}
