//! Writes Events about machine deployments, of the kind that the rights of the process allow.

use k8s_openapi::{
    api::core::v1::{Event as PlainEvent, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
    runtime::events::{Event, Recorder, Reporter},
};

use crate::fleet::{clock::Clock, engagement::Engagement};
use crate::tenant::mode::{Mode, Right};

const REPORTER: &str = "osm";

/// Writes Events in the worker cluster.
pub enum EventWriter {
    /// Those of `events.k8s.io`: repeated ones are counted in one.
    Series(Recorder),
    /// Those of the core group, each for itself.
    Plain(Client, Clock),
}

impl EventWriter {
    /// Writes to the engaged cluster.
    pub fn new(engagement: &Engagement, mode: Mode) -> Self {
        let worker = engagement.worker.clone();
        if mode.has(Right::WriteEvents) {
            let reporter = Reporter {
                controller: REPORTER.to_owned(),
                instance: None,
            };
            Self::Series(Recorder::new(worker, reporter))
        } else {
            Self::Plain(worker, engagement.shared.clock.clone())
        }
    }

    /// Writes one Event about an object.
    pub async fn publish(&self, event: &Event, about: &ObjectReference) -> Result<(), kube::Error> {
        match self {
            Self::Series(recorder) => recorder.publish(event, about).await,
            Self::Plain(client, clock) => {
                let namespace = about.namespace.clone().unwrap_or_default();
                let api: Api<PlainEvent> = Api::namespaced(client.clone(), &namespace);
                let event = plain(event, about, clock);
                api.create(&PostParams::default(), &event).await.map(drop)
            }
        }
    }
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
        // Its variants have the words of the API.
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
