//! Decides which profiles of a namespace are kept in memory: the oldest ones that fit into its
//! quota and into the memory that tenants share. Only the name, age and size of the others are
//! known.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use crate::client::memory::Reservation;
use crate::plan::invalid::Shortage;
use crate::tenant::policy::ProfileQuota;

/// Sorts profiles: by age, oldest first, then by name.
type Age = (Timestamp, String);

/// The size of one or more profiles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// The length as JSON, which quotas limit.
    pub bytes: usize,
    /// The memory that is reserved, in bytes.
    pub weight: usize,
}

/// The profiles of one namespace, by age. All that are kept are older than all that are not.
#[derive(Debug)]
pub struct Ledger {
    quota: ProfileQuota,
    memory: Reservation,
    created: HashMap<String, Timestamp>,
    kept: BTreeMap<Age, Size>,
    refused: BTreeMap<Age, Size>,
    total: Size,
}

/// The consequences of an operation for other profiles.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// The profiles that no longer have room.
    pub evicted: Vec<String>,
    /// The profiles that have room now.
    pub admitted: Vec<String>,
}

impl Ledger {
    /// Creates an empty ledger.
    pub fn new(quota: ProfileQuota, memory: Reservation) -> Self {
        Self {
            quota,
            memory,
            created: HashMap::new(),
            kept: BTreeMap::new(),
            refused: BTreeMap::new(),
            total: Size::default(),
        }
    }

    /// Returns true if the ledger equals a new one with this quota.
    pub fn is_fresh(&self, quota: ProfileQuota) -> bool {
        self.created.is_empty() && self.quota == quota
    }

    /// Changes the quota.
    pub fn resize(&mut self, quota: ProfileQuota) -> Moves {
        self.quota = quota;
        self.settle()
    }

    /// Sets the size of a profile. Afterwards [`Self::keeps`] returns whether there is room.
    pub fn put(&mut self, name: &str, created: Timestamp, size: Size) -> Moves {
        self.forget(name);
        self.created.insert(name.to_owned(), created);
        let age = (created, name.to_owned());
        let is_younger = self.refused.first_key_value();
        if is_younger.is_some_and(|(first, _)| *first < age) {
            self.refused.insert(age, size);
        } else {
            self.total.add(size);
            self.kept.insert(age, size);
        }
        let mut moves = self.settle();
        moves.evicted.retain(|evicted| evicted != name);
        moves.admitted.retain(|admitted| admitted != name);
        moves
    }

    /// Removes a profile.
    pub fn remove(&mut self, name: &str) -> Moves {
        self.forget(name);
        self.settle()
    }

    /// Returns when a profile was created, if it is known.
    pub fn created(&self, name: &str) -> Option<Timestamp> {
        self.created.get(name).copied()
    }

    /// Returns true if a profile is kept.
    pub fn keeps(&self, name: &str) -> bool {
        self.is_in(&self.kept, name)
    }

    /// Returns what a refused profile is short of. Returns `None` if it is kept or unknown.
    pub fn shortage(&self, name: &str) -> Option<Shortage> {
        let is_refused = self.is_in(&self.refused, name);
        is_refused.then(|| {
            if self.is_short_of_memory() {
                Shortage::Memory
            } else {
                Shortage::Quota
            }
        })
    }

    /// Returns true if another profile fits into the quota, but not into the memory.
    pub fn is_short_of_memory(&self) -> bool {
        let mut first = self.refused.values().take(1);
        first.any(|first| self.has_quota_for(*first))
    }

    /// Evicts and admits profiles until they fit. The reservations of other tenants may have
    /// shrunk.
    pub fn settle(&mut self) -> Moves {
        let mut moves = Moves::default();
        while self.is_over_quota() || !self.memory.resize(self.total.weight) {
            let Some((age, size)) = self.kept.pop_last() else {
                break;
            };
            self.total.subtract(size);
            moves.evicted.push(age.1.clone());
            self.refused.insert(age, size);
        }
        while let Some((_, &size)) = self.refused.first_key_value() {
            let weight = self.total.weight.saturating_add(size.weight);
            if !self.has_quota_for(size) || !self.memory.resize(weight) {
                break;
            }
            if let Some((age, size)) = self.refused.pop_first() {
                moves.admitted.push(age.1.clone());
                self.kept.insert(age, size);
                self.total.add(size);
            }
        }
        moves
    }

    fn is_over_quota(&self) -> bool {
        self.kept.len() > self.quota.count_max || self.total.bytes > self.quota.bytes_max
    }

    fn has_quota_for(&self, one: Size) -> bool {
        let bytes = self.total.bytes.saturating_add(one.bytes);
        self.kept.len() < self.quota.count_max && bytes <= self.quota.bytes_max
    }

    /// Returns the names of all profiles, kept or not.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.created.keys()
    }

    fn is_in(&self, those: &BTreeMap<Age, Size>, name: &str) -> bool {
        let created = self.created.get(name);
        created.is_some_and(|created| those.contains_key(&(*created, name.to_owned())))
    }

    fn forget(&mut self, name: &str) {
        if let Some(created) = self.created.remove(name) {
            let age = (created, name.to_owned());
            if let Some(size) = self.kept.remove(&age) {
                self.total.subtract(size);
            }
            self.refused.remove(&age);
        }
    }
}

