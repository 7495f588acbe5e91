//! The pages that lead a new user to a first tenant, and an operator through an upgrade and a
//! restore: their commands run in order and as written, the image starts as the Deployment says,
//! and a tenant is served. What cannot run here has a stand-in; the page says so.

use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};
use loadtest::machine::network;

use page::{PAGES, Page, Start};

#[cfg(test)]
#[path = "../shape/packaging/image.rs"]
mod image;
#[cfg(test)]
mod page;
#[cfg(test)]
mod pod;
#[cfg(test)]
#[path = "../shape/docs/shell.rs"]
mod shell;
#[cfg(test)]
mod typed;
#[cfg(test)]
mod walk;

/// The only command that needs a network with more in it than this machine.
const MAKE: &str = "make image";

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // They use the same addresses and ports.
    arguments.test_threads = Some(1);
    if !arguments.list {
        let prepared = if network::is_entered() {
            Ok(())
        } else {
            make()
        };
        let entered = prepared.and_then(|()| network::enter());
        if let Err(error) = entered {
            eprintln!("{error:#}");
            return ExitCode::FAILURE;
        }
    }
    let trials = PAGES.map(|page| Trial::test(page.name, move || walked(page)));
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}

/// Every page that begins with nothing has it, and it does the same each time.
#[expect(
    clippy::disallowed_methods,
    reason = "running the pages' own command is what this test is for"
)]
fn make() -> anyhow::Result<()> {
    for page in PAGES {
        let commands = page.commands()?;
        let has_it = commands.iter().any(|it| it.line == MAKE && it.is_tested);
        let is_needed = page.start == Start::Nothing;
        anyhow::ensure!(has_it == is_needed, "{}: {MAKE} is missing", page.name);
    }
    let made = Command::new("make")
        .arg("image")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()?;
    anyhow::ensure!(made.success(), "{MAKE} ended with {made}");
    Ok(())
}

fn walked(page: Page) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime
        .block_on(walk::walk(page))
        .map_err(|error| format!("{error:?}").into())
}
