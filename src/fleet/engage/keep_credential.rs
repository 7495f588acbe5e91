//! Keeps the condition about credentials that expire, and renews a token before it expires, if its
//! WorkerCluster says so.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::sleep;

use super::{
    federate,
    renew_token::{self, Keeping},
};
use crate::api::{condition::ConditionType, reason::Reason, worker_cluster::Credentials};
use crate::client::{clock::Clock, retry_delay::RetryDelay, tenant_status::TenantStatus};
use crate::tenant::{
    access::expiry::{Expiry, finding, token_renewal},
    report::ConditionState,
};

/// The interval between two checks. A check itself sends no request.
const INTERVAL: Duration = Duration::from_hours(1);
/// The least time between two renewals. A worker cluster whose clock is wrong, or that lies, has
/// tokens that are old as soon as they are issued.
const PAUSE: Duration = Duration::from_mins(1);
/// The first and the longest delay between attempts to renew a token that has days left.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(10));

/// Checks once.
pub fn warn_of_expiry(status: &TenantStatus, clock: &Clock, expiries: &[Expiry]) {
    report(status, clock, (expiries, None));
}

/// Reports what expires, and why a token was not renewed.
fn report(status: &TenantStatus, clock: &Clock, (expiries, failed): (&[Expiry], Option<&str>)) {
    let mut found = finding(expiries, clock.now());
    if let Some(why) = failed {
        let reason = match found.reason {
            Reason::Valid => Reason::RenewalFailed,
            ending => ending,
        };
        found = ConditionState::wrong(reason, format!("the token cannot be renewed: {why}"));
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
    let mut delays = retries(attempt.credentials);
    let (mut failed, mut not_before) = (None, Timestamp::MIN);
    loop {
        let current = expiries.borrow_and_update().clone();
        report(status, clock, (&current, failed.as_deref()));
        let own = settings.borrow_and_update().clone();
        let credentials = own.map(|own| own.spec.credentials).unwrap_or_default();
        let due = match credentials {
            Credentials::AsRegistered => None,
            Credentials::Renewed | Credentials::Federated => {
                token_renewal(&current, shared.tokens.renewal_age)
            }
        };
        let due = due.map(|due| due.max(not_before));
        tokio::select! {
            biased;
            _ = expiries.changed() => failed = None,
            _ = settings.changed() => {}
            () = sleep(until(due, clock)) => {
                if due.is_none_or(|due| clock.now() < due) {
                    continue;
                }
                let renewed = match credentials {
                    Credentials::Federated => federate::renew(keeping).await,
                    _ => renew_token::renew(keeping).await,
                };
                let pause = if renewed.is_ok() {
                    delays = retries(credentials);
                    PAUSE.min(shared.tokens.renewal_age)
                } else {
                    delays.next().unwrap_or(INTERVAL)
                };
                let before = std::mem::replace(&mut failed, renewed.err());
                if let Some(why) = failed.as_ref().filter(|_| failed != before) {
                    tracing::warn!(registration = %registered.id, %why, "cannot renew the token");
                }
                not_before = clock.now().saturating_add(pause).unwrap_or(Timestamp::MAX);
            }
        }
    }
}

/// Returns the delays between attempts to renew a token. One in a Secret has days left.
fn retries(credentials: Credentials) -> RetryDelay {
    match credentials {
        Credentials::Federated => RetryDelay::default(),
        _ => RetryDelay::new(RETRY.0, RETRY.1),
    }
}

/// Returns how long to wait for the next check.
fn until(due: Option<Timestamp>, clock: &Clock) -> Duration {
    let due = due.map(|due| due.duration_since(clock.now()));
    // What is in the past is due now.
    due.map_or(INTERVAL, |due| due.try_into().unwrap_or_default())
        .min(INTERVAL)
}
