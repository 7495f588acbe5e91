//! The commands of `osm`.

mod convert;
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
    /// Write a profile in Go's template language anew in Jinja, rendering the same bytes.
    #[command(after_help = "Examples:
  osm convert osp-custom.yaml -o osp-custom-jinja.yaml
  osm convert osp-custom.yaml --check
  kubectl get osp custom -o yaml | osm convert - | kubectl apply -f -

It ends with 0 when all went well, with 1 when the profile cannot be converted or the two forms
differ, and with 2 when it was called wrongly.")]
    Convert(convert::ConvertFlags),
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
            Command::Convert(flags) => convert::run(&flags),
        }
    }
}
