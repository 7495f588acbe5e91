//! Records the outcome of a machine deployment: in the tenant's status, in an Event, in the
//! metrics, in the span and, if it changed, in the log.

use std::sync::Arc;

use kube::{Resource, ResourceExt};

use super::{Served, ServedKind, error::Error};
use crate::api::{
    machine_deployment::MachineDeployment,
    reason::{Reason, Severity},
    worker_cluster::{MachineDeploymentState, TEXT_CHARACTERS_MAX},
};
use crate::controllers::{adoption, context::Context};
use crate::fleet::{events, fleet_summary::outcome_of};
use crate::plan::{default_profile::is_older, found::ProfileName, records::Behind};
use crate::telemetry::{self, chain::chain, metrics::Took};
use crate::tenant::report::{Outcome, ProfileTried, Report, WAITS_AT_MOST, excerpt};

/// The profile of a reconcile, and its duration.
#[derive(Debug)]
pub struct Tried {
    /// The profile, as it was before the reconcile read it.
    pub profile: Option<Box<ProfileTried>>,
    /// How long it took.
    pub took: Took,
}

/// Returns the profile that a machine deployment names, as it is installed now.
pub fn profile(context: &Context, named: &ProfileName) -> Option<Box<ProfileTried>> {
    let ProfileName { namespace, name } = named;
    let own = &*context.engagement.home.namespace;
    let version = context
        .profiles
        .get(namespace, name)?
        .spec()
        .version
        .clone();
    let root = context.profiles.root(namespace, name);
    let default = root.and_then(|(name, root)| {
        let default = context.defaults.iter().find(|it| it.name == name)?;
        (namespace == own).then(|| (default, root.spec().version.clone()))
    });
    let next = default.as_ref().and_then(|(default, version)| {
        is_older(version, &default.spec.version).then(|| default.spec.version.clone())
    });
    let short = |text: String| excerpt(&text, TEXT_CHARACTERS_MAX);
    Some(Box::new(ProfileTried {
        name: name.clone(),
        version: short(version),
        default: default.map(|(default, version)| (default.name.clone(), short(version))),
        next,
    }))
}

/// Records the outcome of a machine deployment.
pub async fn update_status(
    context: &Context,
    machine_deployment: &Arc<MachineDeployment>,
    result: &Result<Served, Error>,
    tried: Tried,
) {
    let Tried { profile, took } = tried;
    let name = format!(
        "{}/{}",
        machine_deployment.namespace().unwrap_or_default(),
        machine_deployment.name_any()
    );
    let tenant_status = &context.engagement.tenant_status;
    let metrics = &context.engagement.shared.metrics;
    let mut outcome = Outcome {
        profile,
        ..outcome(context, result)
    };
    // The error names the place in the profile, and other tenants' profiles have the same places.
    if let (Reason::RenderFailed, Some(message), Some(profile)) =
        (outcome.reason, &mut outcome.message, &outcome.profile)
    {
        message.insert_str(0, &format!("OperatingSystemProfile {}: ", profile.name));
    }
    if let Err(Error::Waiting { .. } | Error::Conflict { .. }) = result {
        outcome = waiting(context, &name, outcome);
    }
    metrics.reconciled(outcome_of(outcome.state), took);
    let span = tracing::Span::current();
    span.record("outcome", outcome.reason.as_str());
    match result {
        Ok(served) if served.kind == ServedKind::Current => {
            tracing::debug!(
                machine_deployment = %name,
                writes = served.writes,
                took = ?took.work,
                "reconciled"
            );
            current(context, (machine_deployment, &name), (served, outcome)).await;
        }
        Ok(served) => tenant_status.update(|report| {
            let had_outcome = report.outcomes.remove(&name).is_some();
            let is_other = if served.kind == ServedKind::Ignored {
                report.ignored.insert(name)
            } else {
                report.ignored.remove(&name)
            };
            had_outcome || is_other
        }),
        // Waiting is not a failure, unless it does not end. New machine deployments begin with it.
        Err(Error::Waiting { .. }) if outcome.state == MachineDeploymentState::Waiting => {
            tracing::debug!(machine_deployment = %name, reason = %outcome.reason, "waiting");
            tenant_status.outcome(&name, outcome);
        }
        Err(Error::HeldBack) => {
            tracing::debug!(machine_deployment = %name, "held back");
            // The previous failure says more, and must not be news when it recurs.
            let before = tenant_status.read(|report| report.outcomes.get(&name).cloned());
            let has_failed = |it: &Outcome| it.state == MachineDeploymentState::Failing;
            if !before.as_ref().is_some_and(has_failed) {
                outcome.waits_since = before.and_then(|it| it.waits_since);
                tenant_status.outcome(&name, outcome);
            }
        }
        Err(error) => {
            metrics.failed(error.category());
            span.record("otel.status_code", "ERROR");
            span.record("otel.status_description", error.reason().as_str());
            let is_news = tenant_status.outcome(&name, outcome.clone());
            if is_news {
                emit_event(context, machine_deployment, &outcome).await;
            }
        }
    }
}

