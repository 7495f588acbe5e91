//! Keeps the condition about credentials that expire.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::timeout};

use crate::api::condition::ConditionType;
use crate::client::{clock::Clock, tenant_status::TenantStatus};
use crate::tenant::access::expiry::{Expiry, finding};

/// The interval between two checks. A check itself sends no request.
const INTERVAL: Duration = Duration::from_hours(1);

/// Checks once.
pub fn warn_of_expiry(status: &TenantStatus, clock: &Clock, expiries: &[Expiry]) {
    let found = finding(expiries, clock.now());
    status.set_condition(ConditionType::CredentialValid, found);
}

/// Checks until cancelled. They change when a credential is renewed.
pub async fn keep_warning_of_expiry(
    status: &TenantStatus,
    clock: &Clock,
    expiries: &watch::Sender<Arc<[Expiry]>>,
) {
    let mut expiries = expiries.subscribe();
    loop {
        // The sender lives as long as the cluster is served.
        let _ = timeout(INTERVAL, expiries.changed()).await;
        let current = expiries.borrow_and_update().clone();
        warn_of_expiry(status, clock, &current);
    }
}
