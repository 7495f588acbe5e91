//! `osm completions`: shell completion scripts.

use std::process::ExitCode;

use clap_complete::{Shell, generate};

use super::{Cli, output};

pub(super) fn run(shell: Shell) -> anyhow::Result<ExitCode> {
    let mut text = Vec::new();
    generate(shell, &mut Cli::definition(), "osm", &mut text);
    output::document(text)?;
    Ok(output::SUCCESS)
}
