//! The last Events that were sent about a tenant. They are kept so that an operator sees them while
//! the API server that has them does not answer.

use std::collections::VecDeque;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};
use parking_lot::Mutex;

use crate::tenant::summary::{Rfc3339Time, SentEvent};

/// How many are kept. A note has at most a kibibyte.
const EVENTS_MAX: usize = 10;

/// The last Events, newest first.
#[derive(Debug, Default)]
pub struct SentEvents(Mutex<VecDeque<SentEvent>>);

impl SentEvents {
    /// Records an Event that was sent now. One that repeats the newest replaces it.
    pub fn record(&self, now: Timestamp, event: &Event, about: &ObjectReference) {
        let field = |text: &Option<String>| text.clone().unwrap_or_default();
        let kind = field(&about.kind);
        let sent = SentEvent {
            at: Rfc3339Time(now),
            is_warning: matches!(event.type_, EventType::Warning),
            reason: event.reason.clone(),
            about: format!("{kind} {}/{}", field(&about.namespace), field(&about.name)),
            note: event.note.clone().unwrap_or_default(),
        };
        let mut events = self.0.lock();
        let is_repeated = events.front().is_some_and(|last| {
            (&last.reason, &last.about, &last.note) == (&sent.reason, &sent.about, &sent.note)
        });
        if is_repeated {
            events.pop_front();
        }
        events.push_front(sent);
        events.truncate(EVENTS_MAX);
    }

    /// Returns them, newest first.
    pub fn list(&self) -> Vec<SentEvent> {
        self.0.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ten_are_kept_and_a_repetition_is_one() {
        let events = SentEvents::default();
        let send = |second: i64, note: &str| {
            let event = Event {
                type_: EventType::Warning,
                reason: "SomeNotServed".to_owned(),
                note: Some(note.to_owned()),
                action: "Serve".to_owned(),
                secondary: None,
            };
            let about = ObjectReference {
                kind: Some("WorkerCluster".to_owned()),
                namespace: Some("tenant-berlin".to_owned()),
                name: Some("berlin".to_owned()),
                ..ObjectReference::default()
            };
            events.record(Timestamp::from_second(second).unwrap(), &event, &about);
        };
        for second in 0..12 {
            send(second, &format!("note {second}"));
        }
        send(12, "note 11");
        let listed = events.list();
        assert_eq!(listed.len(), EVENTS_MAX);
        let notes: Vec<&str> = listed.iter().map(|it| it.note.as_str()).collect();
        assert_eq!(
            (notes[0], notes[1], notes[9]),
            ("note 11", "note 10", "note 2")
        );
        assert_eq!(listed[0].at.0.as_second(), 12);
        assert_eq!(listed[0].about, "WorkerCluster tenant-berlin/berlin");
    }
}
