//! Decides which machine deployments replace their machines, because the provisioning document
//! changed after the machines were created.
//!
//! machine-controller creates new machines whenever it raises the revision, from the document that
//! is stored for that revision. So machines were created from the document that was stored when
//! their revision was first served. Its digest is recorded then, and compared from then on. A
//! request to replace machines raises the revision, so a machine deployment is never asked twice
//! for the same document, whatever happens to the bytes.

use super::{
    desired::{Desired, provisioning_digest, stored_for},
    digest::Digest,
    observed::{Observed, Seen},
    records::{Behind, MadeFrom, REVISION_CHARACTERS_MAX},
};
use osm_api::{
    change::Class,
    machine_deployment::{MachineDeployment, MachineDeploymentStatus},
    names::{CONTENT, MACHINES_MADE_FROM, PERMITTED, REPLACED_FOR, REVISION},
    worker_cluster::{MachineRollout, WorkerCluster},
};

/// What the machines of a machine deployment were created from, and what new ones are created from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machines {
    /// What the existing machines were created from.
    pub made_from: MadeFrom,
    /// The shortened digest of the document that new machines get.
    pub content: String,
    /// How far the existing machines are behind, if that is known.
    pub behind: Option<Behind>,
}

impl Machines {
    /// Returns what it would take to bring the new document into effect on the existing machines:
    /// anything, if that is not known.
    pub fn class(&self) -> Class {
        let known = self.behind.as_ref().map(|it| it.class);
        match known {
            _ if self.made_from.content == self.content => Class::None,
            known => known.unwrap_or(Class::NewMachine),
        }
    }
}

/// When the machines of a tenant are replaced.
#[derive(Clone, Debug)]
pub struct ReplacementPolicy {
    /// The tenant's setting, or the fleet's default.
    pub rollout: MachineRollout,
    /// The documents for which there is no limit, each as `namespace/name=digest`.
    permitted: Vec<String>,
}

impl ReplacementPolicy {
    /// Returns the policy of a tenant, with the fleet's defaults where its WorkerCluster says
    /// nothing.
    pub fn new(own: Option<&WorkerCluster>, defaults: MachineRollout) -> Self {
        let rollout = own.and_then(|own| own.spec.rollout?.machines);
        let permitted = own.and_then(|own| own.metadata.annotations.as_ref()?.get(PERMITTED));
        let permitted = permitted.map(|it| it.split_whitespace().map(str::to_owned).collect());
        Self {
            rollout: rollout.map_or(defaults, |own| own.or_classes_of(defaults)),
            permitted: permitted.unwrap_or_default(),
        }
    }

    fn is_above_limit(&self, found: &MachineDeployment, machines: &Machines) -> bool {
        let max = self.rollout.max_class.unwrap_or(Class::NewMachine);
        let namespace = found.metadata.namespace.as_deref().unwrap_or_default();
        let name = found.metadata.name.as_deref().unwrap_or_default();
        let permission = permission(&format!("{namespace}/{name}"), &machines.content);
        machines.class() > max && !self.permitted.contains(&permission)
    }
}

/// Returns a word of the annotation that permits a change: the machine deployment, as
/// `namespace/name`, and the shortened digest of the document.
pub fn permission(machine_deployment: &str, document: &str) -> String {
    format!("{machine_deployment}={document}")
}

/// Returns what the machines were created from, and what new ones are created from once the changes
/// are written. Returns `None` if the machine deployment's machines are not replaced.
pub fn machines(desired: &Desired, observed: &Observed) -> Option<Machines> {
    let key = desired.machines_key.as_ref()?.short().to_owned();
    let revision = &desired.provenance.revision;
    if revision.len() > REVISION_CHARACTERS_MAX {
        return None;
    }
    let content = provisioning_digest(desired, observed)?;
    let stored = stored_for(desired, observed);
    let first = MadeFrom {
        revision: revision.clone(),
        content: stored.map_or(content, |it| &it.content).short().to_owned(),
        key,
    };
    let recorded = observed.kubelet_kubeconfig.as_ref();
    let recorded = recorded.and_then(|seen| seen.annotation(MACHINES_MADE_FROM));
    let before = recorded.and_then(MadeFrom::parse);
    let before = before.filter(|before| before.revision == *revision);
    Some(Machines {
        made_from: match before {
            None => first,
            Some(before) if before.key == first.key => before,
            Some(before) if stored.is_some_and(|it| was_written_as(it, &before)) => first,
            // With the earlier key, the machines were already outdated: they remain so.
            Some(before) => MadeFrom {
                content: before.content,
                ..first
            },
        },
        content: content.short().to_owned(),
        behind: desired.behind.clone(),
    })
}

