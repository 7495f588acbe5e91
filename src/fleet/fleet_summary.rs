//! Counts the fleet for the metrics, and lists it for the fleet page. Both are computed on request,
//! without a timer or state of their own.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    registry::{Place, RegisteredCluster, Registry},
    sharding::shard::Shard,
};
use crate::api::{
    condition::ConditionType, reason::Reason, worker_cluster::MachineDeploymentState,
};
use crate::client::tenant_status::TenantStatus;
use crate::telemetry::metrics::{
    Connection, CredentialState, MachineState, Metrics, Outcome, ReportState, TenantState,
};
use crate::tenant::{
    report::{ConditionState, Report},
    summary::State,
    summary::{self, FleetSummary, Row, ServedTenant, Sort},
};

/// The numbers of the fleet, by metric label.
#[derive(Debug, Default)]
struct FleetCounts {
    tenants: BTreeMap<&'static str, usize>,
    machine_deployments: BTreeMap<&'static str, usize>,
    kubeconfigs: BTreeMap<&'static str, usize>,
    machines: BTreeMap<&'static str, usize>,
    reports: BTreeMap<&'static str, usize>,
}

/// Sets the gauges of the fleet from the tenants' current status.
pub fn update_metrics(registry: &Registry, metrics: &Metrics) {
    let mut counts = FleetCounts::default();
    for registered in registry.all() {
        if registered.place() == Place::Here {
            let connection = counts.count(&registered.status);
            metrics.set_cluster(&registered.id.to_string(), connection);
        } else {
            let elsewhere = TenantState::Elsewhere.as_str();
            *counts.tenants.entry(elsewhere).or_default() += 1;
        }
    }
    counts.record(metrics);
}

impl FleetCounts {
    fn count(&mut self, tenant_status: &TenantStatus) -> Connection {
        tenant_status.read(|report| {
            let state = label(summary::state(report)).as_str();
            *self.tenants.entry(state).or_default() += 1;
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
            if let Some(state) = reports(report) {
                *self.reports.entry(state.as_str()).or_default() += 1;
            }
            connection(report)
        })
    }

    fn record(&self, metrics: &Metrics) {
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
        for &state in ReportState::ALL {
            metrics.set_reporting(state, of(&self.reports, state.as_str()));
        }
    }
}

/// What a summary is made of.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// The tenants.
    pub registry: &'a Registry,
    /// Which replica serves which of them.
    pub shard: &'a Shard,
}

/// Returns a row for each tenant, as this replica knows it now.
pub fn summary(sources: Sources<'_>, taken_by: (String, Timestamp), sort: Sort) -> FleetSummary {
    let registered = sources.registry.all();
    let rows = registered
        .iter()
        .map(|registered| sources.row(registered, &taken_by.0));
    let rows = rows.collect();
    FleetSummary::new(taken_by, rows, sort)
}

impl Sources<'_> {
    /// Returns the row of a tenant as this replica knows it.
    pub fn row(&self, registered: &RegisteredCluster, replica: &str) -> Row {
        let owner = match registered.place() {
            Place::Here => Some(replica),
            Place::Elsewhere => self.shard.owner(&registered.id.tenant),
        };
        Row {
            served_by: owner.map(str::to_owned),
            ..row(registered)
        }
    }
}

fn row(registered: &RegisteredCluster) -> Row {
    let name = registered.id.to_string();
    let own = registered.worker_cluster.borrow().clone();
    let status = own.as_deref().and_then(|own| own.status.as_ref());
    if registered.place() == Place::Elsewhere {
        return summary::row_elsewhere(name, status);
    }
    let statistics = registered.status.statistics.read();
    registered.status.read(|report| {
        let known = ServedTenant {
            report,
            status,
            statistics,
        };
        summary::row(name, known)
    })
}

/// Returns the metric label for the state of a machine deployment.
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
        Reason::ExpiresSoon => Some(CredentialState::Soon),
        Reason::ExpiresVerySoon => Some(CredentialState::VerySoon),
        Reason::Expired => Some(CredentialState::Expired),
        _ => None,
    }
}

fn machines(report: &Report) -> Option<MachineState> {
    let found = report.findings.get(&ConditionType::MachinesCurrent)?;
    match found.reason {
        Reason::MachinesCurrent => Some(MachineState::Current),
        Reason::MachinesOutdated => Some(MachineState::Outdated),
        Reason::ChangeAboveLimit => Some(MachineState::AboveLimit),
        Reason::MachinesHeldUp => Some(MachineState::HeldUp),
        Reason::MachineRolloutFailed => Some(MachineState::Failed),
        _ => None,
    }
}

fn reports(report: &Report) -> Option<ReportState> {
    let found = report.findings.get(&ConditionType::DocumentsApplied)?;
    match found.reason {
        Reason::DocumentsApplied => Some(ReportState::Applied),
        Reason::MachinesDiffer => Some(ReportState::Differ),
        Reason::MachinesBehind => Some(ReportState::Behind),
        _ => None,
    }
}

fn connection(report: &Report) -> Connection {
    let connected = report.findings.get(&ConditionType::Connected);
    let answers = |it: &ConditionState| it.holds || it.reason == Reason::CredentialRefused;
    if connected.is_some_and(answers) {
        Connection::Up
    } else {
        Connection::Down
    }
}