impl Size {
    fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.weight = self.weight.saturating_add(other.weight);
    }

    fn subtract(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_sub(other.bytes);
        self.weight = self.weight.saturating_sub(other.weight);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::client::memory::{GUARANTEED_BYTES, Memory};

    const QUOTA: Option<Shortage> = Some(Shortage::Quota);

    fn a_ledger(count_max: usize, bytes_max: usize) -> Ledger {
        let quota = ProfileQuota {
            count_max,
            bytes_max,
        };
        Ledger::new(quota, Reservation::guaranteed(&Arc::default()))
    }

    fn put(ledger: &mut Ledger, name: &str, second: i64, bytes: usize) -> Moves {
        let size = Size {
            bytes,
            weight: bytes,
        };
        ledger.put(name, Timestamp::from_second(second).unwrap(), size)
    }

    fn moves(evicted: &[&str], admitted: &[&str]) -> Moves {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Moves {
            evicted: owned(evicted),
            admitted: owned(admitted),
        }
    }

    fn kept(ledger: &Ledger) -> Vec<&str> {
        ledger.kept.keys().map(|(_, name)| name.as_str()).collect()
    }

    #[test]
    fn the_oldest_are_kept_in_whatever_order_they_come() {
        for order in [
            ["a", "b", "c", "d"],
            ["d", "c", "b", "a"],
            ["c", "a", "d", "b"],
        ] {
            let mut ledger = a_ledger(2, 1_000);
            for name in order {
                let second = i64::from(name.as_bytes()[0]);
                put(&mut ledger, name, second, 10);
            }
            assert_eq!(kept(&ledger), ["a", "b"], "{order:?}");
            for (name, shortage) in [("c", QUOTA), ("d", QUOTA), ("e", None)] {
                assert_eq!(ledger.shortage(name), shortage);
            }
        }
    }

    #[test]
    fn bytes_count_as_numbers_do_and_room_is_given_to_the_oldest_that_waits() {
        let mut ledger = a_ledger(10, 100);
        assert_eq!(put(&mut ledger, "a", 1, 60), moves(&[], &[]));
        assert_eq!(put(&mut ledger, "b", 2, 60), moves(&[], &[]));
        assert_eq!(put(&mut ledger, "c", 3, 10), moves(&[], &[]));
        assert_eq!(kept(&ledger), ["a"], "a younger one does not overtake");
        assert_eq!(put(&mut ledger, "a", 1, 30), moves(&[], &["b", "c"]));
        assert_eq!(ledger.total.bytes, 100);
        assert_eq!(put(&mut ledger, "a", 1, 35), moves(&["c"], &[]));
        assert_eq!(ledger.remove("b"), moves(&[], &["c"]));
        let quota = ProfileQuota {
            count_max: 1,
            bytes_max: 100,
        };
        assert_eq!(ledger.resize(quota), moves(&["c"], &[]));
        assert_eq!(ledger.remove("a"), moves(&[], &["c"]));
        assert_eq!(ledger.remove("c"), moves(&[], &[]));
        assert_eq!((ledger.total.bytes, ledger.names().count()), (0, 0));
    }

    #[test]
    fn one_that_is_larger_than_the_quota_is_refused_alone() {
        let mut ledger = a_ledger(10, 100);
        put(&mut ledger, "a", 1, 101);
        assert!(ledger.shortage("a") == QUOTA && !ledger.keeps("a"));
        assert_eq!(put(&mut ledger, "a", 1, 100), moves(&[], &[]));
        assert!(ledger.keeps("a"));
    }

    #[test]
    fn beyond_the_guaranteed_memory_the_youngest_wait_until_others_release_theirs() {
        let memory = Arc::new(Memory::within(3 << 30, 0));
        let mut others = Reservation::surplus(&memory);
        assert!(others.resize(memory.limit().unwrap()));
        let quota = ProfileQuota {
            count_max: 10,
            bytes_max: usize::MAX,
        };
        let mut ledger = Ledger::new(quota, Reservation::guaranteed(&memory));
        for (second, name) in [(1, "a"), (2, "b"), (3, "c")] {
            put(&mut ledger, name, second, GUARANTEED_BYTES / 2);
        }
        assert_eq!(kept(&ledger), ["a", "b"]);
        assert_eq!(ledger.shortage("c"), Some(Shortage::Memory));
        assert!(ledger.is_short_of_memory());
        assert_eq!(ledger.settle(), moves(&[], &[]));
        drop(others);
        assert_eq!(ledger.settle(), moves(&[], &["c"]));
        assert!(!ledger.is_short_of_memory());
        assert_eq!(memory.reserved(), GUARANTEED_BYTES / 2 * 3);
        ledger.remove("b");
        assert_eq!(memory.reserved(), GUARANTEED_BYTES);
        drop(ledger);
        assert_eq!(memory.reserved(), 0);
    }
}
