//! Records since when machine deployments are due, and why, and since when they are not served.
//! This is for traces and metrics only: no reconcile depends on it.

use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};

use kube::runtime::{controller::Action, reflector::ObjectRef};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::api::machine_deployment::MachineDeployment;
use crate::client::permits::Priority;
use crate::telemetry::metrics::{Metrics, Pending, Trigger};

type Reference = ObjectRef<MachineDeployment>;

/// The machine deployments of one tenant that are due or not served.
#[derive(Debug, Default)]
pub struct QueueLatency {
    /// An entry is removed when its reconcile begins, or when the machine deployment is gone.
    due: Mutex<HashMap<Reference, Since>>,
    /// An entry is removed when the machine deployment is served, waits for others, or is gone.
    unserved: Mutex<HashMap<Reference, Pending>>,
}

#[derive(Clone, Copy, Debug)]
struct Since {
    at: Instant,
    trigger: Trigger,
}

/// What a reconcile means for how long a machine deployment waits until it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something was missing, and was written.
    Served,
    /// Nothing was missing.
    Current,
    /// It failed or is not finished, and is retried.
    Retried,
    /// It is not to be served, or cannot be before somebody else has acted.
    Excluded,
}

impl QueueLatency {
    /// Forgets machine deployments that do not exist any more.
    pub fn keep(&self, exists: impl Fn(&Reference) -> bool) {
        self.due.lock().retain(|reference, _| exists(reference));
        self.unserved
            .lock()
            .retain(|reference, _| exists(reference));
    }

    /// Records that a machine deployment is due, unless it already is.
    pub fn now(&self, reference: &Reference, trigger: Trigger) {
        let now = Since {
            at: Instant::now(),
            trigger,
        };
        match self.due.lock().entry(reference.clone()) {
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
        let mut due = self.due.lock();
        due.entry(reference.clone()).or_insert(since);
        Action::requeue(after)
    }

    /// Begins a reconcile: records its trigger in the metrics and in the span, and returns how long
    /// it was due.
    pub fn begin(&self, reference: &Reference, metrics: &Metrics) -> Duration {
        let since = self.due.lock().remove(reference);
        let trigger = since.map_or(Trigger::Other, |since| since.trigger);
        let waited = since.map(|since| since.at.elapsed()).unwrap_or_default();
        metrics.triggered(trigger);
        let span = tracing::Span::current();
        span.record("trigger", trigger.as_str());
        span.record("queue_wait_ms", waited.as_secs_f64() * 1e3);
        waited
    }

    /// Ends a reconcile that was due at `due`. Returns how long the machine deployment waited until
    /// it was served, if that is to be counted now. A resync waits by design: it is not counted,
    /// unless the machine deployment is not served since something else.
    pub fn end(
        &self,
        reference: &Reference,
        (due, priority): (Instant, Priority),
        progress: Progress,
    ) -> Option<Duration> {
        let mut unserved = self.unserved.lock();
        let known = unserved.remove(reference);
        let begun = (priority == Priority::High).then(|| Pending::since(due));
        match progress {
            Progress::Served => known.or(begun)?.achieved(),
            Progress::Current => known?.achieved(),
            Progress::Retried => {
                let mut pending = known.or(begun)?;
                let late = pending.failed();
                unserved.insert(reference.clone(), pending);
                late
            }
            Progress::Excluded => None,
        }
    }

    /// Removes a machine deployment that is gone.
    pub fn gone(&self, name: &str, namespace: Option<&str>) {
        let reference = ObjectRef::new(name);
        let reference = match namespace {
            Some(namespace) => reference.within(namespace),
            None => reference,
        };
        self.due.lock().remove(&reference);
        self.unserved.lock().remove(&reference);
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
        assert!(due.due.lock().is_empty());
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
        let change = (Instant::now(), Priority::High);
        due.end(&reference(), change, Progress::Retried);
        due.gone("a", Some("kube-system"));
        assert!(due.due.lock().is_empty());
        assert!(due.unserved.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_until_it_is_served_includes_failures_and_no_waits_for_others() {
        use Progress::{Current, Excluded, Retried, Served};
        const STEP: Duration = Duration::from_secs(20);
        let (high, low) = (Priority::High, Priority::Low);
        for (case, steps, expected) in [
            ("a change", &[(high, Served)][..], &[Some(1)][..]),
            ("a change that changes nothing", &[(high, Current)], &[None]),
            ("a resync", &[(low, Served)], &[None]),
            (
                "a failed resync",
                &[(low, Retried), (high, Served)],
                &[None, Some(1)],
            ),
            (
                "a failure",
                &[(high, Retried), (high, Served)],
                &[None, Some(2)],
            ),
            (
                "a repaired failure",
                &[(high, Retried), (low, Current)],
                &[None, Some(2)],
            ),
            (
                "a long failure",
                &[
                    (high, Retried),
                    (high, Retried),
                    (high, Retried),
                    (high, Served),
                    (high, Served),
                ],
                &[None, Some(2), None, None, Some(1)],
            ),
            (
                "a wait for others",
                &[(high, Retried), (high, Excluded), (high, Served)],
                &[None, None, Some(1)],
            ),
        ] {
            let latency = QueueLatency::default();
            for ((priority, progress), steps) in steps.iter().zip(expected) {
                let due = Instant::now();
                tokio::time::advance(STEP).await;
                let counted = latency.end(&reference(), (due, *priority), *progress);
                assert_eq!(
                    counted,
                    steps.map(|steps| STEP * steps),
                    "{case}: {progress:?}"
                );
            }
        }
    }
}
