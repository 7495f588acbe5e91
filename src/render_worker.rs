//! Templates that tenants wrote are rendered in processes of their own: whatever one of them does
//! to its process, this one goes on.
//!
//! The engine bounds what a template may take, and says in which line it asks for more. A worker
//! bounds what the engine may take where that accounting has a hole: the kernel ends a worker that
//! asks for more memory than it may have, and the pool one that takes too long. Profiles that we
//! ship are rendered in this process.
//!
//! ```text
//! reconcile ─► Pool ─► a turn, tenant by tenant ─► Worker ═ pipes ═► osm render-worker
//!                                                     Task ─────────► compile once, render
//!                                                     documents ◄──── or why there are none
//! ```

mod pipe;
mod pool;
mod serve;
mod slow;
mod task;
mod worker;

use std::{fmt, sync::Arc};

pub use self::{
    pool::{Pool, Turn},
    serve::serve,
    worker::{DEADLINE, Stopped},
};
use crate::render::template::CompiledProfile;

/// The command that a worker is started with.
pub const COMMAND: &str = "render-worker";

/// Bytes of memory that a worker may take. The worst of the templates that were tried takes 33 MiB
/// of a process that renders it.
pub const MEMORY_BYTES_MAX: usize = 64 << 20;

/// Of how many bytes of profiles, as JSON, a worker keeps what they are compiled to: about 17 times
/// as many.
const KEPT_BYTES_MAX: usize = 512 << 10;

/// Where templates are rendered that tenants wrote.
#[derive(Clone)]
pub enum Renderer {
    /// In this process, as those that we ship.
    Here,
    /// In others.
    Workers(Arc<Pool>),
}

impl Renderer {
    /// The workers that render a profile; none where this process does.
    pub fn workers_for(&self, profile: &CompiledProfile) -> Option<&Pool> {
        match self {
            Self::Workers(pool) if !profile.is_shipped() => Some(pool),
            _ => None,
        }
    }

    /// Ends workers that nobody has needed for a while, for as long as it is polled.
    pub async fn tidy(self) {
        match self {
            Self::Here => std::future::pending().await,
            Self::Workers(pool) => pool.tidy().await,
        }
    }
}

impl fmt::Debug for Renderer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Here => "here",
            Self::Workers(_) => "workers",
        })
    }
}
