//! Boots virtual machines from what the manager writes, and waits until they are nodes.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, ValueEnum as _};
use loadtest::control_plane::Assets;
use loadtest::demo::screen::{Look, Screen, seconds};
use loadtest::machine::{Images, READY, network};
use loadtest::nodes::{self, Case, record};

/// Virtual machines that boot from the manager's documents and become nodes.
#[derive(Parser)]
struct Arguments {
    /// What is tried; without it, everything.
    #[arg(value_enum)]
    cases: Vec<Case>,
    /// Note the machines that joined in the repository, for docs/compatibility.md.
    #[arg(long)]
    record: bool,
    /// The manager's program; without it, the one beside this program.
    #[arg(long, value_name = "FILE", env = "OSM_BINARY")]
    osm: Option<PathBuf>,
}

fn main() -> ExitCode {
    // Some dependency may bring a second provider: the choice is made before the first use.
    let chosen = rustls::crypto::ring::default_provider().install_default();
    debug_assert!(chosen.is_ok(), "nothing has chosen a provider before");
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("nodes: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mut cases = arguments.cases;
    if cases.is_empty() {
        cases = Case::value_variants().to_vec();
    }
    let needs: BTreeSet<_> = cases.iter().flat_map(|it| it.needs()).collect();
    let images = Images::find(needs)?;
    // In there, nothing can be downloaded.
    Assets::find_now()?;
    network::enter()?;
    let osm = match arguments.osm {
        Some(osm) => osm,
        None => std::env::current_exe()
            .context("finding this program")?
            .with_file_name("osm"),
    };
    let screen = Screen::of_this_process();
    let params = nodes::Params {
        osm,
        images,
        screen,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting tokio")?;
    let mut code = ExitCode::SUCCESS;
    for case in cases {
        let name = case.to_possible_value();
        let name = name.as_ref().map_or("", |it| it.get_name());
        screen.heading(&format!("{name}, by seconds since power on"));
        // One case that fails hides no other.
        let tried = runtime.block_on(async {
            tokio::select! {
                tried = nodes::run(case, &params) => tried,
                _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
            }
        });
        match tried {
            Ok(seen) => {
                if arguments.record {
                    record::add(case.profile(), &seen)?;
                }
                let ready = seen.reached.iter().find(|it| it.stage == READY);
                let after = ready.map_or_else(String::new, |it| seconds(it.after));
                screen.print(&format!(
                    "{} {name}: {}, kubelet {}, Ready after {after}",
                    screen.paint(Look::Good, "passed"),
                    seen.image,
                    seen.kubelet
                ));
            }
            Err(error) => {
                screen.print(&format!(
                    "{} {name}: {error:#}",
                    screen.paint(Look::Bad, "FAILED")
                ));
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}
