//! A summary of the whole fleet in rows, for people and programs.
//!
//! It is computed on request from what is in memory, and contains no secrets. Times are those of
//! the WorkerClusters' conditions, so that they survive a restart.

mod cause;
mod overview;
mod query;
mod row;
mod state;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

pub use self::{
    overview::{CommonCause, Overview},
    query::Filter,
    row::{Known, LastReconcile, MachineDeployments, Queue, Row, Statistics, row, row_elsewhere},
    state::{State, state},
};

/// The fleet, as one replica knows it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetSummary {
    /// The replica that created the summary.
    pub replica: String,
    /// The time of the summary, by the replica's clock.
    pub taken_at: Moment,
    /// The number of all tenants. The filter does not affect it.
    pub total: usize,
    /// The number of tenants in each state.
    pub states: BTreeMap<&'static str, usize>,
    /// The number of those that have been in it for an hour at most.
    pub changed_last_hour: BTreeMap<&'static str, usize>,
    /// The number of tenants that another replica serves.
    pub served_elsewhere: usize,
    /// The commonest causes. The filter does not affect them.
    pub causes: Vec<CommonCause>,
    /// The tenants that match the filter, worst first.
    pub tenants: Vec<Row>,
}

/// A time, to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Timestamp);

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:.0}", self.0))
    }
}

impl FleetSummary {
    /// Creates a summary of the rows that match the filter, worst first. The totals count all rows.
    pub fn new(
        (replica, taken_at): (String, Timestamp),
        mut rows: Vec<Row>,
        filter: &Filter,
    ) -> Self {
        let overview = Overview::of(&rows, taken_at);
        let served_elsewhere = rows.iter().filter(|row| !row.served_here).count();
        let total = rows.len();
        rows.retain(|row| filter.keeps(row, taken_at));
        rows.sort_by(|a, b| (a.state, &a.name).cmp(&(b.state, &b.name)));
        Self {
            replica,
            taken_at: Moment(taken_at),
            total,
            states: overview.states,
            changed_last_hour: overview.changed_last_hour,
            served_elsewhere,
            causes: overview.causes,
            tenants: rows,
        }
    }
}

#[cfg(test)]
mod tests;
