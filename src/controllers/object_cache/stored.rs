//! Packed objects, within a memory limit.

use std::collections::BTreeMap;

use kube::api::ObjectMeta;

use super::{Entry, LogicalTime};
use crate::client::memory::Reservation;
use crate::plan::digest::Digest;

/// The approximate size in bytes of an object besides its metadata and its name: its place in the
/// map, and the digest.
const OBJECT_BYTES: usize = 200;

/// Objects by name.
#[derive(Debug)]
pub(super) struct Stored {
    objects: BTreeMap<Box<str>, Packed>,
    /// The size of all objects in bytes.
    bytes: usize,
    bytes_max: usize,
    reservation: Reservation,
}

/// An entry that is not in use. Each tenant has about a dozen. Decoded metadata takes three times
/// as much memory as its text, because it has two maps and two dozen strings.
#[derive(Debug)]
pub(super) struct Packed {
    /// The metadata, as JSON.
    metadata: Box<[u8]>,
    content: Option<Digest>,
    /// When it was recorded.
    pub(super) at: LogicalTime,
}

impl Stored {
    pub(super) const fn within(bytes_max: usize, reservation: Reservation) -> Self {
        Self {
            objects: BTreeMap::new(),
            bytes: 0,
            bytes_max,
            reservation,
        }
    }

    /// Inserts or replaces an object. Returns `false` if there is no room; then nothing is known of
    /// the object.
    pub(super) fn insert(&mut self, name: &str, packed: Packed) -> bool {
        self.remove(name);
        let bytes = self.bytes + packed.bytes(name);
        if bytes > self.bytes_max || !self.reservation.resize(bytes) {
            return false;
        }
        self.bytes = bytes;
        self.objects.insert(name.into(), packed);
        true
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Packed> {
        let packed = self.objects.remove(name)?;
        self.bytes -= packed.bytes(name);
        self.reservation.force_resize(self.bytes);
        Some(packed)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Packed> {
        self.objects.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Packed)> {
        self.objects.iter().map(|(name, packed)| (&**name, packed))
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn forget_contents(&mut self) {
        for packed in self.objects.values_mut() {
            packed.content = None;
        }
    }
}

impl Packed {
    pub(super) fn new(metadata: ObjectMeta, content: Option<Digest>, at: LogicalTime) -> Self {
        let pruned = ObjectMeta {
            managed_fields: None,
            ..metadata
        };
        // Neither this nor decoding can fail: metadata consists of strings, numbers and maps of
        // them.
        let metadata = serde_json::to_vec(&pruned).unwrap_or_default();
        Self {
            metadata: metadata.into(),
            content,
            at,
        }
    }

    pub(super) fn open(&self) -> Entry {
        Entry {
            metadata: serde_json::from_slice(&self.metadata).unwrap_or_default(),
            content: self.content.clone(),
        }
    }

    fn bytes(&self, name: &str) -> usize {
        self.metadata.len() + name.len() + OBJECT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::client::memory::Memory;

    fn packed(bytes: usize) -> Packed {
        let metadata = ObjectMeta {
            generate_name: Some("a".repeat(bytes)),
            ..ObjectMeta::default()
        };
        Packed::new(metadata, None, LogicalTime::default())
    }

    #[test]
    fn what_there_is_no_room_for_is_not_known() {
        let memory = Arc::new(Memory::within(0, 0));
        let mut stored = Stored::within(4 << 10, Reservation::guaranteed(&memory));
        assert!(stored.insert("a", packed(1 << 10)) && stored.insert("b", packed(1 << 10)));
        assert!(
            !stored.insert("c", packed(2 << 10)),
            "there is no room for both"
        );
        assert!(
            stored.insert("b", packed(2 << 10)),
            "it takes its own place"
        );
        assert!(!stored.insert("b", packed(4 << 10)));
        assert!(
            stored.get("b").is_none(),
            "what was known is not true any more"
        );
        assert!(stored.insert("c", packed(2 << 10)));
        stored.remove("a");
        stored.remove("c");
        assert_eq!((stored.len(), memory.reserved()), (0, 0));
        let surplus = Reservation::surplus(&memory);
        assert!(!Stored::within(usize::MAX, surplus).insert("a", packed(1)));
    }
}
