//! The commands of `osm`.

pub mod crds;
mod run;

use clap::{Parser, Subcommand};

use crate::settings::RunFlags;

/// One process that configures the nodes of every worker cluster.
#[derive(Debug, Parser)]
#[command(
    name = "osm",
    version,
    about,
    after_help = "Examples:
  osm crds | kubectl apply -f -
  osm run --kubeconfig management.kubeconfig"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve every registered worker cluster until a signal comes.
    #[command(after_help = "Examples:
  osm run --kubeconfig management.kubeconfig --log-format text
  osm run --allow-loopback-servers --otlp-endpoint http://127.0.0.1:4317

SIGTERM and SIGINT end it gracefully; a second one at once.")]
    Run(Box<RunFlags>),
    /// Print the CustomResourceDefinitions as YAML.
    Crds,
}

impl Cli {
    /// Runs the command that was given.
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Run(flags) => run::run(*flags),
            Command::Crds => {
                print!("{}", crds::crds_yaml()?);
                Ok(())
            }
        }
    }
}
