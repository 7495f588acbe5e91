//! Builds the control plane that the tests run, or runs one to look at.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use loadtest::control_plane::{Assets, ControlPlane, Params};

/// A real Kubernetes control plane on loopback, for tests.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build kube-apiserver, kube-controller-manager, etcd and kubectl into the cache folder, where
    /// they are not there yet, and print the folder.
    Build,
    /// Run one cluster until this process ends.
    Run {
        /// Where to write the administrator's kubeconfig, as `admin.kubeconfig`.
        #[arg(long)]
        kubeconfig_dir: PathBuf,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Build => build().await,
        Command::Run { kubeconfig_dir } => run(kubeconfig_dir).await,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The chain alone: a backtrace would bury what to install.
            eprintln!("control-plane: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn build() -> anyhow::Result<()> {
    println!("{}", Assets::find().await?.folder().display());
    Ok(())
}

async fn run(kubeconfig_dir: PathBuf) -> anyhow::Result<()> {
    let plane = ControlPlane::start(Params::default()).await?;
    std::fs::create_dir_all(&kubeconfig_dir).context("making the folder for the kubeconfig")?;
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
