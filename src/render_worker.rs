//! Renders tenant-written profiles in worker processes, so that a hostile template can only kill
//! its worker.
//!
//! The template engine accounts for instructions and memory, and reports the line that exceeds a
//! limit. The worker is the second wall, for anything that accounting misses: the kernel enforces
//! its memory limit, and the pool kills it at a deadline. Profiles that we ship are rendered in
//! process.
//!
//! ```text
//! reconcile ─► Pool ─► Slot (fair queue of tenants) ─► Worker ═ pipes ═► osm render-worker
//!                                                        Task ──────────► compile once, render
//!                                                        documents ◄───── or the RenderError
//! ```

mod limit_hits;
mod pipe;
mod pool;
mod serve;
mod task;
mod worker;

use std::{fmt, sync::Arc};

pub use self::{
    pool::{Pool, Slot},
    serve::serve,
    worker::{ALLOCATOR_SETTINGS, DEADLINE, WorkerError},
};
use crate::render::template::CompiledProfile;

/// The hidden subcommand that starts a worker.
pub const COMMAND: &str = "render-worker";

/// The memory limit of a worker, in bytes. The most expensive template in `tests/hostile` needs
/// 22 MiB, profile and answer included.
pub const MEMORY_BYTES_MAX: usize = 64 << 20;

/// The size of the profiles that a worker keeps compiled, in bytes of JSON. A compiled profile
/// takes about 17 times as much memory.
const KEPT_BYTES_MAX: usize = 512 << 10;

/// Renders tenant-written profiles.
#[derive(Clone)]
pub enum Renderer {
    /// In this process. For tests on a paused clock.
    InProcess,
    /// In worker processes.
    Workers(Arc<Pool>),
}

impl Renderer {
    /// Returns the pool that must render a profile, or `None` for a profile that may be rendered in
    /// this process.
    pub fn workers_for(&self, profile: &CompiledProfile) -> Option<&Pool> {
        match self {
            Self::Workers(pool) if !profile.is_shipped() => Some(pool),
            _ => None,
        }
    }

    /// Stops idle workers until cancelled.
    pub async fn stop_idle(self) {
        match self {
            Self::InProcess => std::future::pending().await,
            Self::Workers(pool) => pool.stop_idle().await,
        }
    }
}

impl fmt::Debug for Renderer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::InProcess => "in process",
            Self::Workers(_) => "workers",
        })
    }
}
