//! What is known of machine deployments by their keys, with its bytes in the memory budget.

use std::{collections::HashMap, sync::Arc};

use crate::client::memory::{Memory, Reservation};

/// The number of bytes of a value beside the map's own entry.
pub trait Weight {
    /// Returns the number.
    fn weight(&self) -> usize;
}

/// A map whose bytes count in the budget. Its users limit the number of its entries.
#[derive(Debug)]
pub struct ChargedMap<T> {
    entries: HashMap<String, T>,
    reserved: Reservation,
    bytes: usize,
}

impl<T: Weight> ChargedMap<T> {
    /// Creates an empty map.
    pub fn within(memory: &Arc<Memory>) -> Self {
        Self {
            entries: HashMap::new(),
            reserved: Reservation::for_cache(memory),
            bytes: 0,
        }
    }

    /// Returns the entries.
    pub const fn entries(&self) -> &HashMap<String, T> {
        &self.entries
    }

    /// Adds or replaces a value.
    pub fn insert(&mut self, key: &str, value: T) {
        self.remove(key);
        self.bytes += Self::bytes(key, &value);
        self.entries.insert(key.to_owned(), value);
        self.reserved.force_resize(self.bytes);
    }

    /// Removes a value.
    pub fn remove(&mut self, key: &str) {
        if let Some(removed) = self.entries.remove(key) {
            self.bytes -= Self::bytes(key, &removed);
            self.reserved.force_resize(self.bytes);
        }
    }

    /// Removes the values whose key is not kept.
    pub fn keep(&mut self, is_kept: impl Fn(&str) -> bool) {
        let gone: Vec<String> = self
            .entries
            .keys()
            .filter(|key| !is_kept(key))
            .cloned()
            .collect();
        for key in gone {
            self.remove(&key);
        }
    }

    fn bytes(key: &str, value: &T) -> usize {
        key.len() + size_of::<(String, T)>() + value.weight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Weight for String {
        fn weight(&self) -> usize {
            self.len()
        }
    }

    #[test]
    fn the_budget_has_what_the_map_has() {
        let memory = Arc::new(Memory::unlimited());
        let mut map = ChargedMap::within(&memory);
        let each = size_of::<(String, String)>();
        map.insert("a", "b".repeat(1_000));
        map.insert("cd", "e".repeat(500));
        assert_eq!(memory.reserved(), 1_503 + 2 * each);
        map.insert("a", String::new());
        assert_eq!(memory.reserved(), 503 + 2 * each);
        map.remove("a");
        map.remove("a");
        assert_eq!(memory.reserved(), 502 + each);
        map.keep(|key| key == "a");
        assert_eq!((memory.reserved(), map.entries().len()), (0, 0));
        map.insert("f", "g".to_owned());
        drop(map);
        assert_eq!(memory.reserved(), 0);
    }
}
