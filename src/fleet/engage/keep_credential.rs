//! Keeps the condition about credentials that expire, and renews the token of a registration before
//! it expires, if its WorkerCluster says so.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;

use super::renew_token::{Keeping, renew};
use crate::api::{condition::ConditionType, reason::Reason, worker_cluster::Credentials};
use crate::client::{clock::Clock, retry_delay::RetryDelay, tenant_status::TenantStatus};
use crate::tenant::{
    access::expiry::{Expiry, finding, token_renewal},
    report::ConditionState,
};

/// The interval between two checks. A check itself sends no request.
const INTERVAL: Duration = Duration::from_hours(1);
/// The delays between attempts to renew a token, which has days left.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(10));

/// Checks once.
pub fn warn_of_expiry(status: &TenantStatus, clock: &Clock, expiries: &[Expiry]) {
    report(status, clock, (expiries, None));
}

/// Reports what expires, and why a token was not renewed.
fn report(status: &TenantStatus, clock: &Clock, (expiries, failed): (&[Expiry], Option<&str>)) {
    let mut found = finding(expiries, clock.now());
    if let Some(why) = failed {
        let why = format!("the token of the kubeconfig cannot be renewed: {why}");
        if found.reason == Reason::Valid {
            found = ConditionState::wrong(Reason::RenewalFailed, why);
        } else {
            found.message = format!("{}; {why}", found.message);
        }
    }
    status.set_condition(ConditionType::CredentialValid, found);
}

/// Checks until cancelled. The credentials change when one is renewed, by us or by others.
pub async fn keep_credential(keeping: Keeping<'_>) {
    let Keeping {
        shared,
        registered,
        attempt,
        ..
    } = keeping;
    let (status, clock) = (&registered.status, &shared.clock);
    let mut expiries = attempt.expiries.subscribe();
    let mut settings = registered.worker_cluster.subscribe();
    let mut delays = RetryDelay::new(RETRY.0, RETRY.1);
    let (mut failed, mut not_before) = (None, Timestamp::MIN);
    loop {
        let current = expiries.borrow_and_update().clone();
        report(status, clock, (&current, failed.as_deref()));
        let own = settings.borrow_and_update().clone();
        let due = match own.map(|own| own.spec.credentials).unwrap_or_default() {
            Credentials::AsRegistered => None,
            Credentials::Renewed => token_renewal(&current, shared.token_renewal_age),
        };
        let due = due.map(|due| due.max(not_before));
        tokio::select! {
            biased;
            _ = expiries.changed() => {
                (failed, not_before) = (None, Timestamp::MIN);
                delays = RetryDelay::new(RETRY.0, RETRY.1);
            }
            _ = settings.changed() => {}
            () = sleep(until(due, clock)) => {
                if due.is_none_or(|due| clock.now() < due) {
                    continue;
                }
                failed = renew(keeping).await.err();
                let pause = match &failed {
                    // The changed Secret comes back by its watch, as any other.
                    None => INTERVAL,
                    Some(why) => {
                        tracing::warn!(registration = %registered.id, %why, "cannot renew the token");
                        delays.next().unwrap_or(RETRY.1)
                    }
                };
                not_before = clock.now().saturating_add(pause).unwrap_or(Timestamp::MAX);
            }
        }
    }
}

/// Returns how long to wait for the next check.
fn until(due: Option<Timestamp>, clock: &Clock) -> Duration {
    let due = due.map(|due| due.duration_since(clock.now()));
    // What is in the past is due now.
    due.map_or(INTERVAL, |due| due.try_into().unwrap_or_default())
        .min(INTERVAL)
}
