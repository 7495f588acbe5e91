//! The memory of a process and its children.

use std::fs;

use anyhow::Context as _;

/// Returns the resident memory of a process and its children in KiB. A child that just ended counts
/// as nothing.
pub(super) fn resident_kib(id: u32) -> anyhow::Result<u64> {
    let own = resident_of(id).with_context(|| format!("process {id} is gone"))?;
    Ok(own
        + children(id)
            .into_iter()
            .filter_map(resident_of)
            .sum::<u64>())
}

fn resident_of(id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the children of all threads of a process.
fn children(id: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{id}/task"))
        .into_iter()
        .flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("children")).ok());
    let ids = lists.flat_map(|list| {
        let ids: Vec<u32> = list
            .split_whitespace()
            .filter_map(|id| id.parse().ok())
            .collect();
        ids
    });
    ids.collect()
}
