//! `osm version`: prints which build this is.

use std::process::ExitCode;

use serde::Serialize;

use super::{format::OutputFlags, output};
use crate::telemetry::build::{COMMIT, VERSION};

#[derive(Serialize)]
struct Build {
    version: &'static str,
    commit: &'static str,
}

pub(super) fn run(output: OutputFlags) -> anyhow::Result<ExitCode> {
    let build = Build {
        version: VERSION,
        commit: COMMIT,
    };
    output.print(&build, [VERSION.to_owned()], |_| {
        let lines = [format!("osm {VERSION}"), format!("commit {COMMIT}")];
        lines.into_iter().collect()
    })?;
    Ok(output::SUCCESS)
}
