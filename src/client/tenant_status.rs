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
    worker_cluster::WorkerCluster,
};
use crate::client::statistics::Statistics;
use crate::tenant::{
    id::RegistrationId,
    report::{ConditionState, Outcome, Report},
};

/// The status of one tenant, in memory.
#[derive(Debug, Default)]
pub struct TenantStatus {
    report: Mutex<Report>,
    bell: Notify,
    /// The tenant's statistics. Their changes notify no one.
    pub statistics: Statistics,
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
        self.bell.notified().await;
    }

    /// Wakes the writer of the status, because the stored status may differ from the one that was
    /// written.
    pub fn compare(&self) {
        self.bell.notify_one();
    }

    /// Sets a condition; returns true if it changed.
    pub fn set_condition(&self, condition: ConditionType, finding: ConditionState) -> bool {
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
            self.bell.notify_one();
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

    /// Records a machine deployment's outcome; returns true if its state, reason or message
    /// changed.
    pub fn outcome(&self, machine_deployment: &str, mut outcome: Outcome) -> bool {
        let (is_news, is_written) = {
            let mut report = self.report.lock();
            let known = report.outcomes.get(machine_deployment);
            if let Some(same) = known.filter(|known| known.is_same_failure(&outcome)) {
                outcome.message.clone_from(&same.message);
            }
            let before = report
                .outcomes
                .insert(machine_deployment.to_owned(), outcome.clone());
            let profile = before.as_ref().map(|before| before.profile.clone());
            let is_news = before.is_none_or(|before| {
                (before.state, before.reason, before.message)
                    != (outcome.state, outcome.reason, outcome.message)
            });
            (is_news, is_news || profile != Some(outcome.profile))
        };
        if is_written {
            self.bell.notify_one();
        }
        is_news
    }

    /// Changes any other part of the report. `change` returns true if it changed something:
    /// comparing with a copy would cost the size of the report for each event from the cluster.
    pub fn update(&self, change: impl FnOnce(&mut Report) -> bool) {
        let news = change(&mut self.report.lock());
        if news {
            self.bell.notify_one();
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
/// Logs the conditions of a tenant when they change: one line for each.
#[derive(Debug, Default)]
pub struct ConditionLog(BTreeMap<ConditionType, ConditionState>);

impl ConditionLog {
    /// Logs what has changed since the last call. A condition that is good from the beginning is no
    /// news, and a cluster that cannot be reached has a line of its own, with the exact cause.
    pub fn record(&mut self, registration: &RegistrationId, status: &TenantStatus) {
        let findings = status.read(|report| report.findings.clone());
        for (condition, now) in &findings {
            let before = self.0.get(condition);
            let is_unreachable =
                |it: &ConditionState| !it.holds && it.reason == Reason::Unreachable;
            let is_known = before.is_some_and(|before| before.says(now));
            if is_known || is_unreachable(now) || before.is_some_and(is_unreachable) {
                continue;
            }
            let (condition, reason, why) = (condition.as_str(), now.reason, &now.message);
            if !now.holds {
                tracing::warn!(%registration, condition, %reason, %why, "a condition does not hold");
            } else if reason.severity() == Severity::Warning {
                tracing::warn!(%registration, condition, %reason, %why, "a condition is doubtful");
            } else if before.is_some_and(|before| before.reason != reason) {
                tracing::info!(%registration, condition, %reason, "a condition holds");
            }
        }
        self.0 = findings;
    }
}
