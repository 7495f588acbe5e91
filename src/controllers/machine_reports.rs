//! What machines report of themselves: those that follow their document say on their nodes how they
//! differ from it. The nodes are listed as often as the cluster info is read, by their metadata.

use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt, api::ListParams};

use super::{context::Context, machine_deployment::dereference};
use crate::api::{
    condition::ConditionType, names::MACHINE_REPORT, reason::Reason, worker_cluster::MachineUpdates,
};
use crate::client::pages::{Pages, is_forbidden};
use crate::render::machine_updates;
use crate::telemetry::chain::chain;
use crate::tenant::report::ConditionState;

/// The page size of nodes' metadata, 2 KiB each, and how many pages are read.
const PAGE: u32 = 250;
const PAGES: usize = 40;

/// The maximum number of nodes that a condition names.
const NAMED_MAX: usize = 5;

/// What the nodes of a tenant report.
#[derive(Debug, Default)]
struct Reports {
    all: usize,
    /// The nodes with files or services that are not as in their document.
    differ: Named,
    /// The nodes that have an older document than new ones.
    behind: Named,
}

/// Nodes, of which the first are named.
#[derive(Debug, Default)]
struct Named {
    count: usize,
    first: Vec<String>,
}

/// Reads what machines report, and sets the condition `DocumentsApplied`.
pub async fn read(context: &Context) {
    let kind = ConditionType::DocumentsApplied;
    let tenant_status = &context.engagement.tenant_status;
    if !is_wanted(context) {
        let own = context.engagement.worker_cluster.borrow().clone();
        if tenant_status.was_set(kind, own.as_deref()) {
            let why = "spec.machineUpdates is Disabled";
            tenant_status.set_condition(kind, ConditionState::unknown(Reason::NoReports, why));
        }
        return;
    }
    let finding = match Reports::list(context).await {
        Ok(reports) => reports.finding(),
        Err(error) if is_forbidden(&error) => {
            let why = "nodes cannot be listed: apply what `osm rbac worker-machine-reports` prints";
            ConditionState::unknown(Reason::NodesForbidden, why)
        }
        // The calls report the cluster's health in the tenant's status.
        Err(error) => {
            tracing::debug!(error = %chain(&error), "cannot read what machines report");
            return;
        }
    };
    tenant_status.set_condition(kind, finding);
}

/// Returns true if machines of the tenant are to report.
fn is_wanted(context: &Context) -> bool {
    let Ok(settings) = dereference::settings(context) else {
        return false;
    };
    let reports = |annotations: &_| {
        let wanted = machine_updates::wanted(annotations, &settings);
        wanted.is_ok_and(|wanted| wanted != MachineUpdates::Disabled)
    };
    let all = context.machine_deployments.state();
    all.iter().any(|it| reports(it.annotations()))
}

impl Reports {
    async fn list(context: &Context) -> Result<Self, kube::Error> {
        let nodes: Api<Node> = Api::all(context.engagement.worker.client());
        let mut pages = Pages::of(ListParams::default(), PAGE).at_most(PAGES);
        let mut reports = Self::default();
        while let Some(page) = pages.next_metadata(&nodes).await? {
            for node in page {
                if let Some(report) = node.annotations().get(MACHINE_REPORT) {
                    reports.add(node.name_any(), report);
                }
            }
        }
        Ok(reports)
    }

    /// Adds the report of a node. A word that the script does not know
    /// counts as a difference.
    fn add(&mut self, node: String, report: &str) {
        self.all += 1;
        match report {
            "Applied" => {}
            "Behind" => self.behind.add(node),
            _ => self.differ.add(node),
        }
    }

    fn finding(&self) -> ConditionState {
        let parts = [
            (&self.differ, "not as in their document"),
            (&self.behind, "with an older document than new ones"),
        ];
        let parts = parts.into_iter().filter(|(named, _)| named.count > 0);
        let parts = parts.map(|(named, what)| format!("{what}: {}", named.text(self.all)));
        let message = parts.collect::<Vec<_>>().join("; ");
        match (self.all, self.differ.count, self.behind.count) {
            (0, _, _) => {
                ConditionState::unknown(Reason::NoReports, "no machine has reported itself yet")
            }
            (_, 0, 0) => ConditionState::well(Reason::DocumentsApplied),
            (_, 0, _) => ConditionState::wrong(Reason::MachinesBehind, message),
            _ => ConditionState::wrong(Reason::MachinesDiffer, message),
        }
    }
}

impl Named {
    fn add(&mut self, node: String) {
        self.count += 1;
        if self.first.len() < NAMED_MAX {
            self.first.push(node);
        }
    }

    fn text(&self, all: usize) -> String {
        let names = self.first.join(", ");
        let more = match self.count - self.first.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{} of {all} ({names}{more})", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_report_is_the_reason_and_the_first_nodes_are_named() {
        let found = |reported: &[(&str, usize)]| {
            let mut reports = Reports::default();
            for (report, count) in reported {
                for number in 0..*count {
                    reports.add(format!("{}-{number}", report.to_lowercase()), report);
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
        let behind = "with an older document than new ones: 2 of 3 (behind-0, behind-1)";
        assert_eq!(message, behind);
        let (reason, message) = found(&[("FilesDiffer", 7), ("Behind", 1), ("x", 1)]);
        assert_eq!(reason, Reason::MachinesDiffer);
        let differ = "not as in their document: 8 of 9 (filesdiffer-0, filesdiffer-1, \
                      filesdiffer-2, filesdiffer-3, filesdiffer-4 and 3 more); with an older \
                      document than new ones: 1 of 9 (behind-0)";
        assert_eq!(message, differ);
    }
}