/// Records that everything that a machine deployment needs exists.
async fn current(
    context: &Context,
    (machine_deployment, name): (&MachineDeployment, &str),
    (served, outcome): (&Served, Outcome),
) {
    let engagement = &context.engagement;
    let now = engagement.shared.clock.now();
    let metrics = &engagement.shared.metrics;
    metrics.cluster_succeeded(&engagement.registration.to_string(), now);
    let tenant_status = &engagement.tenant_status;
    let is_news = tenant_status.outcome(name, outcome.clone());
    adoption::report(context);
    if tenant_status.read(is_well) {
        context.recorder.rest();
    }
    let is_warning = outcome.reason.severity() == Severity::Warning;
    if is_news && is_warning && !is_in_status(context, name, &outcome) {
        emit_event(context, machine_deployment, &outcome).await;
    }
    if let Some(restored) = &served.restored {
        let warning = Outcome {
            reason: Reason::SecretRestored,
            message: Some(restored.clone()),
            ..outcome
        };
        emit_event(context, machine_deployment, &warning).await;
    }
}

/// Returns true if no machine deployment has a problem.
fn is_well(report: &Report) -> bool {
    report.outcomes.values().all(|it| it.message.is_none())
}

/// Returns true if the status said so before this process started. A restart is no reason to report
/// it again.
fn is_in_status(context: &Context, name: &str, outcome: &Outcome) -> bool {
    let own = context.engagement.worker_cluster.borrow();
    let status = own.as_ref().and_then(|own| own.status.as_ref());
    let mut entries = status.iter().flat_map(|it| &it.machine_deployments);
    entries.any(|it| it.name == name && it.reason == outcome.reason)
}

/// Returns the outcome of a machine deployment that waits: it fails if it does so for too long.
fn waiting(context: &Context, name: &str, mut outcome: Outcome) -> Outcome {
    outcome.waits_since = Some(outcome.at);
    if has_failed_before(context, name, &outcome) {
        outcome.waits_since = outcome.at.checked_sub(WAITS_AT_MOST).ok();
    }
    let tenant_status = &context.engagement.tenant_status;
    let before = tenant_status.read(|report| report.outcomes.get(name).cloned());
    outcome.following(before.as_ref())
}

/// Returns true if the status says that a machine deployment had waited for too long before this
/// process started.
fn has_failed_before(context: &Context, name: &str, outcome: &Outcome) -> bool {
    let own = context.engagement.worker_cluster.borrow();
    let status = own.as_ref().and_then(|own| own.status.as_ref());
    let mut entries = status.iter().flat_map(|it| &it.machine_deployments);
    entries.any(|it| {
        let is_failing = it.state == MachineDeploymentState::Failing;
        is_failing && it.name == name && it.reason == outcome.reason
    })
}

fn outcome(context: &Context, result: &Result<Served, Error>) -> Outcome {
    let (state, reason, message) = match result {
        Ok(Served {
            remark: Some((reason, message)),
            ..
        }) => {
            let state = match reason.severity() {
                Severity::Pending => MachineDeploymentState::Waiting,
                _ => MachineDeploymentState::Served,
            };
            (state, *reason, Some(message.clone()))
        }
        Ok(_) => (MachineDeploymentState::Served, Reason::Current, None),
        Err(error) => (
            error.state(),
            error.reason(),
            Some(chain(error).to_string()),
        ),
    };
    let behind = result.as_ref().ok().and_then(|it| it.behind.as_ref());
    Outcome {
        state,
        reason,
        message,
        at: context.engagement.shared.clock.now(),
        waits_since: None,
        trace_id: telemetry::trace_id(),
        profile: None,
        behind: behind.and_then(Behind::entry).map(Box::new),
    }
}

/// Reports an outcome in the log, and unless the machine deployment only waits, in an Event about
/// it.
async fn emit_event(context: &Context, machine_deployment: &MachineDeployment, outcome: &Outcome) {
    let message = outcome.message.clone().unwrap_or_default();
    tracing::warn!(
        registration = %context.engagement.registration,
        namespace = machine_deployment.namespace().unwrap_or_default(),
        name = machine_deployment.name_any(),
        reason = %outcome.reason,
        why = %message,
        "{}",
        match outcome.state {
            MachineDeploymentState::Served => "served, with a warning",
            _ => "not served",
        }
    );
    // A conflict is over before anybody could read about it.
    if outcome.state == MachineDeploymentState::Waiting {
        return;
    }
    let mut note = events::cut(&message);
    if let Some(trace_id) = &outcome.trace_id {
        note = format!("{note} (trace {trace_id})");
    }
    let event = events::event("Reconcile", outcome.reason, note);
    let reference = machine_deployment.object_ref(&());
    context.recorder.publish(&event, &reference).await;
}
