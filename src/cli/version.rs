//! `osm version`: prints which build this is.

use std::process::ExitCode;

use super::output;
use crate::telemetry::build::{COMMIT, VERSION};

pub(super) fn run() -> anyhow::Result<ExitCode> {
    output::lines([format!("osm {VERSION}"), format!("commit {COMMIT}")])?;
    Ok(output::SUCCESS)
}
