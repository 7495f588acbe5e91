//! What machines report of themselves: those that follow their document say on their nodes how they
//! differ from it. The nodes are listed as often as the cluster info is read, by their metadata.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt, api::ListParams};
use tokio::time::sleep;

use super::{
    context::Context, join_check::SECOND_TRY, machine_deployment::dereference,
    machine_rollout::some_of,
};
use crate::api::{
    condition::ConditionType, names::MACHINE_REPORT, reason::Reason, worker_cluster::MachineUpdates,
};
use crate::client::pages::{Pages, Weight, is_forbidden, is_too_long};
use crate::render::machine_updates;
use crate::telemetry::chain::chain;
use crate::tenant::report::ConditionState;

/// The page size of nodes' metadata, how many pages are read, and what they may take, in MiB. A
/// node takes 4 KiB.
const PAGE: u32 = 250;
const PAGES: usize = 40;
const LIST_MIB_MAX: usize = 64;

/// How old a report may be: a machine repeats its own every hour.
const OLD: SignedDuration = SignedDuration::from_hours(2);

/// What the nodes of a tenant report.
#[derive(Debug, Default)]
struct Reports {
    all: usize,
    /// The nodes with files or services that are not as in their document.
    differ: Vec<String>,
    /// The nodes that have an older document than new ones.
    behind: Vec<String>,
}

/// Reads what machines report, and sets the condition `DocumentsApplied`.
pub async fn read(context: &Context) {
    let kind = ConditionType::DocumentsApplied;
    let tenant_status = &context.engagement.tenant_status;
    let Some(is_wanted) = is_wanted(context) else {
        return;
    };
    if !is_wanted {
        let own = context.engagement.worker_cluster.borrow().clone();
        if tenant_status.was_set(kind, own.as_deref()) {
            let why = "no machine deployment asks its machines to report";
            tenant_status.set_condition(kind, ConditionState::unknown(Reason::NoReports, why));
        }
        return;
    }
    let mut listed = Reports::list(context).await;
    let was_forbidden = tenant_status.read(|report| {
        let before = report.findings.get(&kind);
        before.is_some_and(|it| it.reason == Reason::NodesForbidden)
    });
    if listed.as_ref().is_err_and(is_forbidden) && !was_forbidden {
        // A single refusal may be transient, for example of an API server that has just started.
        sleep(SECOND_TRY.min(context.engagement.shared.cluster_info_interval)).await;
        listed = Reports::list(context).await;
    }
    let finding = match listed {
        Ok(reports) => reports.finding(),
        Err(error) if is_forbidden(&error) => {
            let why = "nodes cannot be listed: apply what `osm rbac worker-machine-reports` \
                       prints, or give its right to the user of the kubeconfig";
            ConditionState::unknown(Reason::NodesForbidden, why)
        }
        Err(error) if is_too_long(&error) => {
            let why = format!("nodes cannot be listed: {}", chain(&error));
            ConditionState::unknown(Reason::NoReports, why)
        }
        // The calls report the cluster's health in the tenant's status.
        Err(error) => {
            tracing::debug!(error = %chain(&error), "cannot read what machines report");
            return;
        }
    };
    tenant_status.set_condition(kind, finding);
}

/// Returns true if machines of the tenant are to report. Returns `None` if that cannot be told.
fn is_wanted(context: &Context) -> Option<bool> {
    let settings = dereference::settings(context).ok()?;
    let reports = |annotations: &_| {
        let wanted = machine_updates::wanted(annotations, &settings);
        wanted.is_ok_and(|wanted| wanted != MachineUpdates::Disabled)
    };
    let all = context.machine_deployments.state();
    Some(all.iter().any(|it| reports(it.annotations())))
}

