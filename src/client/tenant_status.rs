//! The status of one tenant, in memory, with a notification when it changes.
//!
//! Every task that learns something records it here. One writer copies it into the status of the
//! WorkerCluster.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::api::{
    condition::ConditionType,
    reason::{Reason, Severity},
    worker_cluster::{MESSAGE_CHARACTERS_MAX, WorkerCluster},
};
use crate::client::{sent_events::SentEvents, statistics::Statistics};
use crate::tenant::{
    id::RegistrationId,
    report::{ConditionState, Outcome, Report, excerpt},
};

/// The status of one tenant, in memory.
#[derive(Debug, Default)]
pub struct TenantStatus {
    report: Mutex<Report>,
    notify: Notify,
    /// The tenant's statistics. Their changes notify no one.
    pub statistics: Statistics,
    /// The last Events about the tenant. They notify no one either.
    pub sent_events: SentEvents,
}

impl TenantStatus {
    /// Returns a copy of the report.
    pub fn report(&self) -> Report {
        self.report.lock().clone()
    }

    /// Reads a part of the report without copying it.
    pub fn read<T>(&self, look: impl FnOnce(&Report) -> T) -> T {
        look(&self.report.lock())
    }

    /// Returns true if a condition held when it was last observed: as it was set here, or otherwise
    /// as in the WorkerCluster's status.
    pub fn held(&self, kind: ConditionType, own: Option<&WorkerCluster>) -> bool {
        let found = self.read(|report| report.findings.get(&kind).map(|finding| finding.holds));
        found.unwrap_or_else(|| {
            let stored = own.and_then(|own| own.condition(kind));
            stored.is_some_and(|stored| stored.status != "False")
        })
    }

    /// Returns true if a condition was ever set, to whatever state.
    pub fn was_set(&self, kind: ConditionType, own: Option<&WorkerCluster>) -> bool {
        self.read(|report| report.findings.contains_key(&kind))
            || own.is_some_and(|own| own.condition(kind).is_some())
    }

    /// Waits until something has changed since the last wait.
    pub async fn changed(&self) {
        self.notify.notified().await;
    }

    /// Wakes the writer of the status, because the stored status may differ from the one that was
    /// written.
    pub fn compare(&self) {
        self.notify.notify_one();
    }

    /// Sets a condition; returns true if it changed.
    pub fn set_condition(&self, condition: ConditionType, mut finding: ConditionState) -> bool {
        finding.message = excerpt(&finding.message, MESSAGE_CHARACTERS_MAX);
        let news = {
            let findings = &mut self.report.lock().findings;
            let before = findings.get(&condition);
            let is_news = !before.is_some_and(|before| before.says(&finding));
            if is_news {
                findings.insert(condition, finding);
            }
            is_news
        };
        if news {
            self.notify.notify_one();
        }
        news
    }

    /// Records that the registration is not accepted, and forgets the conditions that depend on it.
    /// Returns true if the state changed.
    pub fn refuse(&self, finding: ConditionState) -> bool {
        let is_news = self.set_condition(ConditionType::Registered, finding);
        if is_news {
            self.report.lock().forget(&ConditionType::OF_REGISTERED);
        }
        is_news
    }

    /// Records that the cluster answers but cannot be engaged, and forgets the conditions that
    /// depend on that. Returns true if the state changed.
    pub fn cannot_engage(&self, condition: ConditionType, finding: ConditionState) -> bool {
        {
            let mut report = self.report.lock();
            report.not_engaged = Some(finding.reason);
            report.forget(&ConditionType::OF_ENGAGED);
        }
        self.set_condition(condition, finding)
    }

    /// Records that the cluster is engaged.
    pub fn engaged(&self) {
        self.set(|report| &mut report.not_engaged, None);
    }

    /// Records a machine deployment's outcome, if it still exists; returns true if its state, its
    /// reason or its message changed.
    pub fn outcome(&self, machine_deployment: &str, mut outcome: Outcome) -> bool {
        let message = outcome.message.take();
        outcome.message = message.map(|text| excerpt(&text, MESSAGE_CHARACTERS_MAX));
        let (is_news, is_written) = {
            let mut report = self.report.lock();
            let existing = report.existing.as_ref();
            if existing.is_some_and(|existing| !existing.contains(machine_deployment)) {
                return false;
            }
            let known = report.outcomes.get(machine_deployment);
            if let Some(same) = known.filter(|known| known.is_same_failure(&outcome)) {
                outcome.message.clone_from(&same.message);
            }
            let before = report
                .outcomes
                .insert(machine_deployment.to_owned(), outcome.clone());
            let before_that = before.as_ref();
            let unsaid = before_that.map(|it| (it.profile.clone(), it.behind.clone()));
            let is_news = before.is_none_or(|before| {
                (before.state, before.reason, before.message)
                    != (outcome.state, outcome.reason, outcome.message)
            });
            (
                is_news,
                is_news || unsaid != Some((outcome.profile, outcome.behind)),
            )
        };
        if is_written {
            self.notify.notify_one();
        }
        is_news
    }

