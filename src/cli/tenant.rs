//! `osm tenant`: what is done to one tenant, on live clusters.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};

use crate::app::release::{self, Mode, Params};

/// What is done to a tenant.
#[derive(Debug, Subcommand)]
pub(super) enum TenantCommand {
    /// Hand a worker cluster back to the operating-system-manager that served it before.
    Release(ReleaseFlags),
}

/// The flags of `osm tenant release`.
#[derive(Debug, Args)]
pub(super) struct ReleaseFlags {
    /// The tenant's namespace in the management cluster
    namespace: String,
    /// The way into the management cluster; without it what kubectl takes
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The way into the worker cluster, as somebody who may write profiles and configs there
    #[arg(long, value_name = "FILE")]
    worker_kubeconfig: PathBuf,
    /// Tell what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(command: TenantCommand) -> anyhow::Result<ExitCode> {
    let TenantCommand::Release(flags) = command;
    let params = Params {
        namespace: flags.namespace,
        kubeconfig: flags.kubeconfig,
        worker_kubeconfig: flags.worker_kubeconfig,
        mode: if flags.dry_run {
            Mode::DryRun
        } else {
            Mode::Write
        },
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(release::release(params, &mut |line| println!("{line}")))?;
    Ok(ExitCode::SUCCESS)
}
