//! The reconcile of one machine deployment, from reading its inputs to recording its outcome.

mod account_token;
pub mod apply;
mod compare;
pub mod credentials;
pub mod dereference;
pub mod ensure_finalizer;
pub mod error;
pub mod finalize;
mod rendering;
pub mod update_status;

use std::{sync::Arc, time::Duration};

use kube::{
    ResourceExt,
    runtime::{controller::Action, reflector::ObjectRef},
};
use tokio::time::Instant;
use tracing::Instrument;

use self::{
    apply::apply,
    compare::compare,
    dereference::dereference,
    ensure_finalizer::ensure_finalizer,
    error::Error,
    update_status::{Tried, update_status},
};
use super::{
    context::Context,
    queue::{backoff::Retry, queue_latency::Progress},
    state::foreign_writes::ForeignWrite,
};
use crate::api::{
    machine_deployment::MachineDeployment,
    names::{CLOUD_INIT_SETTINGS, REVISION},
    reason::Reason,
    worker_cluster::{ProfileAnnotation, TEXT_CHARACTERS_MAX},
};
use crate::client::{jitter, permits::Priority};
use crate::plan::{
    bootstrap::renewal,
    changes::{Change, changes, kept_as_found},
    desired::{awaited_revision, desired, is_current, known_near_limit},
    found::{ProfileName, has_finalizer, lacking},
    invalid::Invalid,
    machine_rollout::{Machines, machines},
    records::Behind,
    validate::{Deployment, Policy, validate},
};
use crate::rules::kubelet;
use crate::telemetry::{
    metrics::{Took, Trigger},
    traces::{self, TRACEPARENT},
};
use crate::tenant::report::{ProfileTried, excerpt};

/// Reconciles once. Never returns an error: the outcome is recorded in the tenant's status, and the
/// action says when to reconcile again.
///
/// # Errors
///
/// Never.
pub async fn reconcile(
    machine_deployment: Arc<MachineDeployment>,
    context: Arc<Context>,
) -> Result<Action, std::convert::Infallible> {
    let reference = ObjectRef::from_obj(&*machine_deployment);
    let retry = context.backoff.retry(&reference, &machine_deployment);
    let Some(at_work) = context.resync.begin(&reference, retry) else {
        return Ok(Action::await_change());
    };
    let revision = machine_deployment.annotations().get(REVISION);
    let revision = revision.map(|text| short(text));
    let own = context.engagement.worker_cluster.borrow().clone();
    let uid = context
        .engagement
        .tenant_status
        .read(|it| it.cluster_uid.clone());
    let span = tracing::info_span!(
        parent: None,
        "reconcile",
        otel.name = "reconcile machine deployment",
        k8s.cluster.name = own.map(|own| own.name_any()),
        k8s.cluster.uid = uid,
        k8s.namespace.name = machine_deployment.namespace(),
        tenant = %context.engagement.tenant(),
        registration = %context.engagement.registration,
        namespace = machine_deployment.namespace().unwrap_or_default(),
        name = machine_deployment.name_any(),
        revision = revision.unwrap_or_default(),
        trigger = tracing::field::Empty,
        queue_wait_ms = tracing::field::Empty,
        profile = tracing::field::Empty,
        profile_version = tracing::field::Empty,
        outcome = tracing::field::Empty,
        writes = tracing::field::Empty,
        otel.status_code = tracing::field::Empty,
        otel.status_description = tracing::field::Empty,
    );
    let cause = machine_deployment.annotations().get(TRACEPARENT);
    traces::link(&span, cause.map(String::as_str));
    let queue_latency = &context.queue_latency;
    let action = async {
        let queue = queue_latency.begin(&reference, &context.engagement.shared.metrics);
        let begun = Instant::now();
        let mut profile = None;
        let priority = at_work.priority();
        let outcome = serve(&machine_deployment, &context, priority, &mut profile).await;
        let due = (begun.checked_sub(queue).unwrap_or(begun), priority);
        if let Some(waited) = queue_latency.end(&reference, due, progress(&outcome)) {
            let class = context.engagement.policy.class.as_str();
            let metrics = &context.engagement.shared.metrics;
            metrics.time_to_served(class, waited);
        }
        let tried = Tried {
            profile,
            took: Took {
                queue,
                work: begun.elapsed(),
            },
        };
        update_status(&context, &machine_deployment, &outcome, tried).await;
        report_foreign_write(&context, &outcome);
        let machines = outcome.as_ref().ok().and_then(|it| it.machines.clone());
        context.machines.observed(&reference, machines);
        next(&context, (reference, &machine_deployment), outcome)
    };
    Ok(action.instrument(span).await)
}

