//! `osm render-worker`: the hidden command that a pool of render workers starts.

use std::{
    io::{self, BufWriter},
    process::ExitCode,
};

use anyhow::Context as _;

use super::output;
use crate::render_worker::serve;

pub(super) fn run() -> anyhow::Result<ExitCode> {
    let mut to = BufWriter::new(output::pipe()?);
    serve(&mut io::stdin().lock(), &mut to).context("cannot serve render tasks")?;
    Ok(output::SUCCESS)
}
