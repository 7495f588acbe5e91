//! `osm render-worker`: the other side of the pipes of a process that serves clusters. Nobody types
//! it.

use std::{
    io::{self, BufWriter},
    process::ExitCode,
};

use anyhow::Context as _;

use super::output;
use crate::render_worker::serve;

pub(super) fn run() -> anyhow::Result<ExitCode> {
    let mut to = BufWriter::new(output::pipe()?);
    serve(&mut io::stdin().lock(), &mut to).context("the pipes of a worker are of no use")?;
    Ok(output::SUCCESS)
}
