//! Replaces machines that were created from another provisioning document than machines get now, a
//! few machine deployments at a time, if the tenant requests it.
//!
//! We write one annotation into the template of a machine deployment; machine-controller does the
//! rest. Nothing is forced: a machine deployment without progress delays the others, and is
//! reported. Everything is derived from the objects, except since when there has been no progress.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use kube::{
    Api, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::reflector::ObjectRef,
};
use serde_json::json;
use tokio::time::Instant;

use super::{context::Context, state::known_machines::full_name};
use crate::api::{
    change::Class,
    condition::ConditionType,
    machine_deployment::{MachineDeployment, MachineDeploymentStatus},
    names::REPLACED_FOR,
    reason::Reason,
    worker_cluster::MachineReplacement,
};
use crate::client::retry_delay::RetryDelay;
use crate::fleet::events;
use crate::plan::machine_rollout::{
    Machines, ReplacementPolicy, ReplacementState, next_to_replace, replacement_state,
};
use crate::telemetry::chain::chain;
use crate::tenant::report::ConditionState;

/// A replacement is stalled after this long without progress. It is machine-controller's own
/// default.
const PROGRESS_DEADLINE: Duration = Duration::from_mins(10);
/// The longest deadline that a machine deployment may set.
const PROGRESS_DEADLINE_MAX: Duration = Duration::from_hours(24);
/// A condition names at most this many machine deployments of each kind.
const NAMED_MAX: usize = 3;

/// Replaces the machines of the tenant's machine deployments, until cancelled.
pub async fn follow(context: &Context) {
    let mut rollout = Rollout {
        context,
        written: BTreeMap::new(),
        replacing: BTreeMap::new(),
        delay: RetryDelay::default(),
    };
    let mut worker_cluster = context.engagement.worker_cluster.clone();
    loop {
        let again = Box::pin(rollout.evaluate()).await;
        tokio::select! {
            () = context.machines.changed() => {}
            // A change may have been permitted.
            Ok(()) = worker_cluster.changed() => {}
            () = sleep(again) => {}
        }
    }
}

async fn sleep(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

/// The progress of a machine deployment whose machines are being replaced.
struct Progress {
    status: Option<MachineDeploymentStatus>,
    since: Instant,
    is_held_up: bool,
}

struct Rollout<'a> {
    context: &'a Context,
    /// Our writes that the watch has not shown yet: the document's digest, by name.
    written: BTreeMap<String, String>,
    replacing: BTreeMap<String, Progress>,
    delay: RetryDelay,
}

/// A machine deployment and the state of its replacement.
struct Candidate {
    found: Arc<MachineDeployment>,
    name: String,
    machines: Option<Machines>,
    state: ReplacementState,
}

impl Candidate {
    /// Returns the digest of the document that its new machines get.
    fn content(&self) -> &str {
        self.machines.as_ref().map_or("", |it| &it.content)
    }

    /// Says what a change would take that is not permitted.
    fn not_permitted(&self) -> String {
        let known = self.machines.as_ref();
        let class = known.map_or(Class::NewMachine, Machines::class);
        let parts = known.and_then(|it| it.behind.as_ref());
        let parts = parts.map_or("an unknown document", |it| &it.parts);
        let count = self.found.status.as_ref().and_then(|it| it.replicas);
        format!(
            "{} ({class}: {parts}; machines: up to {}; document {})",
            self.name,
            count.unwrap_or(0),
            self.content(),
        )
    }
}

