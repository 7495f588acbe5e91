//! The whole manager with its clusters under a clock that the test turns, through histories that a
//! number draws: what users, operators, machine-controller, strangers, networks and crashes do.
//!
//! Each number is a world of its own. `OSM_SIMULATION_SEED=n` runs one of them and prints what
//! happened in it; `OSM_SIMULATION_SEEDS=n` runs the first n, and `OSM_SIMULATION_NEW=n` as many
//! that probably nobody has run before, from the number `OSM_SIMULATION_NEW_FROM` on if that is
//! set.

#[path = "../sweep/fixtures.rs"]
mod fixtures;
#[path = "../sweep/snapshot.rs"]
mod snapshot;
#[path = "../sweep/wire.rs"]
#[expect(dead_code, reason = "shared with the sweep, which uses the rest")]
mod wire;
#[path = "../sweep/world.rs"]
#[expect(dead_code, reason = "shared with the sweep, which uses the rest")]
mod world;

#[cfg(test)]
mod history;
#[cfg(test)]
mod inputs;
#[cfg(test)]
mod invariants;
#[cfg(test)]
mod links;
#[cfg(test)]
mod model;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod registrations;
#[cfg(test)]
mod restores;
#[cfg(test)]
mod run;
#[cfg(test)]
mod strangers;

use std::{ops::Range, process::ExitCode};

use libtest_mimic::{Arguments, Trial};
#[cfg(target_env = "gnu")]
use tikv_jemallocator::Jemalloc;

/// The allocator of the program.
#[cfg(target_env = "gnu")]
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// The histories that are the same each time.
const SEEDS: u64 = 1000;
/// New histories have numbers from here on.
const NEW: u64 = 1_000_000;
/// The seeds of one test.
const BLOCK: u64 = 25;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = if let Some(seed) = number("OSM_SIMULATION_SEED") {
        vec![Trial::test(format!("seed_{seed}"), move || {
            println!("{}", history::History::draw(seed));
            Ok(run::run(seed)?)
        })]
    } else {
        let known = number("OSM_SIMULATION_SEEDS").unwrap_or(SEEDS);
        let new = number("OSM_SIMULATION_NEW").unwrap_or(0);
        let drawn = || u64::from(rand::random::<u32>());
        let first = NEW + number("OSM_SIMULATION_NEW_FROM").unwrap_or_else(drawn);
        blocks(0..known).chain(blocks(first..first + new)).collect()
    };
    libtest_mimic::run(&arguments, trials).exit_code()
}

#[expect(
    clippy::disallowed_methods,
    reason = "which worlds to run is said from outside"
)]
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().expect("a seed is a number"))
}

fn blocks(seeds: Range<u64>) -> impl Iterator<Item = Trial> {
    let firsts = seeds.clone().step_by(usize::try_from(BLOCK).unwrap_or(1));
    firsts.map(move |first| {
        let last = (first + BLOCK).min(seeds.end) - 1;
        Trial::test(format!("seeds_{first:05}_to_{last:05}"), move || {
            for seed in first..=last {
                run::run(seed)?;
            }
            Ok(())
        })
    })
}
