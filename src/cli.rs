//! The commands of `osm`: servers (`run`, `webhook`), commands that use clusters, and commands that
//! work on files.

mod adopt;
mod applied;
mod bom;
mod cluster_info;
mod clusters;
pub mod completions;
mod convert;
pub mod crds;
mod diff;
mod doctor;
pub mod drop_in;
mod explain;
mod format;
mod input;
mod lint;
mod machine;
pub mod memory;
mod output;
mod plan;
mod profiles;
mod progress;
mod rbac;
mod render;
mod render_worker;
mod run;
mod table;
mod tenant;
mod tenants;
mod version;
mod webhook;
mod world;

use std::{ffi::OsString, path::Path, process::ExitCode};

use clap::{Command as Words, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::render_worker::COMMAND;
use crate::settings::RunFlags;

/// One process that configures the nodes of every worker cluster.
#[derive(Debug, Parser)]
#[command(
    name = "osm",
    version,
    about,
    after_help = "Examples:
  osm crds | kubectl apply -f -
  osm run --kubeconfig management.kubeconfig
  osm lint my-profile.yaml
  osm render my-profile.yaml --machine-deployment workers.yaml"
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
    /// Print the `CustomResourceDefinitions` as YAML.
    #[command(after_help = "Example:
  osm crds | kubectl apply -f -")]
    Crds,
    /// Print roles that the manager needs, as YAML.
    #[command(after_help = "Example:
  osm rbac worker | kubectl --kubeconfig worker.kubeconfig apply --server-side -f -")]
    Rbac {
        /// Whose rights, and for what
        role: rbac::Role,
    },
    /// Render a profile for a machine deployment, as the controller would.
    #[command(after_help = "Examples:
  osm render osp-ubuntu --machine-deployment workers.yaml
  osm render my-profile.yaml --machine-deployment workers.yaml -o config
  osm render - --machine-deployment workers.yaml --worker-cluster berlin.yaml < my-profile.yaml
  osm render osp-ubuntu --machine-deployment workers.yaml -o all --output-dir out --files

Exit codes: 0 rendered, 1 refused or not readable.")]
    Render(render::RenderFlags),
    /// Serve render tasks from stdin until it is closed. Started by `osm run` and `osm webhook`.
    #[command(name = COMMAND, hide = true)]
    RenderWorker,
    /// Find problems in profiles.
    #[command(after_help = "Examples:
  osm lint my-profile.yaml
  osm lint --deny-warnings -o sarif profiles/*.yaml > findings.sarif

Exit codes: 0 no errors, 3 errors (or warnings with --deny-warnings), 1 a file cannot be read.")]
    Lint(lint::LintFlags),
    /// Show how two profiles differ for machine deployments.
    #[command(after_help = "Examples:
  osm diff osp-ubuntu my-profile.yaml --machine-deployment workers.yaml
  osm diff my-overlay.yaml --machine-deployment workers.yaml

Exit codes: 0 equal, 3 different, 1 refused or not readable.")]
    Diff(diff::DiffFlags),
    /// Show what reconciles would write into live clusters, and write nothing.
    #[command(after_help = "Examples:
  osm plan --kubeconfig management.kubeconfig
  osm plan -n tenant-berlin --with-defaults
  osm plan --summary
  osm plan --profile-file my-profile.yaml -o json

Exit codes: 0 nothing would be written, 3 something would, 1 something is refused or not reached.")]
    Plan(Box<plan::PlanFlags>),
    /// Explain why a machine deployment has its current state, and what blocks it.
    #[command(after_help = "Examples:
  osm explain workers -n tenant-berlin
  osm explain kube-system/workers --kubeconfig management.kubeconfig -o json

Flags of osm run that change what it does (--tenant-defaults, --tenant-policies) belong here, too.
Exit codes: 0 nothing blocks it, 3 something does, 1 the clusters cannot be read.")]
    Explain(Box<explain::ExplainFlags>),
    /// Show how far a machine has come on its way to a node, and what to check next.
    #[command(after_help = "Examples:
  osm machine berlin-workers-7d9f-x2x --worker-kubeconfig berlin-admin.kubeconfig
  osm machine berlin-workers-7d9f-x2x --worker-kubeconfig berlin-admin.kubeconfig -o json

Exit codes: 0 it is a Ready node, 3 it is not, 1 the worker cluster does not answer.")]
    Machine(machine::MachineFlags),
    /// Check that everything that the manager needs exists, and say how to fix what does not.
    #[command(after_help = "Examples:
  osm doctor
  osm doctor -n tenant-berlin --kubeconfig management.kubeconfig -o json

Exit codes: 0 no check failed (warnings do not count), 3 one did, 1 the management cluster does not
answer, or does not accept the credential.")]
    Doctor(doctor::DoctorFlags),
    /// List, show or export the default profiles.
    #[command(after_help = "Examples:
  osm profiles list
  osm profiles show osp-ubuntu
  osm profiles export --dir profiles

Exit codes: 0 done, 1 no such profile.")]
    Profiles {
        #[command(subcommand)]
        command: profiles::ProfilesCommand,
    },
    /// Print the release and the commit of this build, and the release of the manager.
    #[command(after_help = "Examples:
  osm version
  osm version --client -o json

Exit codes: 0 printed, also if the management cluster does not answer.")]
    Version(version::VersionFlags),
    /// List everything that machines download because of profiles.
    #[command(after_help = "Examples:
  osm bom --kubernetes 1.34.1
  osm bom osp-ubuntu --kubernetes 1.34.1 --worker-cluster berlin.yaml -o json

Exit codes: 0 listed, 1 refused or not readable.")]
    Bom(bom::BomFlags),
    /// Print a script with which a shell completes these commands, and the names of tenants.
    #[command(after_help = "Examples:
  source <(osm completions bash)
  osm completions fish | source

Source it when the shell starts: another version of osm may need another script.")]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Rewrite a profile in Go's template language in Jinja, so that it renders the same bytes.
    #[command(after_help = "Examples:
  osm convert osp-custom.yaml -o osp-custom-jinja.yaml
  osm convert osp-custom.yaml --check
  kubectl get osp custom -o yaml | osm convert - | kubectl apply -f -

Exit codes: 0 converted or equal, 3 different, 1 refused or not readable.")]
    Convert(convert::ConvertFlags),
    /// Serve the admission webhooks until a signal comes.
    #[command(after_help = "Examples:
  osm webhook
  osm webhook --certificate-folder /etc/osm-webhook
  osm webhook --kubeconfig management.kubeconfig --host webhooks.example --address 0.0.0.0:9443

SIGTERM and SIGINT end it gracefully; a second one at once.")]
    Webhook(webhook::WebhookFlags),
    /// List tenants and their state.
    #[command(after_help = "Examples:
  osm tenants
  osm tenants -o wide --watch
  osm tenants -n tenant-berlin -o json

Exit codes: 0 listed, 1 they cannot be listed.")]
    Tenants(tenants::TenantsFlags),
    /// Hand clusters that another manager serves over to this one, and back.
    Adopt {
        #[command(subcommand)]
        command: adopt::AdoptCommand,
    },
    /// Add, remove or release one tenant, on live clusters.
    #[command(after_help = "Examples:
  osm tenant add berlin --worker-kubeconfig berlin-admin.kubeconfig
  osm tenant remove berlin --on-removal release
  osm tenant release berlin --worker-kubeconfig berlin.kubeconfig --dry-run
  osm tenant release berlin --kubeconfig management.kubeconfig --worker-kubeconfig berlin.kubeconfig

Exit codes: 0 done, 1 refused, or a step failed; it can be run again.")]
    Tenant {
        #[command(subcommand)]
        command: tenant::TenantCommand,
    },
}

/// The name under which kubectl finds the plugin, and the name in its help.
const PLUGIN: (&str, &str) = ("kubectl-osm", "kubectl osm");

impl Cli {
    /// Parses the command line. Prints the help or an error and ends the process, if necessary.
    /// When started as a kubectl plugin, the help shows that name.
    pub fn read(words: impl Iterator<Item = OsString>) -> Self {
        let words: Vec<OsString> = words.collect();
        let called = words.first().map(Path::new).and_then(Path::file_name);
        let known = if called.is_some_and(|it| it == PLUGIN.0) {
            as_plugin(Self::definition()).bin_name(PLUGIN.1)
        } else {
            Self::definition()
        };
        let read = known.try_get_matches_from(words);
        let read = read.and_then(|matches| Self::from_arg_matches(&matches));
        read.unwrap_or_else(|error| error.exit())
    }

    /// Returns the definition of all commands.
    pub fn definition() -> Words {
        let of_run = ["plan", "explain"].into_iter();
        let hide = |command: Words, name| command.mut_subcommand(name, plan::hide_flags_of_run);
        of_run
            .fold(Self::command(), hide)
            .mut_subcommand("adopt", adopt::hide_flags)
    }

    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let ended = match self.command {
            Command::Run(flags) => return served(run::run(*flags)),
            Command::Webhook(flags) => return served(webhook::run(flags)),
            Command::Crds => crds::run(),
            Command::Rbac { role } => rbac::run(role),
            Command::Render(flags) => render::run(&flags),
            Command::RenderWorker => render_worker::run(),
            Command::Lint(flags) => lint::run(&flags),
            Command::Diff(flags) => diff::run(&flags),
            Command::Plan(flags) => plan::run(*flags),
            Command::Profiles { command } => profiles::run(&command),
            Command::Bom(flags) => bom::run(&flags),
            Command::Explain(flags) => explain::run(*flags),
            Command::Machine(flags) => machine::run(flags),
            Command::Doctor(flags) => doctor::run(flags),
            Command::Tenants(flags) => tenants::run(flags),
            Command::Adopt { command } => adopt::run(command),
            Command::Tenant { command } => tenant::run(command),
            Command::Convert(flags) => convert::run(&flags),
            Command::Version(flags) => version::run(&flags),
            Command::Completions { shell } => completions::run(shell),
        };
        ended.unwrap_or_else(|error| {
            output::error(&error);
            output::ERROR
        })
    }
}

/// Returns the exit code of a command that serves until it is cancelled.
fn served(ended: anyhow::Result<()>) -> ExitCode {
    ended.map_or_else(
        |error| {
            output::error(&error);
            output::ERROR
        },
        |()| output::SUCCESS,
    )
}

/// Rewrites the examples of every command for the plugin.
fn as_plugin(command: Words) -> Words {
    let examples = command.get_after_help().map(|help| {
        let typed = format!("  {} ", PLUGIN.1);
        help.to_string().replace("  osm ", &typed)
    });
    let command = match examples {
        Some(examples) => command.after_help(examples),
        None => command,
    };
    let names: Vec<String> = command
        .get_subcommands()
        .map(|it| it.get_name().to_owned())
        .collect();
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, as_plugin)
    })
}
