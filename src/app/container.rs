//! Reads the memory limit of the container.

use std::{fs, path::Path};

/// The files of cgroup v2 and v1, as a container sees them.
const LIMITS: [&str; 2] = [
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
];
/// cgroup v1 reports a number above this if there is no limit.
const NO_LIMIT: usize = 1 << 50;

/// Returns the memory limit of the container in bytes, or `None` if there is none.
pub(super) fn memory_limit() -> Option<usize> {
    LIMITS.iter().find_map(|path| read(Path::new(path)))
}

fn read(path: &Path) -> Option<usize> {
    let limit: usize = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    (limit < NO_LIMIT).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unlimited_or_missing_cgroup_has_no_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory.max");
        for (text, limit) in [
            ("536870912\n", Some(512 << 20)),
            ("max\n", None),
            ("9223372036854771712\n", None),
            ("", None),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(read(&path), limit, "{text}");
        }
        assert_eq!(read(&folder.path().join("none")), None);
    }
}