impl Reports {
    async fn list(context: &Context) -> Result<Self, kube::Error> {
        let nodes: Api<Node> = Api::all(context.engagement.worker.client());
        let mut pages = Pages::of(ListParams::default(), PAGE).at_most(PAGES);
        let mut weight = Weight::at_most(LIST_MIB_MAX);
        let now = context.engagement.health.server_time();
        let mut reports = Self::default();
        while let Some(page) = pages.next_metadata(&nodes).await? {
            weight.add(&page)?;
            for node in page {
                if let Some(report) = node.annotations().get(MACHINE_REPORT) {
                    reports.add(node.name_any(), report, now);
                }
            }
        }
        Ok(reports)
    }

    /// Adds the report of a node, unless it is old. A word that the script does not know counts as
    /// a difference.
    fn add(&mut self, node: String, report: &str, now: Timestamp) {
        let (reason, at) = report.split_once(' ').unwrap_or_default();
        let at: Option<Timestamp> = at.parse().ok();
        if at.is_none_or(|at| now.duration_since(at).abs() > OLD) {
            return;
        }
        self.all += 1;
        match reason {
            "Applied" => {}
            "Behind" => self.behind.push(node),
            _ => self.differ.push(node),
        }
    }

    fn finding(&self) -> ConditionState {
        let parts = [
            (&self.differ, "not as in their document"),
            (&self.behind, "with an older document than new ones"),
        ];
        let parts = parts.into_iter().filter(|(nodes, _)| !nodes.is_empty());
        let parts = parts.map(|(nodes, what)| {
            let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
            format!("{what}: {}", some_of(&nodes))
        });
        let message = parts.collect::<Vec<_>>().join("; ");
        match (self.all, self.differ.len(), self.behind.len()) {
            (0, _, _) => ConditionState::unknown(Reason::NoReports, "no machine reports itself"),
            (_, 0, 0) => ConditionState::well(Reason::DocumentsApplied),
            (_, 0, _) => ConditionState::wrong(Reason::MachinesBehind, message),
            _ => ConditionState::wrong(Reason::MachinesDiffer, message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_report_is_the_reason_and_the_first_nodes_are_named() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let found = |reported: &[(&str, usize)]| {
            let mut reports = Reports::default();
            for (report, count) in reported {
                for number in 0..*count {
                    let reported = format!("{report} 2026-01-01T11:00:00Z");
                    reports.add(
                        format!("{}-{number}", report.to_lowercase()),
                        &reported,
                        now,
                    );
                }
            }
            let finding = reports.finding();
            (finding.reason, finding.message)
        };
        assert_eq!(found(&[]).0, Reason::NoReports);
        let applied = (Reason::DocumentsApplied, String::new());
        assert_eq!(found(&[("Applied", 3)]), applied);
        let (reason, message) = found(&[("Applied", 1), ("Behind", 2)]);
        assert_eq!(reason, Reason::MachinesBehind);
        let behind = "with an older document than new ones: behind-0, behind-1";
        assert_eq!(message, behind);
        let (reason, message) = found(&[("FilesDiffer", 7), ("Behind", 1), ("x", 1)]);
        assert_eq!(reason, Reason::MachinesDiffer);
        let differ = "not as in their document: filesdiffer-0, filesdiffer-1, filesdiffer-2 \
                      and 5 more; with an older document than new ones: behind-0";
        assert_eq!(message, differ);
    }

    #[test]
    fn who_no_longer_reports_counts_no_more() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        for (report, count) in [
            ("FilesDiffer 2026-01-01T10:00:00Z", 1),
            ("FilesDiffer 2026-01-01T09:59:59Z", 0),
            ("FilesDiffer 2026-01-01T14:00:01Z", 0),
            ("FilesDiffer yesterday", 0),
            ("FilesDiffer", 0),
            ("", 0),
        ] {
            let mut reports = Reports::default();
            reports.add("a".to_owned(), report, now);
            assert_eq!(
                (reports.all, reports.differ.len()),
                (count, count),
                "{report}"
            );
        }
    }
}
