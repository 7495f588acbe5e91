//! Shows the manager at work: a management cluster and two worker clusters on this machine, and the
//! real binary between them.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use loadtest::control_plane::Assets;
use loadtest::demo::{self, Ending, cluster::Kind, screen::Screen};
use loadtest::machine::{Image, Images, network};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A build of the control plane that was interrupted must not hold the process.
const BLOCKING_TIMEOUT: Duration = Duration::from_secs(1);
/// The exit code of a demo that a second signal ended.
const EXIT_AT_ONCE: i32 = 130;

/// A management cluster, two worker clusters and the manager, on this machine, to look at.
#[derive(Parser)]
struct Arguments {
    /// What the clusters are.
    #[arg(long, value_enum, default_value = "fake")]
    kube: Kind,
    /// Boot a virtual machine, too, which becomes a node of a real worker cluster.
    #[arg(long)]
    node: bool,
    /// End when everything has been shown, with status 0 if all went well.
    #[arg(long)]
    exit: bool,
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
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let machine = if arguments.node {
        let images = Images::find([Image::Trixie.name()])?;
        // In there, nothing can be downloaded.
        Assets::find_now()?;
        network::enter()?;
        Some(images)
    } else {
        None
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting tokio")?;
    let ended = runtime.block_on(async {
        let cancel = CancellationToken::new();
        let mut signals = JoinSet::new();
        signals.spawn(follow_signals(cancel.clone()));
        let ending = if arguments.exit {
            Ending::Exit
        } else {
            Ending::Stay
        };
        demo::run(demo::Params {
            // A machine cannot join a cluster in memory.
            kind: if machine.is_some() {
                Kind::Real
            } else {
                arguments.kube
            },
            machine,
            osm: arguments.osm.map_or_else(beside_this_program, Ok)?,
            ending,
            screen: Screen::of_this_process(),
            cancel,
        })
        .await
    });
    runtime.shutdown_timeout(BLOCKING_TIMEOUT);
    ended
}

fn beside_this_program() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("finding this program")?;
    Ok(this.with_file_name("osm"))
}

/// The first signal ends the demo in good order, the second at once.
async fn follow_signals(cancel: CancellationToken) {
    let interrupt = signal(SignalKind::interrupt());
    let terminate = signal(SignalKind::terminate());
    let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else {
        return;
    };
    for is_second in [false, true] {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if is_second {
            std::process::exit(EXIT_AT_ONCE);
        }
        cancel.cancel();
    }
}