/// Returns true if the document had the recorded digest when it was written, with the key of that
/// time.
fn was_written_as(seen: &Seen, made_from: &MadeFrom) -> bool {
    let written = seen.annotation(CONTENT);
    written.is_some_and(|digest| Digest::from_annotation(digest).short() == made_from.content)
}

/// The state of a machine deployment in the replacement of machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacementState {
    /// It does not take part: it is being deleted, is not served, or has just got another revision.
    Apart,
    /// Its machines were created from the current document, or from one with the same meaning.
    Current,
    /// It is outdated by a change that takes less than replaces machines.
    BelowLimit,
    /// It is outdated by a change that takes more than is permitted.
    AboveLimit,
    /// Its machines were created from another document.
    Outdated,
    /// It is outdated, but must not be changed now: it is paused, or not all of its machines are
    /// updated and available.
    HeldBack,
    /// It was asked to replace its machines, and has not finished.
    Replacing,
}

/// Returns the state of a machine deployment. `machines` is `None` if it is not served.
pub fn replacement_state(
    found: &MachineDeployment,
    machines: Option<&Machines>,
    policy: &ReplacementPolicy,
) -> ReplacementState {
    if found.metadata.deletion_timestamp.is_some() || found.spec.is_unreadable {
        return ReplacementState::Apart;
    }
    let requested = replaced_for(found);
    if requested.is_some() && !is_at_rest(found) {
        return ReplacementState::Replacing;
    }
    let revision = found.metadata.annotations.as_ref();
    let revision = revision
        .and_then(|it| it.get(REVISION))
        .map_or("", String::as_str);
    // A machine deployment whose revision has changed since is about to be reconciled again.
    let Some(machines) = machines.filter(|it| it.made_from.revision == revision) else {
        return ReplacementState::Apart;
    };
    if machines.class() == Class::None {
        return ReplacementState::Current;
    }
    if requested == Some(&machines.content) {
        // machine-controller has not raised the revision yet.
        return ReplacementState::Replacing;
    }
    if machines.class() < policy.rollout.min_class.unwrap_or(Class::Reload) {
        return ReplacementState::BelowLimit;
    }
    if policy.is_above_limit(found, machines) {
        return ReplacementState::AboveLimit;
    }
    if found.spec.paused == Some(true) || !is_at_rest(found) {
        return ReplacementState::HeldBack;
    }
    ReplacementState::Outdated
}

/// Returns the digest of the document that machines were last replaced for, from the annotation in
/// the template.
pub fn replaced_for(found: &MachineDeployment) -> Option<&str> {
    let metadata = found.spec.template.metadata.as_ref()?;
    let annotations = metadata.annotations.as_ref()?;
    annotations.get(REPLACED_FOR).map(String::as_str)
}

/// Returns true if machine-controller has observed the machine deployment's current generation, and
/// exactly the wanted number of machines exists, all updated and available.
pub fn is_at_rest(found: &MachineDeployment) -> bool {
    let wanted = found.spec.replicas.unwrap_or(1);
    let Some(MachineDeploymentStatus {
        observed_generation,
        replicas,
        updated_replicas,
        available_replicas,
    }) = &found.status
    else {
        return false;
    };
    let is_observed = observed_generation.unwrap_or(0) >= found.metadata.generation.unwrap_or(0);
    let counts = [replicas, updated_replicas, available_replicas];
    is_observed && counts.iter().all(|count| count.unwrap_or(0) == wanted)
}

/// Returns the machine deployments to ask for new machines now, in the given order, so that at most
/// `max_concurrent` replace machines at the same time.
pub fn next_to_replace<Id: Clone>(
    states: &[(Id, ReplacementState)],
    max_concurrent: usize,
) -> Vec<Id> {
    let of = |wanted: ReplacementState| states.iter().filter(move |(_, it)| *it == wanted);
    let room = max_concurrent.saturating_sub(of(ReplacementState::Replacing).count());
    let outdated = of(ReplacementState::Outdated).take(room);
    outdated.map(|(id, _)| id.clone()).collect()
}