/// Returns when the machine deployment is reconciled again, if nothing changes.
fn next(
    context: &Context,
    (reference, machine_deployment): (ObjectRef<MachineDeployment>, &MachineDeployment),
    outcome: Result<Served, Error>,
) -> Action {
    let queue_latency = &context.queue_latency;
    match outcome {
        Ok(served) => {
            context.backoff.reset(&reference);
            served.next.map_or_else(Action::await_change, |after| {
                queue_latency.later(&reference, Trigger::Time, after)
            })
        }
        Err(Error::Invalid(_)) => Action::await_change(),
        Err(Error::Waiting { until, .. }) => queue_latency.later(&reference, Trigger::Retry, until),
        Err(Error::HeldBack) => {
            context.held_back.add(reference);
            Action::await_change()
        }
        Err(_) => {
            let retry = match progress(&outcome) {
                Progress::Excluded => Retry::InTurn,
                _ => Retry::WhenDue,
            };
            let after = context.backoff.failed(machine_deployment, retry);
            queue_latency.later(&reference, Trigger::Retry, after)
        }
    }
}

/// Returns what an outcome means for the time until the machine deployment is served.
fn progress(outcome: &Result<Served, Error>) -> Progress {
    match outcome {
        Ok(served) if served.kind != ServedKind::Current => Progress::Excluded,
        Ok(served) if served.writes > 0 => Progress::Served,
        Ok(_) => Progress::Current,
        // machine-controller sets the revision.
        Err(Error::Waiting { reason, .. }) if *reason == Reason::AwaitingRevision => {
            Progress::Excluded
        }
        // The machine deployment, a Secret or a profile must change, or the cluster must answer.
        Err(
            Error::Invalid(_)
            | Error::RenderStopped(_)
            | Error::RegistryCredentials(_)
            | Error::BootstrapAccount(_)
            | Error::HeldBack,
        ) => Progress::Excluded,
        Err(
            Error::RenderPanicked
            | Error::Waiting { .. }
            | Error::Conflict { .. }
            | Error::Call { .. },
        ) => Progress::Retried,
    }
}

/// Triggers the check for another manager if a write conflicted with that of another program.
fn report_foreign_write(context: &Context, outcome: &Result<Served, Error>) {
    if outcome.as_ref().is_err_and(Error::is_of_another_writer) {
        context.engagement.foreign_write.notify_one();
    }
}

/// The result of a successful reconcile.
#[derive(Debug)]
pub struct Served {
    /// How long to wait before the next reconcile, if nothing changes; `None` to wait for a change.
    pub next: Option<Duration>,
    /// The number of objects that were written.
    pub writes: usize,
    /// The way in which the machine deployment was served.
    pub kind: ServedKind,
    /// What people should know although it is served: a reason, and a sentence.
    pub remark: Option<(Reason, String)>,
    /// A sentence about documents that another client had deleted or changed.
    pub restored: Option<String>,
    /// The documents that its machines were created from, if outdated machines are replaced.
    pub machines: Option<Machines>,
    /// How far its machines may be behind.
    pub behind: Option<Behind>,
}

/// How a machine deployment was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedKind {
    /// Everything that it needs exists.
    Current,
    /// It is gone, with everything that was created for it.
    Removed,
    /// We do not serve it: it names no profile and the policy requires one, or it is being deleted
    /// without our finalizer.
    Ignored,
}

async fn serve(
    machine_deployment: &Arc<MachineDeployment>,
    context: &Context,
    priority: Priority,
    tried: &mut Option<Box<ProfileTried>>,
) -> Result<Served, Error> {
    if machine_deployment.metadata.deletion_timestamp.is_some() {
        if !has_finalizer(machine_deployment) {
            return Ok(Served::without_next(ServedKind::Ignored));
        }
        finalize::finalize(context, machine_deployment).await?;
        return Ok(Served::without_next(ServedKind::Removed));
    }
    let lacking = lacking(machine_deployment, unnamed(context))?;
    let Some(lacking) = lacking else {
        return Ok(Served::without_next(ServedKind::Ignored));
    };
    let machine_deployment = ensure_finalizer(context, machine_deployment, lacking).await?;
    // The profile that it names is recorded even if it cannot be served.
    let engagement = &context.engagement;
    let home = &engagement.home.namespace;
    let named = ProfileName::of(&machine_deployment, home, &engagement.policy);
    let named_well = named.as_ref().ok();
    *tried = named_well.and_then(|named| update_status::profile(context, named));
    // On the heap, because it is the largest part of a reconcile, and most reconciles end before
    // it.
    Box::pin(converge(context, (machine_deployment, named), priority)).await
}

/// Returns a text that a tenant wrote as spans hold it: many wait for the collector.
fn short(text: &str) -> String {
    excerpt(text, TEXT_CHARACTERS_MAX)
}

fn record_version(span: &tracing::Span, version: &str) {
    span.record("profile_version", short(version));
}