/// Returns the label of a tenant's state.
const fn label(state: State) -> TenantState {
    match state {
        State::Unreachable | State::Degraded => TenantState::Unreachable,
        State::CredentialRefused => TenantState::CredentialRefused,
        State::Refused => TenantState::Refused,
        State::Paused => TenantState::Paused,
        State::NotEngaged => TenantState::Engaging,
        State::NotReady | State::Healthy => TenantState::Engaged,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::worker_cluster::{WorkerCluster, WorkerClusterStatus};
    use crate::fleet::discovery::{KubeconfigText, Registration, Settings};
    use crate::fleet::sharding::{Holder, View};
    use crate::tenant::id::TenantId;
    use crate::tenant::{
        id::RegistrationId, inventory::Inventory, report::ConditionState, summary::State,
    };

    #[test]
    fn a_replica_reports_its_own_tenants_and_the_status_of_others() {
        let registry = Registry::new(&[Inventory::Label].into());
        let status = WorkerClusterStatus {
            version: Some("v1.35.0".to_owned()),
            ..WorkerClusterStatus::default()
        };
        let own = WorkerCluster {
            metadata: kube::api::ObjectMeta::default(),
            spec: serde_json::from_value(serde_json::json!({
                "kubeconfigSecretRef": { "name": "worker" },
            }))
            .unwrap(),
            status: Some(status),
        };
        for namespace in ["berlin", "lisbon"] {
            let registration = Registration {
                id: RegistrationId::new(namespace, "worker"),
                uid: "a".to_owned(),
                created: Timestamp::UNIX_EPOCH,
                version: String::new(),
                kubeconfig: KubeconfigText::Missing,
                inventory: Inventory::Label,
                settings: Settings::Operator,
            };
            let registered = registry.present(registration).begins.unwrap();
            registered
                .worker_cluster
                .send_replace(Some(Arc::new(own.clone())));
            registered.status.statistics.user_data(7);
            if namespace == "berlin" {
                registered.take();
            }
        }
        let taken_by = ("osm-0".to_owned(), Timestamp::UNIX_EPOCH);
        let mut shard = Shard::nothing("osm-0");
        shard.settle(&View([Holder::parse("osm-1")].into()));
        let sources = Sources {
            registry: &registry,
            shard: &shard,
        };
        let summary = super::summary(sources, taken_by, Sort::default());
        let [here, elsewhere] = summary.tenants.as_slice() else {
            panic!("{summary:?}");
        };
        assert_eq!(here.name, "berlin/worker");
        assert_eq!(here.served_by.as_deref(), Some("osm-0"));
        let owner = shard.owner(&TenantId::new("lisbon"));
        assert!(owner.is_some() && elsewhere.served_by.as_deref() == owner);
        assert_eq!(here.state, State::NotEngaged);
        assert_eq!(here.user_data_bytes_max, Some(7));
        assert_eq!(here.version, None, "not known here yet");
        assert_eq!(elsewhere.name, "lisbon/worker");
        assert_eq!(elsewhere.state, State::NotEngaged);
        assert_eq!((here.served_here, elsewhere.served_here), (true, false));
        assert_eq!(elsewhere.user_data_bytes_max, None);
        assert_eq!(elsewhere.version.as_deref(), Some("v1.35.0"));
    }

    /// The reasons come from other programs, and may change.
    #[test]
    fn kubeconfigs_and_machines_are_counted_by_what_their_conditions_say() {
        let tenant_status = |kind, finding| {
            let tenant_status = TenantStatus::default();
            tenant_status.set_condition(kind, finding);
            tenant_status
        };
        let mut counts = FleetCounts::default();
        let soon = ConditionState::wrong(Reason::ExpiresVerySoon, "");
        counts.count(&tenant_status(ConditionType::CredentialValid, soon));
        let current = ConditionState::well(Reason::MachinesCurrent);
        counts.count(&tenant_status(ConditionType::MachinesCurrent, current));
        let above = ConditionState::wrong(Reason::ChangeAboveLimit, "");
        counts.count(&tenant_status(ConditionType::MachinesCurrent, above));
        let held_up = ConditionState::wrong(Reason::MachinesHeldUp, "");
        counts.count(&tenant_status(ConditionType::MachinesCurrent, held_up));
        let differ = ConditionState::wrong(Reason::MachinesDiffer, "");
        counts.count(&tenant_status(ConditionType::DocumentsApplied, differ));
        let alone = ConditionState::well(Reason::MachinesLeftAlone);
        counts.count(&tenant_status(ConditionType::MachinesCurrent, alone));
        let metrics = Metrics::new();
        counts.record(&metrics);
        let page = metrics.encode();
        for line in [
            r#"osm_expiring_kubeconfigs{state="very_soon"} 1"#,
            r#"osm_expiring_kubeconfigs{state="expired"} 0"#,
            r#"osm_machine_rollout_tenants{state="current"} 1"#,
            r#"osm_machine_rollout_tenants{state="above_limit"} 1"#,
            r#"osm_machine_rollout_tenants{state="held_up"} 1"#,
            r#"osm_machine_rollout_tenants{state="outdated"} 0"#,
            r#"osm_reporting_tenants{state="differ"} 1"#,
            r#"osm_reporting_tenants{state="applied"} 0"#,
            r#"osm_tenants{state="engaging"} 6"#,
        ] {
            assert!(page.lines().any(|found| found == line), "{line}: {page}");
        }
    }

    #[test]
    fn a_tenant_is_in_the_state_that_its_first_finding_says() {
        let wrong = |kind, reason| {
            let mut report = Report::default();
            report
                .findings
                .insert(kind, ConditionState::wrong(reason, ""));
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
                wrong(ConditionType::Registered, Reason::Paused),
                TenantState::Paused,
            ),
            (
                wrong(ConditionType::Registered, Reason::KubeconfigRefused),
                TenantState::Refused,
            ),
            (
                wrong(ConditionType::Claimed, Reason::ClaimedByOther),
                TenantState::Refused,
            ),
            (
                wrong(ConditionType::Connected, Reason::Unreachable),
                TenantState::Unreachable,
            ),
        ] {
            assert_eq!(label(summary::state(&report)), expected, "{report:?}");
        }
    }
}
