//! Keeps what machines need to join: bootstrap tokens, and the right to fetch their configuration.
//! Neither is watched, so they are read as often as the cluster info.

use std::pin::pin;

use tokio::time::{Instant, sleep, sleep_until};

use super::{
    context::Context,
    join_check::{self, SECOND_TRY},
    machine_reports, tokens,
};
use crate::api::{condition::ConditionType, reason::Reason};
use crate::client::jitter;
use crate::fleet::prerequisites::{self, FetcherError, PrerequisiteError};
use crate::telemetry::chain::chain;
use crate::tenant::{mode::Right, report::ConditionState};

/// Periodically restores what was deleted or changed, and checks whether machines can join. Also
/// checks after something was written, unless the last check was less than an interval ago. Never
/// returns.
pub async fn keep(context: &Context) {
    let interval = context.engagement.shared.cluster_info_interval;
    if !context.rules.join_check {
        join_check::forget(context, "--join-check is off");
    }
    let mut listed = pin!(context.machine_deployments.wait_until_ready());
    let mut is_listed = false;
    let mut checked: Option<Instant> = None;
    let mut due = Instant::now() + jitter::around(interval);
    loop {
        let is_rested = checked.is_none_or(|at| at.elapsed() >= interval);
        tokio::select! {
            () = sleep_until(due) => {
                Box::pin(check_prerequisites(context)).await;
                Box::pin(machine_reports::read(context)).await;
                due = Instant::now() + jitter::around(interval);
            }
            // What was reported before is known at once.
            _ = &mut listed, if !is_listed => {
                is_listed = true;
                Box::pin(machine_reports::read(context)).await;
                continue;
            }
            () = context.join_checks.is_due(), if is_rested => {}
        }
        if context.rules.join_check {
            Box::pin(join_check::check(context)).await;
        }
        checked = Some(Instant::now());
    }
}

async fn check_prerequisites(context: &Context) {
    let mut corrected = correct(context).await;
    if let Err(PrerequisiteError::Denied { .. }) = corrected {
        // A single refusal may be transient, for example of an API server that has just started.
        sleep(SECOND_TRY.min(context.engagement.shared.cluster_info_interval)).await;
        corrected = correct(context).await;
    }
    let finding = match corrected {
        Ok(finding) => finding,
        Err(denied @ PrerequisiteError::Denied { .. }) => denied.finding(),
        // The calls report the cluster's health in the tenant's status.
        Err(error) => {
            tracing::debug!(error = %chain(&error), "cannot check again what machines need");
            return;
        }
    };
    let tenant_status = &context.engagement.tenant_status;
    tenant_status.set_condition(ConditionType::Prepared, finding);
}

async fn correct(context: &Context) -> Result<ConditionState, PrerequisiteError> {
    let tokens = tokens::check(context).await;
    let finding = correct_fetcher(context).await?;
    tokens.map(|()| finding)
}

/// Restores the fetcher's rights, and sets the condition `Prepared`.
///
/// # Errors
///
/// If a call fails. The condition does not change then.
pub async fn keep_fetcher(context: &Context) -> Result<(), PrerequisiteError> {
    let finding = correct_fetcher(context).await?;
    let tenant_status = &context.engagement.tenant_status;
    tenant_status.set_condition(ConditionType::Prepared, finding);
    Ok(())
}

async fn correct_fetcher(context: &Context) -> Result<ConditionState, PrerequisiteError> {
    let kept = if context.engagement.mode.has(Right::KeepFetcher) {
        let engagement = &context.engagement;
        prerequisites::keep_fetcher(&engagement.registration, &engagement.worker.client()).await
    } else {
        Ok(())
    };
    match kept {
        Ok(()) => Ok(ConditionState::well(Reason::Prepared)),
        Err(FetcherError::Call(error)) => Err(error),
        Err(refused @ FetcherError::Refused { .. }) => {
            let why = refused.to_string();
            Ok(ConditionState::wrong(Reason::FetcherRefused, why))
        }
    }
}
