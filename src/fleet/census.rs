//! Counts the fleet for the metrics, when somebody asks: no timer, and nothing to keep in step.

use std::collections::BTreeMap;

use super::{
    board::Board,
    roster::{Place, Roster},
};
use crate::api::worker_cluster::MachineDeploymentState;
use crate::telemetry::metrics::{
    Connection, CredentialState, MachineState, Metrics, Outcome, TenantState,
};
use crate::tenant::report::{ConditionType, Report};

/// The fleet in numbers, by the words of their labels.
#[derive(Debug, Default)]
struct Census {
    tenants: BTreeMap<&'static str, usize>,
    machine_deployments: BTreeMap<&'static str, usize>,
    kubeconfigs: BTreeMap<&'static str, usize>,
    machines: BTreeMap<&'static str, usize>,
}

/// Sets the gauges of the fleet to what stands on the boards now.
pub fn take(roster: &Roster, metrics: &Metrics) {
    let mut census = Census::default();
    for member in roster.members() {
        if member.place() == Place::Here {
            let connection = census.count(&member.board);
            metrics.set_cluster(&member.id.to_string(), connection);
        } else {
            *census
                .tenants
                .entry(TenantState::Elsewhere.as_str())
                .or_default() += 1;
        }
    }
    census.tell(metrics);
}

impl Census {
    fn count(&mut self, board: &Board) -> Connection {
        board.read(|report| {
            *self.tenants.entry(state(report).as_str()).or_default() += 1;
            for outcome in report.outcomes.values() {
                let outcome = outcome_of(outcome.state).as_str();
                *self.machine_deployments.entry(outcome).or_default() += 1;
            }
            if let Some(state) = kubeconfig(report) {
                *self.kubeconfigs.entry(state.as_str()).or_default() += 1;
            }
            if let Some(state) = machines(report) {
                *self.machines.entry(state.as_str()).or_default() += 1;
            }
            connection(report)
        })
    }

    fn tell(&self, metrics: &Metrics) {
        let of = |counts: &BTreeMap<&str, usize>, word| counts.get(word).copied().unwrap_or(0);
        for &state in TenantState::ALL {
            metrics.set_tenants(state, of(&self.tenants, state.as_str()));
        }
        for &outcome in Outcome::ALL {
            let count = of(&self.machine_deployments, outcome.as_str());
            metrics.set_machine_deployments(outcome, count);
        }
        for &state in CredentialState::ALL {
            metrics.set_expiring_kubeconfigs(state, of(&self.kubeconfigs, state.as_str()));
        }
        for &state in MachineState::ALL {
            metrics.set_machine_rollout(state, of(&self.machines, state.as_str()));
        }
    }
}

/// The word of metrics for what became of a machine deployment.
pub const fn outcome_of(state: MachineDeploymentState) -> Outcome {
    match state {
        MachineDeploymentState::Served => Outcome::Served,
        MachineDeploymentState::Waiting => Outcome::Waiting,
        MachineDeploymentState::Refused => Outcome::Refused,
        MachineDeploymentState::Failing => Outcome::Failing,
    }
}

fn kubeconfig(report: &Report) -> Option<CredentialState> {
    let found = report.findings.get(&ConditionType::CredentialValid)?;
    match found.reason {
        "ExpiresSoon" => Some(CredentialState::Soon),
        "ExpiresVerySoon" => Some(CredentialState::VerySoon),
        "Expired" => Some(CredentialState::Expired),
        _ => None,
    }
}

fn machines(report: &Report) -> Option<MachineState> {
    let found = report.findings.get(&ConditionType::MachinesCurrent)?;
    match found.reason {
        "MachinesCurrent" => Some(MachineState::Current),
        "MachinesOutdated" => Some(MachineState::Outdated),
        "MachinesHeldUp" => Some(MachineState::HeldUp),
        "MachineRolloutFailed" => Some(MachineState::Failed),
        _ => None,
    }
}

fn connection(report: &Report) -> Connection {
    let connected = report.findings.get(&ConditionType::Connected);
    if connected.is_some_and(|finding| finding.holds) {
        Connection::Up
    } else {
        Connection::Down
    }
}

fn state(report: &Report) -> TenantState {
    let wrong = |kind| report.findings.get(&kind).filter(|finding| !finding.holds);
    if let Some(refused) = wrong(ConditionType::Registered) {
        return if refused.reason == "Paused" {
            TenantState::Paused
        } else {
            TenantState::Refused
        };
    }
    if wrong(ConditionType::Connected).is_some() {
        return TenantState::Unreachable;
    }
    if wrong(ConditionType::Claimed).is_some() {
        return TenantState::Refused;
    }
    if report.existing.is_some() {
        TenantState::Engaged
    } else {
        TenantState::Engaging
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::report::Finding;

    /// The reasons are words of others, which may change.
    #[test]
    fn kubeconfigs_and_machines_are_counted_by_what_their_conditions_say() {
        let board = |kind, finding| {
            let board = Board::default();
            board.found(kind, finding);
            board
        };
        let mut census = Census::default();
        let soon = Finding::wrong("ExpiresVerySoon", "");
        census.count(&board(ConditionType::CredentialValid, soon));
        let current = Finding::well("MachinesCurrent");
        census.count(&board(ConditionType::MachinesCurrent, current));
        let held_up = Finding::wrong("MachinesHeldUp", "");
        census.count(&board(ConditionType::MachinesCurrent, held_up));
        let alone = Finding::well("MachinesLeftAlone");
        census.count(&board(ConditionType::MachinesCurrent, alone));
        let metrics = Metrics::new();
        census.tell(&metrics);
        let page = metrics.encode();
        for line in [
            r#"osm_expiring_kubeconfigs{state="very_soon"} 1"#,
            r#"osm_expiring_kubeconfigs{state="expired"} 0"#,
            r#"osm_machine_rollout_tenants{state="current"} 1"#,
            r#"osm_machine_rollout_tenants{state="held_up"} 1"#,
            r#"osm_machine_rollout_tenants{state="outdated"} 0"#,
            r#"osm_tenants{state="engaging"} 4"#,
        ] {
            assert!(page.lines().any(|found| found == line), "{line}: {page}");
        }
    }

    #[test]
    fn a_tenant_is_in_the_state_that_its_first_finding_says() {
        let wrong = |kind, reason| {
            let mut report = Report::default();
            report.findings.insert(kind, Finding::wrong(reason, ""));
            report
        };
        let engaged = Report {
            existing: Some(std::collections::BTreeSet::new()),
            ..Report::default()
        };
        for (report, expected) in [
            (Report::default(), TenantState::Engaging),
            (engaged, TenantState::Engaged),
            (
                wrong(ConditionType::Registered, "Paused"),
                TenantState::Paused,
            ),
            (
                wrong(ConditionType::Registered, "KubeconfigRefused"),
                TenantState::Refused,
            ),
            (
                wrong(ConditionType::Claimed, "ClaimedByOther"),
                TenantState::Refused,
            ),
            (
                wrong(ConditionType::Connected, "Unreachable"),
                TenantState::Unreachable,
            ),
        ] {
            assert_eq!(state(&report), expected, "{report:?}");
        }
    }
}
