//! What this process and its children may take of the machine's memory.

use std::{fs, path::Path};

/// Where Linux says it to a container: cgroup v2, then v1.
const LIMITS: [&str; 2] = [
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
];
/// The first version says a number like this where there is no limit.
const NO_LIMIT: usize = 1 << 50;

/// The limit of the container, in bytes; nothing where there is none.
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
    fn what_is_no_limit_is_none() {
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
