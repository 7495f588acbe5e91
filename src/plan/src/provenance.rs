//! The provenance of an object: what it was created for and from, according to its annotations.

use std::collections::BTreeMap;

use super::{digest::Digest, observed::Seen};
use osm_api::names::{
    CONTENT, INPUTS, KEPT, MADE_FOR, MADE_FOR_ANNOTATIONS, MADE_FOR_PROFILE_VERSION,
    MADE_FOR_REVISION, NEAR_LIMIT, TEMPLATE,
};

/// An input of every render. Raise it only when a new release must render everything again.
pub const RENDERER_GENERATION: &str = "1";

/// The provenance annotations of the objects of a machine deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provenance {
    /// The machine deployment's revision.
    pub revision: String,
    /// The hash of the machine deployment's annotations.
    pub annotations_hash: String,
    /// The profile's version.
    pub profile_version: String,
    /// The digest of all inputs of the render.
    pub inputs: Option<Digest>,
    /// The digest of the parts of the template that are rendered. They are no inputs of their own:
    /// when they change, machine-controller raises the revision.
    pub template: Option<Digest>,
    /// The machine deployment, as `namespace/name`.
    pub made_for: String,
    /// A sentence about a document that is close to its size limit. It is stored so that it can be
    /// reported again when nothing is rendered.
    pub near_limit: Option<String>,
}

impl Provenance {
    /// Returns the annotations of an object with this content.
    pub fn annotations(&self, content: &Digest) -> BTreeMap<String, String> {
        let inputs = self.inputs.as_ref().map(Digest::as_str).unwrap_or_default();
        let near_limit = self.near_limit.as_deref().map(|text| (NEAR_LIMIT, text));
        let template = self.template.as_ref().map(|it| (TEMPLATE, it.short()));
        [
            (MADE_FOR_REVISION, self.revision.as_str()),
            (MADE_FOR_ANNOTATIONS, &self.annotations_hash),
            (MADE_FOR_PROFILE_VERSION, &self.profile_version),
            (MADE_FOR, &self.made_for),
            (INPUTS, inputs),
            (CONTENT, content.as_str()),
        ]
        .into_iter()
        .chain(near_limit)
        .chain(template)
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
    }

    /// Returns true if an object has the same provenance: the three annotations that other programs
    /// read, and ours.
    pub(super) fn is_on(&self, seen: &Seen) -> bool {
        self.upstream_is_on(seen)
            && seen.annotation(INPUTS) == self.inputs.as_ref().map(Digest::as_str)
    }

    /// Returns true if an object was rendered from another template for the same revision:
    /// machine-controller has not raised it yet. Nothing is known of objects without the digest.
    pub fn awaits_revision(&self, seen: &Seen) -> bool {
        let template = self.template.as_ref().map(Digest::short);
        let rendered = seen.annotation(TEMPLATE);
        seen.annotation(MADE_FOR_REVISION) == Some(&self.revision)
            && template
                .zip(rendered)
                .is_some_and(|(now, then)| now != then)
    }

    /// Returns true if an object keeps its bytes, whatever we render: another program created it
    /// for the same revision, annotations and profile, or it was kept before and nothing changed.
    pub(super) fn keeps(&self, seen: &Seen) -> bool {
        if seen.annotation(KEPT).is_some() {
            self.is_on(seen) && seen.is_intact()
        } else {
            !seen.is_ours() && self.upstream_is_on(seen)
        }
    }

    /// Returns true if the three annotations that other programs read are the same.
    fn upstream_is_on(&self, seen: &Seen) -> bool {
        seen.annotation(MADE_FOR_REVISION) == Some(&self.revision)
            && seen.annotation(MADE_FOR_ANNOTATIONS) == Some(&self.annotations_hash)
            && seen.annotation(MADE_FOR_PROFILE_VERSION) == Some(&self.profile_version)
    }
}
