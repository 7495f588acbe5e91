//! Counts the fleet for the metrics, and puts it in rows for its page, when somebody asks: no
//! timer, and nothing to keep in step.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    board::Board,
    roster::{Member, Place, Roster},
};
use crate::telemetry::metrics::{Connection, Metrics, TenantState};
use crate::tenant::{
    overview::{self, Filter, Known, Overview, Row},
    report::{ConditionType, Report},
};

/// Sets the gauges of the fleet to what stands on the boards now.
pub fn take(roster: &Roster, metrics: &Metrics) {
    let mut counts: BTreeMap<&str, (TenantState, usize)> = TenantState::ALL
        .iter()
        .map(|state| (state.as_str(), (*state, 0)))
        .collect();
    for member in roster.members() {
        let is_here = member.place() == Place::Here;
        let (state, connection) = if is_here {
            look(&member.board)
        } else {
            (TenantState::Elsewhere, Connection::Down)
        };
        if let Some((_, count)) = counts.get_mut(state.as_str()) {
            *count += 1;
        }
        if is_here {
            metrics.set_cluster(&member.id.to_string(), connection);
        }
    }
    for (state, count) in counts.into_values() {
        metrics.set_tenants(state, count);
    }
}

/// Everybody in a row, as this replica knows them at this time.
pub fn overview(roster: &Roster, told: (String, Timestamp), filter: &Filter) -> Overview {
    let members = roster.members();
    let rows = members.iter().map(|member| row(member)).collect();
    Overview::new(told, rows, filter)
}

fn row(member: &Member) -> Row {
    let name = member.id.to_string();
    let own = member.worker_cluster.borrow().clone();
    let status = own.as_deref().and_then(|own| own.status.as_ref());
    if member.place() == Place::Elsewhere {
        return overview::row_elsewhere(name, status);
    }
    let vitals = member.board.vitals.read();
    member.board.read(|report| {
        let known = Known {
            report,
            status,
            vitals,
        };
        overview::row(name, known)
    })
}

fn look(board: &Board) -> (TenantState, Connection) {
    board.read(|report| (state(report), connection(report)))
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
    use std::sync::Arc;

    use super::*;
    use crate::api::worker_cluster::{WorkerCluster, WorkerClusterStatus};
    use crate::fleet::discovery::Registration;
    use crate::tenant::{id::RegistrationId, overview::State, report::Finding};

    #[test]
    fn a_replica_tells_of_its_own_tenants_and_of_others_what_their_status_says() {
        let roster = Roster::default();
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
                kubeconfig: None,
            };
            let member = roster.present(registration).unwrap();
            member
                .worker_cluster
                .send_replace(Some(Arc::new(own.clone())));
            member.board.vitals.user_data(7);
            if namespace == "berlin" {
                member.take();
            }
        }
        let told = ("osm-0".to_owned(), Timestamp::UNIX_EPOCH);
        let overview = super::overview(&roster, told, &Filter::default());
        let [here, elsewhere] = overview.tenants.as_slice() else {
            panic!("{overview:?}");
        };
        assert_eq!(here.name, "berlin/worker");
        assert_eq!(here.state, State::NotEngaged);
        assert_eq!(here.user_data_bytes_max, Some(7));
        assert_eq!(here.version, None, "not known here yet");
        assert_eq!(elsewhere.name, "lisbon/worker");
        assert_eq!(elsewhere.state, State::Elsewhere);
        assert_eq!(elsewhere.user_data_bytes_max, None);
        assert_eq!(elsewhere.version.as_deref(), Some("v1.35.0"));
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
