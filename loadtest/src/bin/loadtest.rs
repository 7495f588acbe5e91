//! Runs one scenario of the load test, and prints what came of it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, Subcommand, ValueEnum as _};
use loadtest::demo::{cluster::Kind, screen::Screen};
use loadtest::load::{scenario::Scenario, stage::Params};

/// The real `osm run` between clusters in memory, under load.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a scenario.
    Run(Run),
    /// Lists the scenarios.
    List,
}

#[derive(clap::Args)]
struct Run {
    /// What is done to the fleet.
    #[arg(value_enum)]
    scenario: Scenario,
    /// Tenants.
    #[arg(long, default_value_t = 10)]
    tenants: usize,
    /// Machine deployments of each tenant.
    #[arg(long, default_value_t = 3)]
    machine_deployments: usize,
    /// The delay of every answer.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    #[arg(default_value = "0ms")]
    latency: Duration,
    /// What the management cluster is.
    #[arg(long, value_enum, default_value = "fake")]
    management: Kind,
    /// How long the manager is watched at rest, or kept busy.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    #[arg(default_value = "60s")]
    window: Duration,
    /// Where the result is written as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where the manager's log is kept.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// The manager's program; without it, the one beside this program.
    #[arg(long, value_name = "FILE", env = "OSM_BINARY")]
    osm: Option<PathBuf>,
    /// `side-by-side`: what serves one cluster, in the place of our own
    /// `osm-controller`; `{kubeconfig}` stands for the path of the cluster's kubeconfig.
    #[arg(long, value_name = "COMMAND")]
    per_cluster_cmd: Option<String>,
    /// `siege`: the only attack.
    #[arg(long, value_name = "NAME")]
    attack: Option<String>,
    /// More arguments of `osm run`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    // Some dependency may bring a second provider: the choice is made before the first use.
    let chosen = rustls::crypto::ring::default_provider().install_default();
    debug_assert!(chosen.is_ok(), "nothing has chosen a provider before");
    let ended = match Arguments::parse().command {
        Command::Run(run) => self::run(run),
        Command::List => {
            list();
            Ok(())
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("loadtest: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn list() {
    for scenario in Scenario::value_variants() {
        println!("{:<12}  {}", scenario.name(), scenario.about());
    }
}

fn run(run: Run) -> anyhow::Result<()> {
    let beside = std::env::current_exe().context("finding this program")?;
    let screen = Screen::of_this_process();
    let params = Params {
        tenants: run.tenants,
        machine_deployments: run.machine_deployments,
        latency: run.latency,
        window: run.window,
        management: run.management,
        osm: run.osm.unwrap_or_else(|| beside.with_file_name("osm")),
        arguments: run.arguments,
        per_cluster_cmd: run.per_cluster_cmd,
        attack: run.attack,
        log: run.log,
        screen,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting tokio")?;
    let outcome = runtime.block_on(run.scenario.run(params))?;
    outcome.print(screen);
    if let Some(path) = run.json {
        let text = serde_json::to_string_pretty(&outcome).context("writing the result")?;
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
