//! Keeps a list of the servers that a test run has met, so that its last lines can tell them and a
//! run without a real one can fail. Outside of such a run nothing is written.

use std::fs::OpenOptions;
use std::io::{self, Write as _};

/// The file that the list is appended to; `make test` sets it and reads it.
const VARIABLE: &str = "OSM_TESTED_SERVERS";

/// Adds a server, by its name and version.
#[expect(
    clippy::disallowed_methods,
    reason = "the variable is between two halves of one test run, not a setting"
)]
pub fn record(server: &str) -> io::Result<()> {
    let Ok(path) = std::env::var(VARIABLE) else {
        return Ok(());
    };
    // One write of one line: tests append to the file at the same time.
    let line = format!("{server}\n");
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?
        .write_all(line.as_bytes())
}
