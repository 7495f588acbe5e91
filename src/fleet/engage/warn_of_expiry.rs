//! Keeps the condition about credentials that expire.

use std::time::Duration;

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

/// Checks until cancelled.
pub async fn keep_warning_of_expiry(status: &TenantStatus, clock: &Clock, expiries: &[Expiry]) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        warn_of_expiry(status, clock, expiries);
    }
}
