//! Writes Events about machine deployments, with the Events API that the process may use.

use k8s_openapi::{
    api::core::v1::{Event as PlainEvent, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api,
    api::{ObjectMeta, PostParams},
    runtime::events::{Event, Recorder, Reporter},
};
use parking_lot::Mutex;

use crate::client::{clock::Clock, connect::Clients};
use crate::fleet::{engagement::Engagement, events};
use crate::tenant::mode::{Mode, Right};

const REPORTER: &str = "osm";

/// Writes Events in the worker cluster.
pub enum EventWriter {
    /// Uses `events.k8s.io`, which counts repeated Events in one object. The recorder is created
    /// with the first Event.
    Series(Clients, Mutex<Option<Recorder>>),
    /// Uses the core API group. Each Event is an object of its own.
    Plain(Clients, Clock),
}

impl EventWriter {
    /// Creates a writer of Events in the engaged cluster.
    pub fn new(engagement: &Engagement, mode: Mode) -> Self {
        let worker = engagement.worker.clone();
        if mode.has(Right::WriteEvents) {
            Self::Series(worker, Mutex::default())
        } else {
            Self::Plain(worker, engagement.shared.clock.clone())
        }
    }

    /// Drops the recorder, because all is well. The next Event begins a new series.
    pub fn rest(&self) {
        if let Self::Series(_, recorder) = self {
            recorder.lock().take();
        }
    }

    /// Writes an Event about an object. A failure is only logged: the status contains the same
    /// information.
    pub async fn publish(&self, event: &Event, about: &ObjectReference) {
        if let Err(error) = self.create(event, about).await {
            events::log_failure(&error);
        }
    }

    async fn create(&self, event: &Event, about: &ObjectReference) -> Result<(), kube::Error> {
        match self {
            Self::Series(worker, recorder) => {
                let recorder = recorder
                    .lock()
                    .get_or_insert_with(|| a_recorder(worker))
                    .clone();
                recorder.publish(event, about).await
            }
            Self::Plain(worker, clock) => {
                let namespace = about.namespace.clone().unwrap_or_default();
                let api: Api<PlainEvent> = Api::namespaced(worker.client(), &namespace);
                let event = plain(event, about, clock);
                api.create(&PostParams::default(), &event).await.map(drop)
            }
        }
    }
}

fn a_recorder(worker: &Clients) -> Recorder {
    let reporter = Reporter {
        controller: REPORTER.to_owned(),
        instance: None,
    };
    Recorder::new(worker.client(), reporter)
}

fn plain(event: &Event, about: &ObjectReference, clock: &Clock) -> PlainEvent {
    let name = about.name.as_deref().unwrap_or_default();
    let now = Some(Time(clock.now()));
    PlainEvent {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}.")),
            namespace: about.namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: about.clone(),
        reason: Some(event.reason.clone()),
        message: event.note.clone(),
        // The names of its variants are the values in the API.
        type_: Some(format!("{:?}", event.type_)),
        source: Some(EventSource {
            component: Some(REPORTER.to_owned()),
            host: None,
        }),
        first_timestamp: now.clone(),
        last_timestamp: now,
        count: Some(1),
        ..PlainEvent::default()
    }
}
