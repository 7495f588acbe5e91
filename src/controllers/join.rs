//! Keeps what machines need to join: bootstrap tokens, and the right to fetch their configuration.
//! None of it is watched, so it is read as often as the cluster info.

use tokio::time::{Instant, sleep_until};

use super::{context::Context, join_check, tokens};
use crate::fleet::{
    jitter,
    prerequisites::{self, FetcherError, PrerequisiteError},
};
use crate::telemetry::chain::chain;
use crate::tenant::{
    mode::Right,
    report::{ConditionState, ConditionType},
};

/// Corrects from time to time what somebody deleted or changed, and checks whether machines can
/// join. Checks also once something was written, unless there was a check within the interval.
/// Never requeue.
pub async fn keep(context: &Context) {
    let interval = context.engagement.shared.facts_interval;
    if !context.rules.join_check {
        join_check::forget(context, "--join-check is off");
    }
    let mut checked: Option<Instant> = None;
    let mut due = Instant::now() + jitter::around(interval);
    loop {
        let is_rested = checked.is_none_or(|at| at.elapsed() >= interval);
        tokio::select! {
            () = sleep_until(due) => {
                Box::pin(look(context)).await;
                due = Instant::now() + jitter::around(interval);
            }
            () = context.join_checks.is_due(), if is_rested => {}
        }
        if context.rules.join_check {
            Box::pin(join_check::check(context)).await;
        }
        checked = Some(Instant::now());
    }
}

async fn look(context: &Context) {
    // The calls report the cluster's health in the tenant's status.
    if let Err(error) = tokens::check(context).await {
        tracing::debug!(error = %chain(&error), "cannot list the bootstrap tokens again");
    }
    if let Err(error) = keep_fetcher(context).await {
        tracing::debug!(error = %chain(&error), "cannot check the fetcher again");
    }
}

/// Corrects what the fetcher may do, and sets the condition `Prepared`.
///
/// # Errors
///
/// When a call fails: then the condition stays as it is.
pub async fn keep_fetcher(context: &Context) -> Result<(), PrerequisiteError> {
    let kept = if context.rules.mode.has(Right::KeepFetcher) {
        prerequisites::keep_fetcher(&context.engagement.worker.client()).await
    } else {
        Ok(())
    };
    let finding = match kept {
        Ok(()) => ConditionState::well("Prepared"),
        Err(FetcherError::Call(error)) => return Err(error),
        Err(refused @ FetcherError::Refused { .. }) => {
            ConditionState::wrong("FetcherRefused", refused.to_string())
        }
    };
    let tenant_status = &context.engagement.tenant_status;
    tenant_status.set_condition(ConditionType::Prepared, finding);
    Ok(())
}
