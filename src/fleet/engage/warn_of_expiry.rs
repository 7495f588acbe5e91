//! Warns of credentials that expire: sets a condition, and creates an Event for each step towards
//! the end.

use std::time::Duration;

use super::engage_error::{REGISTER, is_in_status};
use crate::api::condition::ConditionType;
use crate::client::connect::Clients;
use crate::fleet::{engagement::Shared, events, registry::RegisteredCluster};
use crate::tenant::access::expiry::{Expiry, finding};

/// The interval between two checks. A check itself sends no request.
const INTERVAL: Duration = Duration::from_hours(1);

/// The arguments of [`warn_of_expiry`].
#[derive(Clone, Copy)]
pub struct Warning<'a> {
    /// The state that all tenants share.
    pub shared: &'a Shared,
    /// The registered cluster.
    pub registered: &'a RegisteredCluster,
    /// The tenant's share of the management API.
    pub management: &'a Clients,
    /// The credentials that expire.
    pub expiries: &'a [Expiry],
}

/// Checks once.
pub async fn warn_of_expiry(warning: Warning<'_>) {
    let Warning {
        shared,
        registered,
        management,
        expiries,
    } = warning;
    let found = finding(expiries, shared.clock.now());
    let kind = ConditionType::CredentialValid;
    if !registered.status.set_condition(kind, found.clone()) || found.holds {
        return;
    }
    tracing::warn!(registration = %registered.id, why = %found.message, "a credential expires");
    let own = registered.worker_cluster.borrow().clone();
    let Some(own) = own.filter(|own| !is_in_status(own, found.reason, &found.message)) else {
        return;
    };
    let warning = events::Warning {
        action: REGISTER,
        reason: found.reason,
        note: &found.message,
    };
    events::warn(&management.client(), &own, warning).await;
}

/// Checks until cancelled.
pub async fn keep_warning_of_expiry(warning: Warning<'_>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        Box::pin(warn_of_expiry(warning)).await;
    }
}
