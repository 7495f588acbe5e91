//! How far the machines of a machine deployment may be behind the document that new ones get: what
//! all changes of the document take together, since the revision was first served.
//!
//! It is written before the document is, so that a crash in between loses nothing. A document that
//! came there in another way, such as by an older release, may differ by anything.

use kube_core::ResourceExt as _;

use super::{
    desired::{Desired, provisioning_digest, stored_for},
    digest::Digest,
    input_digests,
    observed::{Observed, Seen},
    records::{Behind, MadeFrom, PARTS_CHARACTERS_MAX, REVISION_CHARACTERS_MAX},
    validate::Deployment,
};
use osm_api::{
    change::Class,
    names::{
        CONTENT, INPUT_DIGESTS, MACHINES_BEHIND, MACHINES_MADE_FROM, MADE_FOR_ANNOTATIONS,
        MADE_FOR_PROFILE_VERSION,
    },
    worker_cluster::MachineUpdates,
};
use osm_render::machine_updates::{self, is_taken};
use osm_rules::effect::{Effect, class, greatest_parts};
use osm_tenant::report::excerpt;

/// Returns the provisioning Secret whose document is about to be replaced although machines of this
/// revision may have it. If somebody else changed it, they have another one.
pub fn replaced<'a>(desired: &Desired, observed: &'a Observed) -> Option<&'a Seen> {
    let stored = stored_for(desired, observed)?;
    let content = provisioning_digest(desired, observed)?.short();
    let is_replaced = desired.compares_machines && !leads_to(content, stored);
    (is_replaced && (stored.is_intact() || !stored.is_ours())).then_some(stored)
}

/// Returns the effects without those of files that machines put into place by themselves: machines
/// from before they were to do so are behind by more than that.
pub fn left_to_others(deployment: &Deployment, effects: Vec<Effect>) -> Vec<Effect> {
    let annotations = deployment.machine_deployment.annotations();
    let wanted = machine_updates::wanted(annotations, &deployment.settings);
    let profile = deployment.profile.spec();
    let is_taken = |it: &Effect| it.class <= Class::Reload && is_taken(&it.part, profile);
    match wanted {
        Ok(MachineUpdates::Reload) => effects.into_iter().filter(|it| !is_taken(it)).collect(),
        _ => effects,
    }
}

/// Returns how far machines may be behind once the changes are written. `effects` are those of the
/// new document on machines that have the existing one; `None` if they are not known. Returns
/// `None` if no document of this revision has been replaced, or if that is not recorded.
pub fn behind(
    desired: &Desired,
    observed: &Observed,
    effects: Option<Vec<Effect>>,
) -> Option<Behind> {
    let revision = &desired.provenance.revision;
    let is_recordable = revision.len() <= REVISION_CHARACTERS_MAX && !revision.contains(' ');
    if !desired.compares_machines || !is_recordable {
        return None;
    }
    let content = provisioning_digest(desired, observed)?.short();
    let stored = stored_for(desired, observed);
    let is_changed = stored.is_some_and(|stored| !leads_to(content, stored));
    let before = match before(revision, observed, (stored, content)) {
        // It was recorded, and the document may not have been written yet.
        Before::Known(known) if known.to == content => return Some(known),
        Before::Nothing if !is_changed => return None,
        Before::Nothing => (Class::None, String::new()),
        Before::Known(known) => (known.class, known.parts),
        Before::Unknown => (Class::NewMachine, "an unknown document".to_owned()),
    };
    let unread = || vec![Effect::new_machine("a document that cannot be read")];
    let effects = if is_changed {
        effects.unwrap_or_else(unread)
    } else {
        Vec::new()
    };
    let class = class(&effects);
    let (class, parts) = if !effects.is_empty() && class >= before.0 {
        let cause = cause(desired, stored);
        let parts = format!("{cause} {}", greatest_parts(&effects));
        (class, excerpt(&parts, PARTS_CHARACTERS_MAX))
    } else {
        before
    };
    Some(Behind {
        revision: revision.clone(),
        class,
        over: stored.map_or(content, |it| it.content.short()).to_owned(),
        to: content.to_owned(),
        parts,
    })
}

/// Returns what asks for the new document, as far as the annotations of the existing one tell.
fn cause(desired: &Desired, stored: Option<&Seen>) -> String {
    let was = |key| stored.and_then(|it| it.annotation(key));
    let version = &desired.provenance.profile_version;
    if was(MADE_FOR_PROFILE_VERSION) != Some(version) {
        return format!("profile {version} changes");
    }
    if was(MADE_FOR_ANNOTATIONS) != Some(&desired.provenance.annotations_hash) {
        return "annotations change".to_owned();
    }
    let Some(before) = was(INPUT_DIGESTS) else {
        return "settings change".to_owned();
    };
    match input_digests::changed(before, &desired.input_digests).as_slice() {
        [] => "other inputs change".to_owned(),
        [only] => format!("{only} changes"),
        [first, second] => format!("{first} and {second} change"),
        [first, second, more @ ..] => format!("{first}, {second} and {} more change", more.len()),
    }
}

/// How far machines may be behind the existing document.
enum Before {
    /// They have it.
    Nothing,
    /// As far as this, or less.
    Known(Behind),
    /// They have a document that nothing is known of.
    Unknown,
}

/// `content` is the digest of the new document, which machines have if none is stored.
fn before(revision: &str, observed: &Observed, (stored, content): (Option<&Seen>, &str)) -> Before {
    let recorded = |key| observed.kubelet_kubeconfig.as_ref()?.annotation(key);
    let behind = recorded(MACHINES_BEHIND).map(Behind::parse);
    if stored.is_some() && behind == Some(None) {
        return Before::Unknown;
    }
    let made_from = recorded(MACHINES_MADE_FROM).and_then(MadeFrom::parse);
    let made_from = made_from.filter(|it| it.revision == revision);
    let is_stored =
        |digest: &str| stored.map_or(digest == content, |stored| leads_to(digest, stored));
    let behind = behind.flatten().filter(|it| it.revision == revision);
    match (behind, made_from) {
        (Some(known), _) if is_stored(&known.to) || is_stored(&known.over) => Before::Known(known),
        (Some(_), _) => Before::Unknown,
        // An older release recorded that the machines are outdated, and not by what.
        (None, Some(made_from)) if !is_stored(&made_from.content) => Before::Unknown,
        (None, _) => Before::Nothing,
    }
}

/// Returns true if a Secret has the document with this digest, with the key of now or of the time
/// when it was written.
fn leads_to(short: &str, stored: &Seen) -> bool {
    let written = stored.annotation(CONTENT).map(Digest::from_annotation);
    stored.content.short() == short || written.is_some_and(|it| it.short() == short)
}
