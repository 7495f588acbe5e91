//! Measures how long a registration waits until its worker cluster is engaged. This is for metrics
//! only: no attempt depends on it.

use tokio::time::Instant;

use super::EngageError;
use crate::api::{condition::ConditionType, reason::Reason};
use crate::telemetry::metrics::{Metrics, Pending};
use crate::tenant::class::TenantClass;

/// The wait of one registration.
#[derive(Debug)]
pub struct EngageLatency {
    metrics: Metrics,
    /// `None` while the cluster is engaged, or cannot be engaged before somebody else has acted.
    pending: Option<Pending>,
}

impl EngageLatency {
    /// Creates the wait of a registration that is new, or has changed.
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            metrics: metrics.clone(),
            pending: Some(Pending::since(Instant::now())),
        }
    }

    /// Begins an attempt.
    pub fn begin(&mut self) {
        let now = || Pending::since(Instant::now());
        self.pending.get_or_insert_with(now);
    }

    /// Ends an attempt that succeeded.
    pub fn engaged(&mut self, class: &TenantClass) {
        if let Some(waited) = self.pending.take().and_then(Pending::achieved) {
            self.metrics.time_to_engaged(class.as_str(), waited);
        }
    }

    /// Ends an attempt that failed.
    pub fn failed(&mut self, error: &EngageError, class: &TenantClass) {
        if is_for_others(error) {
            self.pending = None;
        }
        if let Some(waited) = self.pending.as_mut().and_then(Pending::failed) {
            self.metrics.time_to_engaged(class.as_str(), waited);
        }
    }
}

/// Returns true if the cluster cannot be engaged before somebody else has acted: it does not
/// answer, or a person must change something in it or in the registration. A retried failure of the
/// condition `Registered` comes from the management cluster, which is the manager's own.
fn is_for_others(error: &EngageError) -> bool {
    let is_own =
        error.condition == ConditionType::Registered && error.reason != Reason::AnotherFleet;
    let waits_for_a_person = !is_own && error.reason.needs_a_person();
    !error.retry || error.condition == ConditionType::Connected || waits_for_a_person
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const STEP: Duration = Duration::from_secs(20);

    /// Runs attempts that take a step each, and asserts how many steps were counted.
    async fn check(attempts: &[Result<(), EngageError>], expected: &[u32]) {
        let (metrics, class) = (Metrics::new(), "gold".parse().unwrap());
        let mut latency = EngageLatency::new(&metrics);
        for attempt in attempts {
            latency.begin();
            tokio::time::advance(STEP).await;
            match attempt {
                Ok(()) => latency.engaged(&class),
                Err(error) => latency.failed(error, &class),
            }
        }
        let seconds = expected.iter().map(|steps| STEP * *steps).sum::<Duration>();
        let page = metrics.encode();
        for (end, value) in [
            ("count", expected.len().to_string()),
            ("sum", format!("{:.1}", seconds.as_secs_f64())),
        ] {
            let line = format!("osm_time_to_engaged_seconds_{end}{{class=\"gold\"}} {value}");
            assert!(page.lines().any(|it| it == line), "{attempts:?}: {line}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_includes_retries_and_no_time_of_others() {
        use ConditionType::{Adopted, Claimed, Connected, Prepared, Registered};
        let failed = |condition, reason| Err(EngageError::failed(condition, reason, "failed"));
        let prepared = || failed(Prepared, Reason::CallFailed);
        check(&[Ok(()), Ok(())], &[1, 1]).await;
        check(&[prepared(), prepared()], &[2]).await;
        check(
            &[prepared(), prepared(), prepared(), Ok(()), Ok(())],
            &[2, 1],
        )
        .await;
        for own in [
            prepared(),
            failed(Claimed, Reason::ClaimFailed),
            failed(Registered, Reason::NoWorkerCluster),
        ] {
            check(&[own, Ok(())], &[2]).await;
        }
        for of_others in [
            Err(EngageError::refused(Claimed, Reason::ClusterChanged, "no")),
            failed(Connected, Reason::Unreachable),
            failed(Adopted, Reason::UpstreamRunning),
            failed(Claimed, Reason::ClaimedByOther),
            failed(Prepared, Reason::RightsMissing),
        ] {
            check(&[prepared(), of_others, Ok(())], &[1]).await;
        }
    }
}