/// Runs the steps of a reconcile: dereference, validate, credentials, render, changes, apply.
async fn converge(
    context: &Context,
    (machine_deployment, named): (Arc<MachineDeployment>, Result<ProfileName, Invalid>),
    priority: Priority,
) -> Result<Served, Error> {
    // Read what exists. (client)
    let found = dereference(context, machine_deployment, named)
        .instrument(tracing::info_span!("dereference"))
        .await?;
    // Can it be served? (pure)
    let policy = Policy {
        token_lifetime: context.rules.token_lifetime,
        machine_deployments_max: context.engagement.policy.machine_deployments_max,
    };
    let deployment = tracing::info_span!("validate").in_scope(|| validate(&found, &policy))?;
    let foreign_writes = context.foreign_writes.take(&deployment.names);
    let span = tracing::Span::current();
    record_version(&span, &deployment.provenance.profile_version);
    // Get the token that its machines fetch with. (client, or memory if it is known)
    let deployment = credentials::ensure_node_credentials(context, deployment)
        .instrument(tracing::info_span!("credentials"))
        .await?;
    // Plan what should exist. (pure; nothing is rendered if the existing documents are current)
    let deployment = Arc::new(deployment);
    let rendered = if is_current(&deployment, &found.observed) {
        None
    } else {
        // Wait for the budget of the config's write first. Otherwise, the documents of a whole
        // fleet would be rendered, and wait in memory for the budget that all tenants share.
        let home = context.engagement.home.clients.paid(priority).await;
        let documents = rendering::render(context, &deployment, priority).await?;
        Some((documents, home))
    };
    let (documents, home) = rendered.unzip();
    let near_limit = documents.as_ref().map_or_else(
        || known_near_limit(&found.observed),
        |documents| documents.near_limit.clone(),
    );
    let is_current = documents.is_none();
    let awaited = is_current.then(|| awaited_revision(&deployment, &found.observed));
    let desired = desired(&deployment, documents);
    // What does a change take on machines that have the existing document? (client)
    let compared = (&*deployment, &found.observed);
    let desired = compare(context, desired, compared, priority).await?;
    let behind = desired.behind.clone();
    let machines = machines(&desired, &found.observed);
    // Plan the changes. (pure)
    let changes = changes(desired, &found.observed);
    let remark = remark([
        (Reason::AwaitingRevision, awaited.flatten()),
        (Reason::UserDataNearLimit, near_limit),
        (
            Reason::KeptAsFound,
            kept_as_found(&changes, &found.observed),
        ),
        (Reason::KubeletUnsupported, unsupported_kubelet(&deployment)),
    ]);
    let written = changes.iter().filter_map(Change::secret);
    let written: Vec<_> = written.map(str::to_owned).collect();
    let restored = restored(&written, foreign_writes);
    let writes = changes.len();
    span.record("writes", writes);
    // Apply them. (client)
    if writes > 0 {
        let span = tracing::info_span!("apply", changes = writes);
        let clients = &context.engagement.home.clients;
        let home = home.unwrap_or_else(|| clients.client_for(priority));
        apply(context, &deployment, (changes, home))
            .instrument(span)
            .await?;
        context.join_checks.changed(&deployment.names.key);
        // The watch may have shown these writes before their answers came.
        context.foreign_writes.forget(&written);
    }
    Ok(Served {
        next: Some(next_reconcile(context, &deployment)),
        writes,
        kind: ServedKind::Current,
        remark,
        restored,
        machines,
        behind,
    })
}

/// Returns the first of these that there is something to say about.
fn remark(remarks: [(Reason, Option<String>); 4]) -> Option<(Reason, String)> {
    let mut remarks = remarks.into_iter();
    remarks.find_map(|(reason, text)| Some((reason, text?)))
}

/// Returns a sentence about the documents that are written because of another client.
fn restored(written: &[String], foreign_writes: Vec<(String, ForeignWrite)>) -> Option<String> {
    let mut restored = foreign_writes
        .into_iter()
        .filter(|it| written.contains(&it.0));
    restored.next().map(|(name, what)| {
        let what = match what {
            ForeignWrite::Deleted => "deleted",
            ForeignWrite::Changed => "changed",
        };
        format!(
            "another client has {what} Secret {CLOUD_INIT_SETTINGS}/{name}, and it was written again"
        )
    })
}

fn unsupported_kubelet(deployment: &Deployment) -> Option<String> {
    let template = &deployment.machine_deployment.spec.template;
    kubelet::unsupported(&template.spec.versions.kubelet)
}

/// Returns how long to wait before the next reconcile. Time alone affects only the token, which
/// must be renewed, and missing rights, which are tried again.
fn next_reconcile(context: &Context, deployment: &Deployment) -> Duration {
    let due = renewal(deployment.token.token(), context.rules.token_lifetime);
    let refused_until = context.node_credentials.refused_until();
    let due = refused_until.map_or(due, |until| due.min(until));
    let left = Duration::try_from(due.duration_since(context.engagement.health.server_time()))
        .unwrap_or_default();
    // The random delay avoids that tokens which were created together are renewed together. A token
    // that is due for renewal is valid for as long again.
    let jitter = jitter::part(context.rules.token_lifetime, 0.0, 0.1);
    left + jitter
}

/// Returns the tenant's setting for machine deployments that name no profile.
fn unnamed(context: &Context) -> ProfileAnnotation {
    let own = context.engagement.worker_cluster.borrow();
    let default = context.engagement.mode.profile_annotation();
    own.as_ref()
        .map_or(default, |own| own.spec.profile_annotation)
}

impl Served {
    fn without_next(kind: ServedKind) -> Self {
        Self {
            next: None,
            writes: 0,
            kind,
            remark: None,
            restored: None,
            machines: None,
            behind: None,
        }
    }
}
