//! The records about machines on the kubelet's kubeconfig Secret: what they were created from, and
//! how far they are behind. Each is an annotation.

use std::fmt;

use super::digest::SHORT_CHARACTERS;
use osm_api::{change::Class, worker_cluster::BehindEntry};

/// The longest revision of which machines are replaced. machine-controller counts from 1.
pub(super) const REVISION_CHARACTERS_MAX: usize = 20;

/// The longest parts of a record, and the longest annotation that we write.
pub(super) const PARTS_CHARACTERS_MAX: usize = 300;
const CHARACTERS_MAX: usize = 400;

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

/// How far machines may be behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The revision of the machines.
    pub revision: String,
    /// What the changes take together.
    pub class: Class,
    /// The shortened digest of the document that was replaced last.
    pub over: String,
    /// The shortened digest of the document that new machines get.
    pub to: String,
    /// What asked for the change that takes the most, and its files and units; empty if nothing
    /// differs.
    pub parts: String,
}

impl Behind {
    /// Parses an annotation's value. Returns `None` if we did not write it.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.splitn(5, ' ');
        let (revision, class) = (words.next()?.to_owned(), Class::named(words.next()?)?);
        let (over, to) = (words.next()?.to_owned(), words.next()?.to_owned());
        let is_short = over.len().max(to.len()) <= SHORT_CHARACTERS;
        let is_ours = is_short && text.chars().count() <= CHARACTERS_MAX;
        let parts = words.next().unwrap_or_default().to_owned();
        is_ours.then_some(Self {
            revision,
            class,
            over,
            to,
            parts,
        })
    }

    /// Returns what a status says of it: nothing if nothing differs.
    pub fn entry(&self) -> Option<BehindEntry> {
        (self.class != Class::None).then(|| BehindEntry {
            class: self.class,
            parts: self.parts.clone(),
            document: self.to.clone(),
        })
    }
}

impl fmt::Display for Behind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            revision,
            class,
            over,
            to,
            parts,
        } = self;
        write!(formatter, "{revision} {class} {over} {to} {parts}")
    }
}
