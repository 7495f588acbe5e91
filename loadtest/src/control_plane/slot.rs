//! A slot is a numbered folder with three ports, held by a file lock: so no other cluster takes
//! the ports, not even while the API server is stopped, and the system itself gives the slot back
//! when its holder is killed. The next holder clears what the last one left.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Below the range from which Linux takes ports for outgoing connections (32768 and up): one of
/// those could otherwise sit on the API server's port when it starts again.
const FIRST_PORT: u16 = 20_000;
const PORTS_PER_SLOT: u16 = 3;
/// More clusters than a machine can run at once; it only ends the search.
const SLOTS_MAX: u16 = 1_000;

/// The ports of one cluster, all on 127.0.0.1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) api_server: u16,
    pub(super) etcd: u16,
    pub(super) etcd_peer: u16,
}

/// Holds the folder and the ports until it is dropped; then removes the folder.
pub(super) struct Slot {
    folder: PathBuf,
    ports: Ports,
    _lock: File,
}

impl Slot {
    pub(super) fn claim() -> io::Result<Self> {
        let root = root()?;
        for number in 0..SLOTS_MAX {
            let first = FIRST_PORT + number * PORTS_PER_SLOT;
            let ports = Ports {
                api_server: first,
                etcd: first + 1,
                etcd_peer: first + 2,
            };
            let lock = File::create(root.join(format!("{number}.lock")))?;
            match lock.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => return Err(error),
            }
            if !ports.are_free() {
                continue;
            }
            let folder = root.join(number.to_string());
            remove(&folder)?;
            DirBuilder::new().mode(0o700).create(&folder)?;
            return Ok(Self {
                folder,
                ports,
                _lock: lock,
            });
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "every slot is taken",
        ))
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn ports(&self) -> Ports {
        self.ports
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // What stays behind is removed by the next holder of the slot.
        let _ = remove(&self.folder);
    }
}

impl Ports {
    fn are_free(self) -> bool {
        [self.api_server, self.etcd, self.etcd_peer]
            .into_iter()
            .all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
    }
}

/// One folder per user, so that users of one machine do not meet on file permissions.
fn root() -> io::Result<PathBuf> {
    let user = std::fs::metadata("/proc/self")?.uid();
    let root = std::env::temp_dir().join(format!("osm-control-plane-{user}"));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&root)?;
    Ok(root)
}

fn remove(folder: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
