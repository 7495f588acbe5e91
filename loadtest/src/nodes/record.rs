//! Which machines have joined so far: a file of the repository, from which the page of what is
//! compatible with what is made.

use std::collections::BTreeSet;

use anyhow::Context as _;

use super::Seen;
use crate::demo::install;

/// A line each: profile, operating system, and the kubelet's version, with tabs in between.
const FILE: &str = "loadtest/nodes/joined.tsv";

/// Notes a machine that has joined.
///
/// # Errors
///
/// When the file cannot be read or written.
pub fn add(profile: &str, seen: &Seen) -> anyhow::Result<()> {
    let path = install::repository().join(FILE);
    let text =
        std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let line = format!("{profile}\t{}\t{}", seen.image, seen.kubelet);
    let lines: BTreeSet<&str> = text.lines().chain([line.as_str()]).collect();
    let lines: Vec<&str> = lines.into_iter().collect();
    std::fs::write(&path, lines.join("\n") + "\n")
        .with_context(|| format!("writing {}", path.display()))
}
