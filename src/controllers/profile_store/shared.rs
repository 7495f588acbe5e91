//! The contents of profiles, each with its compiled form, and one copy of each.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock, Weak},
};

use parking_lot::Mutex;

use super::ContentId;
use crate::api::profile::OperatingSystemProfileSpec;
use crate::controllers::profile_quota::Size;
use crate::render::{RenderError, template::CompiledProfile};
use crate::render_worker::Renderer;

/// A compiled profile, or the reason why it cannot be compiled.
pub type Compiled = Result<Arc<CompiledProfile>, Arc<RenderError>>;

/// A content, which is compiled at its first use.
#[derive(Debug)]
pub struct SharedProfile {
    pub(super) id: ContentId,
    pub(super) size: Size,
    pub(super) spec: Arc<OperatingSystemProfileSpec>,
    compiled: OnceLock<Compiled>,
}

/// The contents that stores have, by their digests. Clones are the same table.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents(Arc<Mutex<HashMap<ContentId, Weak<SharedProfile>>>>);

impl Contents {
    /// Returns the only copy of a content.
    pub(super) fn intern(
        &self,
        (id, size): (ContentId, Size),
        spec: OperatingSystemProfileSpec,
    ) -> Arc<SharedProfile> {
        let mut known = self.0.lock();
        if let Some(shared) = known.get(&id).and_then(Weak::upgrade) {
            return shared;
        }
        // Before the table grows, contents that were dropped are removed. A reconcile may have held
        // one longer than the last profile with it existed.
        if known.len() == known.capacity() {
            known.retain(|_, content| content.strong_count() > 0);
        }
        let shared = Arc::new(SharedProfile::new((id, size), spec));
        known.insert(id, Arc::downgrade(&shared));
        shared
    }

    /// Drops a content, and forgets it if nobody else has it.
    pub(super) fn release(&self, shared: Arc<SharedProfile>) {
        let id = shared.id;
        drop(shared);
        let mut known = self.0.lock();
        let content = known.get(&id);
        if content.is_some_and(|content| content.strong_count() == 0) {
            known.remove(&id);
        }
    }

    /// Returns the number of contents.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl SharedProfile {
    pub(super) fn new((id, size): (ContentId, Size), spec: OperatingSystemProfileSpec) -> Self {
        Self {
            id,
            size,
            spec: Arc::new(spec),
            compiled: OnceLock::new(),
        }
    }

    /// Returns the profile's spec.
    pub fn spec(&self) -> &OperatingSystemProfileSpec {
        &self.spec
    }

    /// Returns the digest of the content, in hex.
    pub fn content(&self) -> String {
        hex::encode(self.id)
    }

    /// Compiles the profile at the first call, which takes some milliseconds of a core. Concurrent
    /// calls wait for it. Templates that a worker renders are not kept: it compiles its own.
    ///
    /// # Errors
    ///
    /// A template cannot be compiled. The error is kept like a result.
    pub fn compile(&self, renderer: &Renderer) -> Compiled {
        let compile = || {
            let compiled = CompiledProfile::compile_shared(&self.spec).map_err(Arc::new)?;
            let compiled = match renderer.workers_for(&compiled) {
                Some(_) => compiled.drop_templates(),
                None => compiled,
            };
            Ok(Arc::new(compiled))
        };
        self.compiled.get_or_init(compile).clone()
    }
}
