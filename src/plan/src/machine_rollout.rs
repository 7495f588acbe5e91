//! Decides which machine deployments replace their machines, because the provisioning document
//! changed after the machines were created.
//!
//! machine-controller creates new machines whenever it raises the revision, from the document that
//! is stored for that revision. So machines were created from the document that was stored when
//! their revision was first served. Its digest is recorded then, and compared from then on. A
//! request to replace machines raises the revision, so a machine deployment is never asked twice
//! for the same document, whatever happens to the bytes.

use std::fmt;

use super::{
    desired::Desired,
    digest::{Digest, SHORT_CHARACTERS},
    observed::{Observed, Seen},
};
use osm_api::{
    machine_deployment::{MachineDeployment, MachineDeploymentStatus},
    names::{CONTENT, MACHINES_MADE_FROM, MADE_FOR_REVISION, REPLACED_FOR, REVISION},
};

/// The longest revision of which machines are replaced. machine-controller counts from 1.
const REVISION_CHARACTERS_MAX: usize = 20;

/// What the machines of one revision were created from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeFrom {
    /// The machine deployment's revision.
    pub revision: String,
    /// The shortened digest of the provisioning document.
    pub content: String,
    /// A shortened digest that identifies the key of `content`: digests with different keys cannot
    /// be compared.
    pub key: String,
}

impl MadeFrom {
    /// Parses an annotation's value. Returns `None` if it has fewer than three words, or longer
    /// ones than ours, so we did not write it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.rsplitn(3, ' ');
        let key = words.next()?.to_owned();
        let content = words.next()?.to_owned();
        let revision = words.next()?.to_owned();
        let is_short = key.len().max(content.len()) <= SHORT_CHARACTERS;
        (is_short && revision.len() <= REVISION_CHARACTERS_MAX).then_some(Self {
            revision,
            content,
            key,
        })
    }
}

impl fmt::Display for MadeFrom {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {} {}", self.revision, self.content, self.key)
    }
}

/// What the machines of a machine deployment were created from, and what new ones are created from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machines {
    /// What the existing machines were created from.
    pub made_from: MadeFrom,
    /// The shortened digest of the document that new machines get.
    pub content: String,
}

impl Machines {
    /// Returns true if the existing machines were created from another document.
    pub fn are_outdated(&self) -> bool {
        self.made_from.content != self.content
    }
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
    // The machines of this revision were created from the document that is stored for it.
    let stored = observed.provisioning.as_ref();
    let stored = stored.filter(|it| it.annotation(MADE_FOR_REVISION) == Some(revision));
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
    })
}

/// Returns the digest of the provisioning document, once the changes are written.
fn provisioning_digest<'a>(desired: &'a Desired, observed: &'a Observed) -> Option<&'a Digest> {
    let kept = observed.provisioning.as_ref();
    let kept = kept.filter(|seen| desired.documents.is_none() || desired.provenance.keeps(seen));
    let rendered = desired.documents.as_ref().map(|it| &it.provisioning.1);
    kept.map(|seen| &seen.content).or(rendered)
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
    /// Its machines were created from the current document.
    Current,
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
    if !machines.are_outdated() {
        return ReplacementState::Current;
    }
    if requested == Some(&machines.content) {
        // machine-controller has not raised the revision yet.
        return ReplacementState::Replacing;
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
