//! One content of profiles, and what it is compiled to.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::ContentId;
use crate::api::profile::OperatingSystemProfileSpec;
use crate::render::{RenderError, template::CompiledProfile};

/// What a profile is compiled to, or why it cannot be.
pub type Compiled = Result<Arc<CompiledProfile>, Arc<RenderError>>;

/// One content, compiled when it is used.
#[derive(Debug)]
pub struct SharedProfile {
    pub(super) id: ContentId,
    /// What it has as JSON.
    pub(super) bytes: usize,
    pub(super) spec: Arc<OperatingSystemProfileSpec>,
    known: Mutex<Known>,
}

/// Kept by whoever compiled it last.
#[derive(Debug, Default)]
enum Known {
    #[default]
    Nothing,
    Compiled(Weak<CompiledProfile>),
    Broken(Arc<RenderError>),
}

impl SharedProfile {
    pub(super) fn new((id, bytes): (ContentId, usize), spec: OperatingSystemProfileSpec) -> Self {
        Self {
            id,
            bytes,
            spec: Arc::new(spec),
            known: Mutex::default(),
        }
    }

    /// The profile's spec.
    pub fn spec(&self) -> &OperatingSystemProfileSpec {
        &self.spec
    }

    /// The digest of the content, in hex.
    pub fn content(&self) -> String {
        hex::encode(self.id)
    }

    /// Compiles the profile, unless somebody has what it is compiled to; and tells whether it did.
    /// Several who want the same wait for one.
    pub(super) fn compile(&self) -> (Compiled, bool) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Known::Nothing => {}
            Known::Broken(error) => return (Err(Arc::clone(error)), false),
            Known::Compiled(compiled) => {
                if let Some(compiled) = compiled.upgrade() {
                    return (Ok(compiled), false);
                }
            }
        }
        let compiled = CompiledProfile::compile(&self.spec);
        let compiled = compiled.map(Arc::new).map_err(Arc::new);
        *known = match &compiled {
            Ok(compiled) => Known::Compiled(Arc::downgrade(compiled)),
            Err(error) => Known::Broken(Arc::clone(error)),
        };
        (compiled, true)
    }
}
