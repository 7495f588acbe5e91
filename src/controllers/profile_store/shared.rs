//! A content of profiles, and its compiled form.

use std::sync::{Arc, OnceLock};

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
