//! Which machines have joined so far: a file of the repository, from which the page of what is
//! compatible with what is made.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;

use super::Seen;
use crate::demo::install;

/// A line each: profile, operating system, the kubelet's version, and the seconds from power on to
/// Ready, with tabs in between.
const FILE: &str = "loadtest/nodes/joined.tsv";
const READY: &str = "node Ready";

/// Notes a machine that has joined, in place of an earlier one of the same kind.
///
/// # Errors
///
/// When the file cannot be read or written.
pub fn add(seen: &Seen) -> anyhow::Result<()> {
    let path = path();
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let mut lines: BTreeMap<String, String> = text
        .lines()
        .filter_map(|line| line.rsplit_once('\t'))
        .map(|(kind, seconds)| (kind.to_owned(), seconds.to_owned()))
        .collect();
    let kind = format!("{}\t{}\t{}", seen.profile, seen.image, seen.kubelet);
    let ready = seen.reached.iter().find(|it| it.stage == READY);
    let seconds = ready.map_or(0, |it| it.after.as_secs());
    lines.insert(kind, seconds.to_string());
    let lines: Vec<String> = lines
        .iter()
        .map(|(kind, it)| format!("{kind}\t{it}\n"))
        .collect();
    std::fs::write(&path, lines.concat()).with_context(|| format!("writing {}", path.display()))
}

fn path() -> PathBuf {
    install::repository().join(FILE)
}