impl Rollout<'_> {
    /// Evaluates all machine deployments once. Returns when to do so again if nothing happens
    /// before.
    async fn evaluate(&mut self) -> Option<Duration> {
        let policy = policy(self.context);
        if policy.rollout.replace == MachineReplacement::Never {
            self.written.clear();
            self.replacing.clear();
            report_setting(self.context);
            return None;
        }
        if !is_everything_reconciled(self.context) {
            return None;
        }
        let mut all = self.all(&policy);
        let states: Vec<_> = all.iter().map(|it| it.state).enumerate().collect();
        let max = usize::try_from(policy.rollout.max_concurrent).unwrap_or(usize::MAX);
        for index in next_to_replace(&states, max) {
            let Some(candidate) = all.get_mut(index) else {
                continue;
            };
            if let Err(error) = self.replace_machines(candidate).await {
                let message = format!(
                    "cannot replace the machines of {}: {}",
                    candidate.name,
                    chain(&error)
                );
                self.set_condition(ConditionState::retried(
                    Reason::MachineRolloutFailed,
                    message,
                ));
                return self.delay.next();
            }
            candidate.state = ReplacementState::Replacing;
        }
        self.delay = RetryDelay::default();
        let again = self.watch_progress(&all).await;
        self.set_condition(self.finding(&all));
        again
    }

    /// Returns all machine deployments, sorted by name.
    fn all(&mut self, policy: &ReplacementPolicy) -> Vec<Candidate> {
        let mut all: Vec<Candidate> = Vec::new();
        for found in self.context.machine_deployments.state() {
            let name = full_name(&ObjectRef::from_obj(&*found));
            let machines = self.context.machines.get(&name);
            let state = replacement_state(&found, machines.as_ref(), policy);
            all.push(Candidate {
                found,
                name,
                machines,
                state,
            });
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        // Our own writes count before the watch shows them.
        let outdated = all
            .iter()
            .filter(|it| it.state == ReplacementState::Outdated);
        let outdated: HashSet<&String> = outdated.map(|it| &it.name).collect();
        self.written.retain(|name, _| outdated.contains(name));
        for candidate in &mut all {
            let written = self.written.get(&candidate.name);
            if written.is_some_and(|written| written == candidate.content()) {
                candidate.state = ReplacementState::Replacing;
            }
        }
        all
    }

    async fn replace_machines(&mut self, candidate: &Candidate) -> Result<(), kube::Error> {
        let namespace = candidate.found.namespace().unwrap_or_default();
        let api: Api<MachineDeployment> =
            Api::namespaced(self.context.engagement.worker.client(), &namespace);
        let patch = json!({
            "metadata": {
                "uid": candidate.found.uid(),
                "resourceVersion": candidate.found.resource_version(),
            },
            "spec": {"template": {"metadata": {"annotations": {REPLACED_FOR: candidate.content()}}}},
        });
        let name = candidate.found.name_any();
        let patch = Patch::Merge(&patch);
        api.patch_metadata(&name, &PatchParams::default(), &patch)
            .await?;
        self.written
            .insert(candidate.name.clone(), candidate.content().to_owned());
        tracing::info!(
            registration = %self.context.engagement.registration,
            %namespace,
            name,
            content = candidate.content(),
            "machines are replaced: they were made from another document"
        );
        let note = format!(
            "the machines were made from another document than machines get now, which is {}",
            candidate.content()
        );
        self.publish(&candidate.found, Reason::ReplacingMachines, note)
            .await;
        Ok(())
    }

    /// Records which replacements are stalled, and reports each of them once. Returns the time
    /// until the next one would be.
    async fn watch_progress(&mut self, all: &[Candidate]) -> Option<Duration> {
        let replacing = |name: &String| {
            let mut replacing = all
                .iter()
                .filter(|it| it.state == ReplacementState::Replacing);
            replacing.any(|it| it.name == *name)
        };
        self.replacing.retain(|name, _| replacing(name));
        let mut next: Option<Duration> = None;
        for candidate in all
            .iter()
            .filter(|it| it.state == ReplacementState::Replacing)
        {
            let status = candidate.found.status.clone();
            let fresh = || Progress {
                status: status.clone(),
                since: Instant::now(),
                is_held_up: false,
            };
            let progress = self
                .replacing
                .entry(candidate.name.clone())
                .or_insert_with(fresh);
            if progress.status != status {
                *progress = fresh();
            }
            let deadline = deadline(&candidate.found);
            let left = deadline.saturating_sub(progress.since.elapsed());
            if !left.is_zero() {
                next = Some(next.map_or(left, |next| next.min(left)));
            } else if !progress.is_held_up {
                progress.is_held_up = true;
                self.report_stalled(candidate, deadline).await;
            }
        }
        next
    }

    async fn report_stalled(&self, candidate: &Candidate, deadline: Duration) {
        let note = format!(
            "the machines are being replaced, and nothing has happened for {} s; other machine \
             deployments wait for this one",
            deadline.as_secs()
        );
        tracing::warn!(
            registration = %self.context.engagement.registration,
            name = candidate.name,
            why = note,
            "the replacement of machines is held up"
        );
        self.publish(&candidate.found, Reason::MachinesHeldUp, note)
            .await;
    }

    async fn publish(&self, found: &MachineDeployment, reason: Reason, note: String) {
        let event = events::event("Reconcile", reason, note);
        self.context
            .recorder
            .publish(&event, &found.object_ref(&()))
            .await;
    }

    fn finding(&self, all: &[Candidate]) -> ConditionState {
        let of = |wanted: ReplacementState| {
            let names = all.iter().filter(|it| it.state == wanted);
            names.map(|it| it.name.as_str()).collect::<Vec<_>>()
        };
        let above = all
            .iter()
            .filter(|it| it.state == ReplacementState::AboveLimit);
        let above: Vec<String> = above.map(Candidate::not_permitted).collect();
        let above: Vec<&str> = above.iter().map(String::as_str).collect();
        let held_up = self.replacing.iter().filter(|(_, it)| it.is_held_up);
        let held_up: Vec<&str> = held_up.map(|(name, _)| name.as_str()).collect();
        let parts = [
            ("makes no progress", held_up.as_slice()),
            ("takes more than maxClass permits", &above),
            ("replacing", &of(ReplacementState::Replacing)),
            ("waiting", &of(ReplacementState::Outdated)),
            ("paused or not at rest", &of(ReplacementState::HeldBack)),
        ]
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| format!("{what}: {}", some_of(names)))
        .collect::<Vec<_>>();
        let reason = match (held_up.is_empty(), above.is_empty()) {
            (false, _) => Reason::MachinesHeldUp,
            (true, false) => Reason::ChangeAboveLimit,
            (true, true) => Reason::MachinesOutdated,
        };
        if !parts.is_empty() {
            return ConditionState::wrong(reason, parts.join("; "));
        }
        ConditionState::well(if of(ReplacementState::BelowLimit).is_empty() {
            Reason::MachinesCurrent
        } else {
            Reason::MachinesLeftAlone
        })
    }

    fn set_condition(&self, finding: ConditionState) {
        let tenant_status = &self.context.engagement.tenant_status;
        tenant_status.set_condition(ConditionType::MachinesCurrent, finding);
    }
}

