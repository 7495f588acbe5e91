//! All that a replica knows of one tenant, for its own page.

use serde::Serialize;

use super::{Rfc3339Time, Row};
use crate::settings::Input;
use osm_api::worker_cluster::WorkerClusterStatus;

/// One tenant, as one replica knows it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantPage {
    /// The replica that created the page.
    pub replica: String,
    /// The time of the page, by the replica's clock.
    pub taken_at: Rfc3339Time,
    /// The tenant's row.
    pub tenant: Row,
    /// The status that this replica writes; of a tenant of another replica, the stored one.
    pub status: WorkerClusterStatus,
    /// The settings in use; empty if they are refused.
    pub settings: Vec<Input>,
    /// Why the settings are refused.
    pub settings_refused: Option<String>,
    /// The last Events that this replica sent about the tenant, newest first.
    pub events: Vec<SentEvent>,
}

/// An Event that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SentEvent {
    /// When it was sent.
    pub at: Rfc3339Time,
    /// True if it is a warning.
    pub is_warning: bool,
    /// The machine-readable CamelCase reason.
    pub reason: String,
    /// The object that it is about, such as `MachineDeployment kube-system/workers`.
    pub about: String,
    /// A sentence for people.
    pub note: String,
}