    /// Changes any other part of the report. `change` returns true if it changed something:
    /// comparing with a copy would cost the size of the report for each event from the cluster.
    pub fn update(&self, change: impl FnOnce(&mut Report) -> bool) {
        let news = change(&mut self.report.lock());
        if news {
            self.notify.notify_one();
        }
    }

    /// Sets one field of the report.
    pub fn set<T: PartialEq>(&self, field: impl FnOnce(&mut Report) -> &mut T, to: T) {
        self.update(|report| {
            let field = field(report);
            let is_news = *field != to;
            *field = to;
            is_news
        });
    }
}

/// The conditions of a tenant.
type Findings = BTreeMap<ConditionType, ConditionState>;

/// Logs the conditions of a tenant when they change: one line for each.
#[derive(Debug, Default)]
pub struct ConditionLog(Findings);

impl ConditionLog {
    /// Logs what has changed since the last call. A condition that is good from the beginning is no
    /// news, and a cluster that cannot be reached has a line of its own, with the exact cause.
    pub fn record(&mut self, registration: &RegistrationId, findings: &Findings) {
        self.0.retain(|kind, _| findings.contains_key(kind));
        let is_unreachable = |it: &ConditionState| it.reason == Reason::Unreachable;
        for (&kind, now) in findings {
            if self.0.get(&kind).is_some_and(|before| before.says(now)) {
                continue;
            }
            let before = self.0.insert(kind, now.clone());
            let is_back = now.holds && before.as_ref().is_some_and(is_unreachable);
            if is_unreachable(now) || is_back {
                continue;
            }
            let (condition, reason, why) = (kind.as_str(), now.reason, &now.message);
            if !now.holds {
                tracing::warn!(%registration, condition, %reason, %why, "a condition does not hold");
            } else if reason.severity() == Severity::Warning {
                tracing::warn!(%registration, condition, %reason, %why, "a condition is doubtful");
            } else if before.is_some_and(|before| before.reason != reason) {
                tracing::info!(%registration, condition, %reason, "a condition holds");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{self, TelemetrySettings, logs::LogBuffer};

    /// Returns the lines that the states of one condition leave in the log, one after the other.
    fn lines(kind: ConditionType, states: &[ConditionState]) -> Vec<String> {
        let logs = LogBuffer::default();
        let settings = TelemetrySettings::default();
        let (dispatch, _telemetry) = telemetry::prepare(&settings, logs.clone()).unwrap();
        let id = RegistrationId::new("tenant-berlin", "berlin");
        let mut log = ConditionLog::default();
        tracing::dispatcher::with_default(&dispatch, || {
            for state in states {
                let findings = BTreeMap::from([(kind, state.clone())]);
                // The status is written more often than a condition changes.
                log.record(&id, &findings);
                log.record(&id, &findings);
            }
        });
        logs.text().lines().map(str::to_owned).collect()
    }

    #[test]
    fn each_change_of_a_condition_is_one_line_with_the_registration() {
        let well = ConditionState::well(Reason::Prepared);
        let wrong = ConditionState::retried(Reason::RightsMissing, "no role, attempt 1");
        let again = ConditionState::retried(Reason::RightsMissing, "no role, attempt 2");
        let found = lines(ConditionType::Prepared, &[well.clone(), wrong, again, well]);
        let [lost, back] = found.as_slice() else {
            panic!("{found:#?}")
        };
        for text in [
            "tenant-berlin/berlin",
            "Prepared",
            "RightsMissing",
            "no role",
        ] {
            assert!(lost.contains(text), "{text}: {lost}");
        }
        assert!(back.contains("a condition holds"), "{back}");
    }

    #[test]
    fn a_cluster_that_cannot_be_reached_has_lines_of_its_own() {
        let well = ConditionState::well(Reason::Healthy);
        let lost = ConditionState::retried(Reason::Unreachable, "no answer");
        let degraded = ConditionState::retried(Reason::Degraded, "503");
        let found = lines(ConditionType::Connected, &[lost.clone(), well]);
        assert_eq!(found, [""; 0]);
        let found = lines(ConditionType::Connected, &[lost, degraded]);
        assert_eq!(found.len(), 1, "{found:#?}");
    }
}
