//! `osm version`: prints which build this is, and which the manager's replicas are.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::{
    clusters::{ManagementFlags, ManagerNamespace},
    format::OutputFlags,
    output,
};
use crate::commands::version::of_replicas;
use crate::telemetry::{
    build::{COMMIT, UNKNOWN, VERSION},
    chain::whole,
};
use crate::tenant::report::counted;

/// The flags of `osm version`.
#[derive(Args, Debug)]
pub(super) struct VersionFlags {
    /// Print only the version of this program
    #[arg(long)]
    client: bool,
    #[command(flatten)]
    management: ManagementFlags,
    #[command(flatten)]
    manager: ManagerNamespace,
    #[command(flatten)]
    output: OutputFlags,
}

#[derive(Serialize)]
struct Versions {
    version: &'static str,
    commit: &'static str,
    /// The manager's replicas, if the management cluster was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    manager: Option<Vec<Replicas>>,
}

#[derive(Serialize)]
struct Replicas {
    version: String,
    replicas: usize,
}

pub(super) fn run(flags: &VersionFlags) -> anyhow::Result<ExitCode> {
    let versions = Versions {
        version: VERSION,
        commit: COMMIT,
        manager: if flags.client { None } else { manager(flags)? },
    };
    flags.output.print(&versions, [VERSION.to_owned()], |_| {
        let commit = match COMMIT {
            UNKNOWN => "unknown (OSM_COMMIT was not set when this was built)",
            commit => commit,
        };
        let mut lines = vec![format!("osm {VERSION}"), format!("commit {commit}")];
        for Replicas { version, replicas } in versions.manager.iter().flatten() {
            let version = match version.as_str() {
                "" => "of a version that does not say",
                version => version,
            };
            let replicas = counted(*replicas, "replica", "replicas");
            lines.push(format!("manager {version} ({replicas})"));
        }
        lines.iter().collect()
    })?;
    Ok(output::SUCCESS)
}

/// Asks the management cluster. This program's own version is an answer without it.
fn manager(flags: &VersionFlags) -> anyhow::Result<Option<Vec<Replicas>>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let source = flags.management.source();
    match runtime.block_on(of_replicas(&source, &flags.manager.manager_namespace)) {
        Ok(found) => {
            let found = found.into_iter();
            let replicas = found.map(|(version, replicas)| Replicas { version, replicas });
            Ok(Some(replicas.collect()))
        }
        Err(error) => {
            let why = whole(error.as_ref());
            output::note(&format!("the manager's version is not known: {why}"));
            Ok(None)
        }
    }
}
