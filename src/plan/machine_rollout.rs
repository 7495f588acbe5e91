//! Which machine deployments replace their machines, since these were made from another
//! provisioning document than machines get now.
//!
//! machine-controller makes new machines whenever it raises the revision, from what stands there
//! for that revision. So what machines were made from is what stood there when their revision was
//! first served; it is written down then, and compared from then on. Who is told to replace its
//! machines gets a new revision by that: nobody is told twice for one document, whatever becomes of
//! the bytes.

use std::fmt;

use super::{
    desired::Desired,
    digest::Digest,
    observed::{Observed, Seen},
};
use crate::api::{
    machine_deployment::{MachineDeployment, MachineDeploymentStatus},
    names::{CONTENT, MACHINES_MADE_FROM, MADE_FOR_REVISION, REPLACED_FOR, REVISION},
};

/// What the machines of one revision were made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeFrom {
    /// The revision.
    pub revision: String,
    /// The digest of the provisioning document, in short.
    pub content: String,
    /// What tells the key of the digest, in short: digests by two keys cannot be compared.
    pub key: String,
}

impl MadeFrom {
    /// Reads what stands in an annotation. What cannot be read was not written by us.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.rsplitn(3, ' ');
        let key = words.next()?.to_owned();
        let content = words.next()?.to_owned();
        let revision = words.next()?.to_owned();
        Some(Self {
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

/// What the machines of a machine deployment were made from, and what they would be made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machines {
    /// What they were made from.
    pub made_from: MadeFrom,
    /// The digest of the document that machines get now, in short.
    pub content: String,
}

impl Machines {
    /// Whether they were made from another document.
    pub fn are_outdated(&self) -> bool {
        self.made_from.content != self.content
    }
}

/// What the machines were made from, and what they would be made from once the changes are
/// written; nothing where machines are not replaced.
pub fn machines(desired: &Desired, observed: &Observed) -> Option<Machines> {
    let key = desired.machines_key.as_ref()?.short().to_owned();
    let revision = &desired.stamp.revision;
    let content = content(desired, observed)?;
    // What stands there for this revision is what its machines were made from.
    let standing = observed.provisioning.as_ref();
    let standing = standing.filter(|it| it.annotation(MADE_FOR_REVISION) == Some(revision));
    let first = MadeFrom {
        revision: revision.clone(),
        content: standing
            .map_or(content, |it| &it.content)
            .short()
            .to_owned(),
        key,
    };
    let said = observed.kubelet_kubeconfig.as_ref();
    let said = said.and_then(|seen| seen.annotation(MACHINES_MADE_FROM));
    let before = said.and_then(MadeFrom::parse);
    let before = before.filter(|before| before.revision == *revision);
    Some(Machines {
        made_from: match before {
            None => first,
            Some(before) if before.key == first.key => before,
            Some(before) if standing.is_some_and(|it| was_written_as(it, &before)) => first,
            // They were made from something else than what stood there: they still were.
            Some(before) => MadeFrom {
                content: before.content,
                ..first
            },
        },
        content: content.short().to_owned(),
    })
}

/// The digest of the provisioning document, once the changes are written.
fn content<'a>(desired: &'a Desired, observed: &'a Observed) -> Option<&'a Digest> {
    let kept = observed.provisioning.as_ref();
    let kept = kept.filter(|seen| desired.documents.is_none() || desired.stamp.keeps(seen));
    let rendered = desired.documents.as_ref().map(|it| &it.provisioning.1);
    kept.map(|seen| &seen.content).or(rendered)
}

/// Whether a document had the digest when it was written, by the key of that time.
fn was_written_as(seen: &Seen, made_from: &MadeFrom) -> bool {
    let written = seen.annotation(CONTENT);
    written.is_some_and(|digest| Digest::from_annotation(digest).short() == made_from.content)
}

/// Where a machine deployment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is nothing to say of it: it goes, is not served, or has just got another revision.
    Apart,
    /// Its machines were made from what machines get now.
    Current,
    /// They were not.
    Outdated,
    /// They were not, and nobody touches it: it is paused, or has not come to rest.
    HeldBack,
    /// It was told to replace its machines, and is not done.
    Replacing,
}

/// Where a machine deployment stands. There are no machines to speak of where it is not served.
pub fn standing(found: &MachineDeployment, machines: Option<&Machines>) -> Standing {
    if found.metadata.deletion_timestamp.is_some() || found.spec.is_unreadable {
        return Standing::Apart;
    }
    let told = replaced_for(found);
    if told.is_some() && !is_at_rest(found) {
        return Standing::Replacing;
    }
    let revision = found.metadata.annotations.as_ref();
    let revision = revision
        .and_then(|it| it.get(REVISION))
        .map_or("", String::as_str);
    // One that has another revision by now is looked at again in a moment.
    let Some(machines) = machines.filter(|it| it.made_from.revision == revision) else {
        return Standing::Apart;
    };
    if !machines.are_outdated() {
        return Standing::Current;
    }
    if told == Some(&machines.content) {
        // machine-controller has not raised the revision yet.
        return Standing::Replacing;
    }
    if found.spec.paused == Some(true) || !is_at_rest(found) {
        return Standing::HeldBack;
    }
    Standing::Outdated
}

/// The digest of the document that machines were last replaced for.
pub fn replaced_for(found: &MachineDeployment) -> Option<&str> {
    let metadata = found.spec.template.metadata.as_ref()?;
    let annotations = metadata.annotations.as_ref()?;
    annotations.get(REPLACED_FOR).map(String::as_str)
}

/// Whether machine-controller has seen the machine deployment as it stands, and every machine that
/// should be there was made from its template and can be used.
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
    let is_seen = observed_generation.unwrap_or(0) >= found.metadata.generation.unwrap_or(0);
    let counts = [replicas, updated_replicas, available_replicas];
    is_seen && counts.iter().all(|count| count.unwrap_or(0) == wanted)
}

/// Who is told to replace its machines now, of those in this order: as many as there is room for
/// beside those that are at it.
pub fn turns<Id: Clone>(standings: &[(Id, Standing)], max_concurrent: usize) -> Vec<Id> {
    let of = |wanted: Standing| standings.iter().filter(move |(_, it)| *it == wanted);
    let room = max_concurrent.saturating_sub(of(Standing::Replacing).count());
    let outdated = of(Standing::Outdated).take(room);
    outdated.map(|(id, _)| id.clone()).collect()
}
