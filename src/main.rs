//! The `osm` command.

use std::process::ExitCode;

use clap::Parser;
use osm::cli::{Cli, drop_in};

fn main() -> ExitCode {
    // Some dependency may bring a second provider: the choice is made before the first use.
    let chosen = rustls::crypto::ring::default_provider().install_default();
    debug_assert!(chosen.is_ok(), "nothing has chosen a provider before");
    drop_in::run(std::env::args_os()).unwrap_or_else(|| Cli::parse().run())
}
