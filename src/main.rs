//! The `osm` command.

use std::process::ExitCode;

use osm::cli::{Cli, completions, drop_in, memory};
use tikv_jemallocator::Jemalloc;

/// Memory peaks when thousands of tenants are engaged concurrently. jemalloc returns it to the
/// kernel afterwards; glibc keeps it in fragments (decision 0027).
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    memory::forbid_dumps();
    // A dependency may add a second provider, so one is installed before the first use.
    let chosen = rustls::crypto::ring::default_provider().install_default();
    debug_assert!(chosen.is_ok(), "nothing has chosen a provider before");
    completions::complete();
    drop_in::run(std::env::args_os()).unwrap_or_else(|| Cli::read(std::env::args_os()).run())
}
