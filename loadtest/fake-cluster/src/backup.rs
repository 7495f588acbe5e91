//! Backups of a cluster's storage, and their restoration: an etcd snapshot, taken and restored
//! while the API server is down for a moment. Credentials, faults and the audit are no part of it.

use std::{collections::BTreeMap, sync::Arc};

use crate::{cluster::Cluster, kinds::Kind, store::Store};

/// What a cluster stored at some time.
#[derive(Debug, Clone)]
pub struct Backup {
    store: Store,
    customs: BTreeMap<String, Vec<Arc<Kind>>>,
}

/// What becomes of the resourceVersions with a restoration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revisions {
    /// They go back to those of the backup, as `etcdutl snapshot restore` leaves them. A watch
    /// that resumes from a later one is accepted and silent until the revision has caught up.
    GoBack,
    /// They go on above every one that was given out, and watches from before expire, as with
    /// `--bump-revision` and `--mark-compacted`.
    AreBumped,
}

impl Cluster {
    /// Takes a backup.
    pub fn backup(&self) -> Backup {
        let state = self.inner.lock();
        Backup {
            store: state.store.clone(),
            customs: state.customs.clone(),
        }
    }

    /// Puts a backup in the place of everything that is stored, and cuts all watches. Histories
    /// go back with it, too.
    pub fn restore(&self, backup: &Backup, revisions: Revisions) {
        self.inner.change(|state| {
            let mut store = backup.store.clone();
            if revisions == Revisions::AreBumped {
                store.go_on_after(&state.store);
            }
            state.store = store;
            state.customs.clone_from(&backup.customs);
        });
        self.close_watches();
    }
}