/// Returns the first names, and how many more there are.
pub(super) fn some_of(names: &[&str]) -> String {
    let first = names.iter().take(NAMED_MAX).copied().collect::<Vec<_>>();
    match names.len().saturating_sub(NAMED_MAX) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

fn deadline(found: &MachineDeployment) -> Duration {
    let wanted = found.spec.progress_deadline_seconds;
    let wanted = wanted.and_then(|seconds| u64::try_from(seconds).ok());
    wanted.map_or(PROGRESS_DEADLINE, |seconds| {
        Duration::from_secs(seconds.max(1)).min(PROGRESS_DEADLINE_MAX)
    })
}

fn policy(context: &Context) -> ReplacementPolicy {
    let own = context.engagement.worker_cluster.borrow();
    let defaults = context.engagement.defaults.settings.machine_rollout;
    ReplacementPolicy::new(own.as_deref(), defaults)
}

/// Corrects the condition of a tenant whose machines were replaced before and no longer are.
fn report_setting(context: &Context) {
    let kind = ConditionType::MachinesCurrent;
    let own = context.engagement.worker_cluster.borrow().clone();
    let tenant_status = &context.engagement.tenant_status;
    if tenant_status.was_set(kind, own.as_deref()) {
        tenant_status.set_condition(kind, ConditionState::well(Reason::MachinesLeftAlone));
    }
}

/// Returns true if every machine deployment has been reconciled since the cluster was engaged.
/// Until then, the number of replacements in progress is unknown.
fn is_everything_reconciled(context: &Context) -> bool {
    context.engagement.tenant_status.read(|report| {
        report.existing.as_ref().is_some_and(|existing| {
            let is_known =
                |name: &String| report.outcomes.contains_key(name) || report.ignored.contains(name);
            existing.iter().all(is_known)
        })
    })
}
