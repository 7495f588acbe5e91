//! A summary of the whole fleet in rows, for people and programs.
//!
//! It is computed on request from what is in memory, and contains no secrets. Times are those of
//! the WorkerClusters' conditions, so that they survive a restart.

mod cause;
mod overview;
mod page;
mod query;
mod row;
mod sort;
mod state;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

pub use self::{
    overview::{CommonCause, Overview, is_recent},
    page::{SentEvent, TenantPage},
    query::Filter,
    row::{
        LastReconcile, MachineDeployments, Queue, Row, ServedTenant, Statistics, row, row_elsewhere,
    },
    sort::{Direction, Key, Sort},
    state::{State, state},
};

/// The fleet, as one replica knows it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetSummary {
    /// The replica that created the summary.
    pub replica: String,
    /// The time of the summary, by the replica's clock.
    pub taken_at: Rfc3339Time,
    /// The number of all tenants. A filter does not affect it.
    pub total: usize,
    /// The number of tenants in each state.
    pub states: BTreeMap<&'static str, usize>,
    /// The number of those that have been in it for an hour at most.
    pub changed_last_hour: BTreeMap<&'static str, usize>,
    /// The number of tenants that another replica serves.
    pub served_elsewhere: usize,
    /// The commonest causes. A filter does not affect them.
    pub causes: Vec<CommonCause>,
    /// The tenants: all of them, until some are [selected](Self::select).
    pub tenants: Vec<Row>,
}

/// A time that is serialized to the second, as `metav1.Time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rfc3339Time(pub Timestamp);

impl Serialize for Rfc3339Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:.0}", self.0))
    }
}

impl FleetSummary {
    /// Creates a summary of these rows, in this order.
    pub fn new((replica, taken_at): (String, Timestamp), mut rows: Vec<Row>, sort: Sort) -> Self {
        let overview = Overview::of(&rows, taken_at);
        let served_elsewhere = rows.iter().filter(|row| !row.served_here).count();
        let total = rows.len();
        rows.sort_by(|a, b| sort.compare(a, b));
        Self {
            replica,
            taken_at: Rfc3339Time(taken_at),
            total,
            states: overview.states,
            changed_last_hour: overview.changed_last_hour,
            served_elsewhere,
            causes: overview.causes,
            tenants: rows,
        }
    }

    /// Keeps only the tenants that match the filter.
    pub fn select(&mut self, filter: &Filter) {
        let now = self.taken_at.0;
        self.tenants.retain(|row| filter.keeps(row, now));
    }
}

#[cfg(test)]
mod tests;
