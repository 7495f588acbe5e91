//! Everything that one cluster knows, as one value behind one lock: objects, kinds, credentials,
//! faults and the audit. All methods are synchronous; waiting is done by `serve.rs` and `watch.rs`.

use std::{collections::BTreeMap, fmt::Write, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    audit::Audit,
    auth::Credentials,
    fault::{Faults, next_share},
    kinds::{self, Kind},
    request::Target,
    store::Store,
};

/// How a cluster is made. Start from `Options::default()` and change fields.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names the cluster in its certificates and kubeconfigs.
    pub name: String,
    /// Makes UIDs and random faults; clusters with other names differ even with the same seed.
    pub seed: u64,
    /// The wall-clock time at the cluster's start; from there tokio's clock goes on.
    pub started_at: Timestamp,
    /// Changes kept for watches, old lists and histories.
    pub changes_max: usize,
    /// Requests kept in the audit.
    pub audit_max: usize,
    /// Whether the parts of kube-controller-manager that matter here run: namespaces are emptied
    /// and removed, service accounts and their tokens appear.
    pub controllers: bool,
    /// The time between bookmarks of one watch.
    pub bookmark_interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "fake".to_owned(),
            seed: 0,
            // 2026-01-01T00:00:00Z: any fixed time will do, as long as runs are equal.
            started_at: Timestamp::constant(1_767_225_600, 0),
            changes_max: 100_000,
            audit_max: 100_000,
            controllers: true,
            bookmark_interval: Duration::from_mins(1),
        }
    }
}

#[derive(Debug)]
pub(crate) struct State {
    pub options: Options,
    pub store: Store,
    pub credentials: Credentials,
    pub faults: Faults,
    pub audit: Audit,
    pub ca_pem: String,
    pub customs: BTreeMap<String, Vec<Arc<Kind>>>,
    started: Instant,
    random: u64,
}

impl State {
    pub(crate) fn new(options: Options, ca_pem: String) -> Self {
        let seed = options.name.bytes().fold(options.seed, |seed, byte| {
            seed.wrapping_mul(0x0100_0000_01b3)
                .wrapping_add(u64::from(byte) + 1)
        });
        let mut state = Self {
            store: Store::new(options.changes_max),
            credentials: Credentials::new(seed),
            faults: Faults::new(seed),
            audit: Audit::new(options.audit_max),
            ca_pem,
            customs: BTreeMap::new(),
            started: Instant::now(),
            random: seed,
            options,
        };
        state.populate();
        state
    }

    /// The time now, as objects carry it.
    pub(crate) fn now(&self) -> String {
        self.timestamp().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    pub(crate) fn timestamp(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.started.elapsed()).unwrap_or_default();
        self.options
            .started_at
            .checked_add(elapsed)
            .unwrap_or(Timestamp::MAX)
    }

    pub(crate) fn new_uid(&mut self) -> String {
        let mut digits = String::new();
        while digits.len() < 32 {
            next_share(&mut self.random);
            let mixed = self.random ^ (self.random >> 29);
            let _ = write!(digits, "{:016x}", mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9));
        }
        let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default().to_owned();
        format!(
            "{}-{}-4{}-8{}-{}",
            part(0, 8),
            part(8, 12),
            part(13, 16),
            part(17, 20),
            part(20, 32)
        )
    }

    /// Five letters for `generateName`.
    pub(crate) fn new_suffix(&mut self) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let mut suffix = String::new();
        for _ in 0..5 {
            next_share(&mut self.random);
            let letters = u64::try_from(LETTERS.len()).unwrap_or(1);
            let index = usize::try_from((self.random >> 33) % letters).unwrap_or_default();
            suffix.push(char::from(LETTERS.get(index).copied().unwrap_or(b'x')));
        }
        suffix
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = &Arc<Kind>> {
        kinds::builtin()
            .iter()
            .chain(self.customs.values().flatten())
    }

    pub(crate) fn kind_of(&self, target: &Target) -> Option<Arc<Kind>> {
        self.kinds()
            .find(|kind| kind.is(&target.group, &target.resource) && kind.version == target.version)
            .cloned()
    }

    /// The kind by `apiVersion` and `kind`, as manifests name it.
    pub(crate) fn kind_named(&self, api_version: &str, name: &str) -> Option<Arc<Kind>> {
        self.kinds()
            .find(|kind| kind.kind == name && kind.api_version() == api_version)
            .cloned()
    }

    /// The kind by plural resource, with or without its group: `secrets`, `leases.coordination…`.
    pub(crate) fn kind_by_resource(&self, resource: &str) -> Option<Arc<Kind>> {
        self.kinds()
            .find(|kind| kind.qualified() == resource)
            .or_else(|| self.kinds().find(|kind| kind.resource == resource))
            .cloned()
    }

    /// Starts, changes or stops serving what a definition defines.
    pub(crate) fn serve_custom(&mut self, crd_name: &str, crd: Option<&Value>) {
        match crd {
            Some(crd) => {
                self.customs
                    .insert(crd_name.to_owned(), crate::crd::served_kinds(crd));
            }
            None => {
                self.customs.remove(crd_name);
            }
        }
    }
}
