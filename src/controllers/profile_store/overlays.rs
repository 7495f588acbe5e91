//! The resolved overlays of a namespace. They can be resolved again, so the newest are kept.

use std::sync::Arc;

use super::Resolved;
use crate::client::memory::{Memory, Reservation};
use crate::render::recent::Recent;

/// The limit of a namespace's merged overlays in bytes: as much as the default quota of its
/// profiles.
const RESOLVED_BYTES_MAX: usize = 8 << 20;
/// The bytes that an overlay counts that cannot be merged.
const UNRESOLVED_BYTES: usize = 1 << 10;

/// The newest merged overlays of a namespace, as many as there is memory for.
#[derive(Debug)]
pub(super) struct Overlays {
    recent: Recent<String, Resolved>,
    memory: Reservation,
}

impl Overlays {
    pub(super) fn new(memory: &Arc<Memory>) -> Self {
        Self {
            recent: Recent::new(RESOLVED_BYTES_MAX),
            memory: Reservation::surplus(memory),
        }
    }

    /// Keeps an overlay. Returns those that were evicted for it.
    pub(super) fn put(&mut self, name: String, resolved: Resolved) -> Vec<Resolved> {
        let weight = resolved
            .as_ref()
            .map_or(UNRESOLVED_BYTES, |it| it.size.weight);
        let mut gone = self.recent.put(name, (weight, resolved));
        while !self.memory.resize(self.recent.bytes()) {
            let Some(oldest) = self.recent.pop_oldest() else {
                self.memory.force_resize(self.recent.bytes());
                break;
            };
            gone.push(oldest);
        }
        gone
    }

    pub(super) fn get(&self, name: &String) -> Option<&Resolved> {
        self.recent.get(name)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.recent.is_empty()
    }

    pub(super) fn remove(&mut self, name: &String) -> Option<Resolved> {
        let gone = self.recent.remove(name);
        self.memory.force_resize(self.recent.bytes());
        gone
    }
}
