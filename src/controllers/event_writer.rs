//! Writes Events about machine deployments, with the Events API that the process may use.

use std::sync::Arc;

use k8s_openapi::{
    api::core::v1::{Event as PlainEvent, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
    runtime::events::{Event, Recorder, Reporter},
};
use parking_lot::Mutex;

use crate::client::{clock::Clock, connect::Clients, tenant_status::TenantStatus};
use crate::fleet::{engagement::Engagement, events};
use crate::tenant::mode::Right;

const REPORTER: &str = "osm";
/// A recorder keeps what it has written for six minutes, and a worker cluster chooses the names and
/// the number of its machine deployments. After this number of Events, another recorder begins.
const EVENTS_PER_RECORDER: usize = 256;

/// Writes Events in the worker cluster.
pub struct EventWriter {
    group: Group,
    worker: Clients,
    clock: Clock,
    tenant_status: Arc<TenantStatus>,
}

/// The API group with which Events are written.
enum Group {
    /// `events.k8s.io`, which counts repeated Events in one object. The recorder is created with
    /// the first Event.
    Series(Mutex<Option<(Recorder, usize)>>),
    /// The core group. Each Event is an object of its own.
    Core,
}

impl EventWriter {
    /// Creates a writer of Events in the engaged cluster.
    pub fn new(engagement: &Engagement) -> Self {
        Self {
            group: if engagement.mode.has(Right::WriteEvents) {
                Group::Series(Mutex::default())
            } else {
                Group::Core
            },
            worker: engagement.worker.clone(),
            clock: engagement.shared.clock.clone(),
            tenant_status: Arc::clone(&engagement.tenant_status),
        }
    }

    /// Drops the recorder, because all is well. The next Event begins a new series.
    pub fn rest(&self) {
        if let Group::Series(recorder) = &self.group {
            recorder.lock().take();
        }
    }

    /// Writes an Event about an object, and records it for the fleet page. A failure is only
    /// logged: the status contains the same information.
    pub async fn publish(&self, event: &Event, about: &ObjectReference) {
        let sent = &self.tenant_status.sent_events;
        sent.record(self.clock.now(), event, about);
        if let Err(error) = self.create(event, about).await {
            events::log_failure(&error);
        }
    }

    async fn create(&self, event: &Event, about: &ObjectReference) -> Result<(), kube::Error> {
        match &self.group {
            Group::Series(recorder) => {
                let recorder = next(&mut recorder.lock(), || a_recorder(&self.worker.client()));
                recorder.publish(event, about).await
            }
            Group::Core => {
                let namespace = about.namespace.clone().unwrap_or_default();
                let api: Api<PlainEvent> = Api::namespaced(self.worker.client(), &namespace);
                let event = plain(event, about, &self.clock);
                api.create(&PostParams::default(), &event).await.map(drop)
            }
        }
    }
}

/// Returns the recorder of the next Event.
fn next(kept: &mut Option<(Recorder, usize)>, begin: impl FnOnce() -> Recorder) -> Recorder {
    kept.take_if(|(_, count)| *count >= EVENTS_PER_RECORDER);
    let (recorder, count) = kept.get_or_insert_with(|| (begin(), 0));
    *count += 1;
    recorder.clone()
}

fn a_recorder(worker: &Client) -> Recorder {
    let reporter = Reporter {
        controller: REPORTER.to_owned(),
        instance: None,
    };
    Recorder::new(worker.clone(), reporter)
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

#[cfg(test)]
mod tests {
    use fake_cluster::Cluster;

    use super::*;

    #[tokio::test]
    async fn a_recorder_ends_before_it_has_kept_many_events() {
        let client = Cluster::default().client();
        let (mut kept, mut count) = (None, 0);
        for _ in 0..=2 * EVENTS_PER_RECORDER {
            let begin = || {
                count += 1;
                a_recorder(&client)
            };
            drop(next(&mut kept, begin));
        }
        assert_eq!(count, 3);
    }
}
