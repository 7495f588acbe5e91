//! Records since when machine deployments are due, and why. This is for traces and metrics only: no
//! reconcile depends on it.

use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};

use kube::runtime::{controller::Action, reflector::ObjectRef};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::machine_deployment::MachineDeployment;
use crate::telemetry::metrics::{Metrics, Trigger};

type Reference = ObjectRef<MachineDeployment>;

/// The due machine deployments of one tenant. An entry is removed when its reconcile begins, or
/// when the machine deployment is gone.
#[derive(Debug, Default)]
pub struct QueueLatency(Mutex<HashMap<Reference, Since>>);

#[derive(Clone, Copy, Debug)]
struct Since {
    at: Instant,
    trigger: Trigger,
}

impl QueueLatency {
    /// Records that a machine deployment is due, unless it already is.
    pub fn now(&self, reference: &Reference, trigger: Trigger) {
        let now = Since {
            at: Instant::now(),
            trigger,
        };
        match self.0.lock().entry(reference.clone()) {
            Entry::Vacant(entry) => drop(entry.insert(now)),
            Entry::Occupied(mut entry) if entry.get().at > now.at => drop(entry.insert(now)),
            Entry::Occupied(_) => {}
        }
    }

    /// Records when a machine deployment will be due, unless that is already recorded. Returns the
    /// action that requeues it.
    pub fn later(&self, reference: &Reference, trigger: Trigger, after: Duration) -> Action {
        let at = Instant::now() + after;
        let since = Since { at, trigger };
        self.0.lock().entry(reference.clone()).or_insert(since);
        Action::requeue(after)
    }

    /// Begins a reconcile: records its trigger in the metrics and in the span, and returns how long
    /// it was due.
    pub fn begin(&self, reference: &Reference, metrics: &Metrics) -> Duration {
        let since = self.0.lock().remove(reference);
        let trigger = since.map_or(Trigger::Other, |since| since.trigger);
        let waited = since.map(|since| since.at.elapsed()).unwrap_or_default();
        metrics.triggered(trigger);
        let span = tracing::Span::current();
        span.record("trigger", trigger.as_str());
        span.record("queue_wait_ms", waited.as_secs_f64() * 1e3);
        waited
    }

    /// Removes a machine deployment that is gone.
    pub fn gone(&self, name: &str, namespace: Option<&str>) {
        let reference = ObjectRef::new(name);
        self.0.lock().remove(&match namespace {
            Some(namespace) => reference.within(namespace),
            None => reference,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference() -> Reference {
        ObjectRef::new("a").within("kube-system")
    }

    fn counted(metrics: &Metrics, trigger: &str) -> bool {
        let line = format!("osm_reconcile_triggers_total{{trigger=\"{trigger}\"}} 1");
        metrics.encode().contains(&line)
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_of_several_triggers_counts_and_so_does_its_wait() {
        let (due, metrics) = (QueueLatency::default(), Metrics::new());
        due.now(&reference(), Trigger::Profile);
        tokio::time::advance(Duration::from_secs(2)).await;
        due.now(&reference(), Trigger::Change);
        tokio::time::advance(Duration::from_secs(1)).await;
        let waited = due.begin(&reference(), &metrics);
        assert_eq!(waited, Duration::from_secs(3));
        assert!(counted(&metrics, "profile"), "{}", metrics.encode());
        assert!(due.0.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_later_waits_from_then_on_and_a_change_comes_before_it() {
        let (due, metrics) = (QueueLatency::default(), Metrics::new());
        due.later(&reference(), Trigger::Time, Duration::from_mins(1));
        tokio::time::advance(Duration::from_secs(61)).await;
        let waited = due.begin(&reference(), &metrics);
        assert_eq!(waited, Duration::from_secs(1));
        assert!(counted(&metrics, "time"));
        due.later(&reference(), Trigger::Retry, Duration::from_mins(1));
        due.now(&reference(), Trigger::Made);
        // The controller's queue keeps the earliest time, and so does this.
        due.later(&reference(), Trigger::Retry, Duration::from_secs(1));
        assert_eq!(due.begin(&reference(), &metrics), Duration::ZERO);
        assert!(counted(&metrics, "made"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_gone_is_not_kept() {
        let due = QueueLatency::default();
        due.now(&reference(), Trigger::Change);
        due.gone("a", Some("kube-system"));
        assert!(due.0.lock().is_empty());
    }
}
