//! Events about a tenant, in its namespace of the management cluster.

use kube::{
    Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use crate::api::{
    reason::{Reason, Severity},
    worker_cluster::WorkerCluster,
};
use crate::client::{clock::Clock, connect::Clients, tenant_status::TenantStatus};
use crate::telemetry::chain::chain;

/// The API server takes 1,024 bytes of a note; a trace's id may follow.
const NOTE_BYTES_MAX: usize = 960;

/// What an Event is about.
#[derive(Clone, Copy, Debug)]
pub struct Occurrence<'a> {
    /// The action that succeeded or failed.
    pub action: &'static str,
    /// The machine-readable CamelCase reason.
    pub reason: Reason,
    /// A sentence for people, without secrets.
    pub note: &'a str,
}

/// Creates an Event about a WorkerCluster, and records it for the fleet page. It may get lost: a
/// condition contains the same message.
pub async fn publish(
    management: &Clients,
    (tenant_status, clock): (&TenantStatus, &Clock),
    (own, occurrence): (&WorkerCluster, Occurrence<'_>),
) {
    let reporter = Reporter {
        controller: "osm".to_owned(),
        instance: None,
    };
    let recorder = Recorder::new(management.client(), reporter);
    let event = event(occurrence.action, occurrence.reason, cut(occurrence.note));
    let about = own.object_ref(&());
    tenant_status
        .sent_events
        .record(clock.now(), &event, &about);
    if let Err(error) = recorder.publish(&event, &about).await {
        log_failure(&error);
    }
}

/// Returns an Event. Its type follows from the reason's severity.
pub fn event(action: &str, reason: Reason, note: String) -> Event {
    Event {
        type_: match reason.severity() {
            Severity::Normal | Severity::Pending => EventType::Normal,
            Severity::Warning | Severity::Error => EventType::Warning,
        },
        reason: reason.to_string(),
        note: Some(note),
        action: action.to_owned(),
        secondary: None,
    }
}

/// Logs that an Event could not be written.
pub fn log_failure(error: &kube::Error) {
    tracing::debug!(error = %chain(error), "cannot write an Event");
}

/// Cuts a note to the length that an Event accepts.
pub fn cut(note: &str) -> String {
    let end = note.floor_char_boundary(NOTE_BYTES_MAX);
    note.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_between_two_characters() {
        assert_eq!(cut("short"), "short");
        let long = format!("x{}", "ü".repeat(600));
        assert_eq!(cut(&long), format!("x{}", "ü".repeat(479)));
    }
}
