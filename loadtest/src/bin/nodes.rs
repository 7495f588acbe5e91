//! Boots virtual machines from what the manager writes, and waits until they are nodes.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use loadtest::control_plane::Assets;
use loadtest::demo::screen::Screen;
use loadtest::machine::{Image, Images, network};
use loadtest::nodes;

/// Virtual machines that boot from the manager's documents and become nodes.
#[derive(Parser)]
struct Arguments {
    /// What the machine boots from.
    #[arg(long, value_enum, default_value = "trixie")]
    image: Image,
    /// The manager's program; without it, the one beside this program.
    #[arg(long, value_name = "FILE", env = "OSM_BINARY")]
    osm: Option<PathBuf>,
}

fn main() -> ExitCode {
    // Some dependency may bring a second provider: the choice is made before the first use.
    let chosen = rustls::crypto::ring::default_provider().install_default();
    debug_assert!(chosen.is_ok(), "nothing has chosen a provider before");
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("nodes: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let images = Images::find(&[arguments.image])?;
    if !network::is_own()? {
        // In there, nothing can be downloaded.
        drop(Assets::find_now()?);
        return Err(network::start_again_in_own());
    }
    network::set_up()?;
    let osm = match arguments.osm {
        Some(osm) => osm,
        None => std::env::current_exe()?.with_file_name("osm"),
    };
    let params = nodes::Params {
        osm,
        images,
        image: arguments.image,
        screen: Screen::of_this_process(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting tokio")?;
    runtime.block_on(nodes::join(&params))
}
