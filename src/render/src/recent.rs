//! A bounded cache that keeps the newest entries.

use std::collections::VecDeque;

/// A cache of values by the bytes that each is counted with. The newest value is always kept.
#[derive(Debug)]
pub struct Recent<K, T> {
    bytes_max: usize,
    bytes: usize,
    kept: VecDeque<(K, usize, T)>,
}

impl<K: PartialEq, T> Recent<K, T> {
    /// Creates an empty cache of `bytes_max` bytes.
    pub const fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            kept: VecDeque::new(),
        }
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &K) -> Option<&T> {
        let mut kept = self.kept.iter();
        kept.find(|(it, ..)| it == key).map(|(.., value)| value)
    }

    /// Inserts a value, and returns the values that it evicts.
    pub fn put(&mut self, key: K, (bytes, value): (usize, T)) -> Vec<T> {
        let mut gone = Vec::from_iter(self.remove(&key));
        self.bytes += bytes;
        self.kept.push_back((key, bytes, value));
        while self.bytes > self.bytes_max {
            let Some(oldest) = self.pop_oldest() else {
                break;
            };
            gone.push(oldest);
        }
        gone
    }

    /// Removes the oldest value, and returns it. Returns `None` if only the newest is left.
    pub fn pop_oldest(&mut self) -> Option<T> {
        if self.kept.len() < 2 {
            return None;
        }
        let (_, bytes, value) = self.kept.pop_front()?;
        self.bytes -= bytes;
        Some(value)
    }

    /// Returns the number of bytes of all values.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes a value, and returns it.
    pub fn remove(&mut self, key: &K) -> Option<T> {
        let at = self.kept.iter().position(|(it, ..)| it == key)?;
        let (_, bytes, value) = self.kept.remove(at)?;
        self.bytes -= bytes;
        Some(value)
    }

    /// Returns true if the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}
