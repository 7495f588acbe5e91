//! Runs a real control plane to look at.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use loadtest::control_plane::{ControlPlane, Params};

/// A real Kubernetes control plane on loopback, which runs until this process ends.
#[derive(Parser)]
struct Arguments {
    /// Where to write the administrator's kubeconfig, as `admin.kubeconfig`.
    #[arg(long)]
    kubeconfig_dir: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Arguments::parse().kubeconfig_dir).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The chain alone: a backtrace would bury what to install.
            eprintln!("control-plane: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(kubeconfig_dir: &Path) -> anyhow::Result<()> {
    let plane = ControlPlane::start(Params::default()).await?;
    std::fs::create_dir_all(kubeconfig_dir).context("making the folder for the kubeconfig")?;
    let path = kubeconfig_dir.join("admin.kubeconfig");
    std::fs::write(&path, plane.admin_kubeconfig()).context("writing the kubeconfig")?;
    println!(
        "Kubernetes {} at {}",
        plane.server_version().await?,
        plane.server()
    );
    println!("data and logs in {}", plane.folder().display());
    println!("export KUBECONFIG={}", path.display());
    tokio::signal::ctrl_c().await.context("waiting for ^C")?;
    plane.shutdown().await?;
    Ok(())
}
