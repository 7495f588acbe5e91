//! Which profiles of a namespace are kept in memory: the oldest, as many as its quota has room
//! for. Of the others only name, age and size are known.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;

use crate::tenant::policy::ProfileQuota;

/// The older comes first; of two made in one second, the one whose name does.
type Age = (Timestamp, String);

/// The profiles of one namespace, by age. All that are kept are older than all that are not.
#[derive(Debug)]
pub struct Ledger {
    quota: ProfileQuota,
    created: HashMap<String, Timestamp>,
    kept: BTreeMap<Age, usize>,
    refused: BTreeMap<Age, usize>,
    bytes: usize,
}

/// What changes for other profiles than the one that was asked about.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// These have no room any more.
    pub evicted: Vec<String>,
    /// For these there is room now.
    pub admitted: Vec<String>,
}

impl Ledger {
    /// An empty one.
    pub fn new(quota: ProfileQuota) -> Self {
        Self {
            quota,
            created: HashMap::new(),
            kept: BTreeMap::new(),
            refused: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Whether it says what a new one with this quota says.
    pub fn is_fresh(&self, quota: ProfileQuota) -> bool {
        self.created.is_empty() && self.quota == quota
    }

    /// Another quota holds.
    pub fn resize(&mut self, quota: ProfileQuota) -> Moves {
        self.quota = quota;
        self.settle()
    }

    /// A profile has this size now. Afterwards [`Self::keeps`] tells whether there is room.
    pub fn put(&mut self, name: &str, created: Timestamp, bytes: usize) -> Moves {
        self.forget(name);
        self.created.insert(name.to_owned(), created);
        let age = (created, name.to_owned());
        let is_younger = self.refused.first_key_value();
        if is_younger.is_some_and(|(first, _)| *first < age) {
            self.refused.insert(age, bytes);
        } else {
            self.bytes += bytes;
            self.kept.insert(age, bytes);
        }
        let mut moves = self.settle();
        moves.evicted.retain(|evicted| evicted != name);
        moves.admitted.retain(|admitted| admitted != name);
        moves
    }

    /// A profile is gone.
    pub fn remove(&mut self, name: &str) -> Moves {
        self.forget(name);
        self.settle()
    }

    /// Whether a profile is kept.
    pub fn keeps(&self, name: &str) -> bool {
        self.is_in(&self.kept, name)
    }

    /// Whether a profile is there, and not kept.
    pub fn refuses(&self, name: &str) -> bool {
        self.is_in(&self.refused, name)
    }

    /// All profiles, kept or not.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.created.keys()
    }

    fn is_in(&self, those: &BTreeMap<Age, usize>, name: &str) -> bool {
        let created = self.created.get(name);
        created.is_some_and(|created| those.contains_key(&(*created, name.to_owned())))
    }

    fn forget(&mut self, name: &str) {
        if let Some(created) = self.created.remove(name) {
            let age = (created, name.to_owned());
            if let Some(bytes) = self.kept.remove(&age) {
                self.bytes -= bytes;
            }
            self.refused.remove(&age);
        }
    }

    fn settle(&mut self) -> Moves {
        let mut moves = Moves::default();
        while self.kept.len() > self.quota.count_max || self.bytes > self.quota.bytes_max {
            let Some((age, bytes)) = self.kept.pop_last() else {
                break;
            };
            self.bytes -= bytes;
            moves.evicted.push(age.1.clone());
            self.refused.insert(age, bytes);
        }
        while let Some(first) = self.refused.first_entry() {
            let bytes = self.bytes.saturating_add(*first.get());
            if self.kept.len() >= self.quota.count_max || bytes > self.quota.bytes_max {
                break;
            }
            let (age, size) = first.remove_entry();
            moves.admitted.push(age.1.clone());
            self.kept.insert(age, size);
            self.bytes = bytes;
        }
        moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_ledger(count_max: usize, bytes_max: usize) -> Ledger {
        Ledger::new(ProfileQuota {
            count_max,
            bytes_max,
        })
    }

    fn put(ledger: &mut Ledger, name: &str, second: i64, bytes: usize) -> Moves {
        ledger.put(name, Timestamp::from_second(second).unwrap(), bytes)
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
            assert!(ledger.refuses("c") && ledger.refuses("d") && !ledger.refuses("e"));
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
        assert_eq!(ledger.bytes, 100);
        assert_eq!(put(&mut ledger, "a", 1, 35), moves(&["c"], &[]));
        assert_eq!(ledger.remove("b"), moves(&[], &["c"]));
        let quota = ProfileQuota {
            count_max: 1,
            bytes_max: 100,
        };
        assert_eq!(ledger.resize(quota), moves(&["c"], &[]));
        assert_eq!(ledger.remove("a"), moves(&[], &["c"]));
        assert_eq!(ledger.remove("c"), moves(&[], &[]));
        assert_eq!((ledger.bytes, ledger.names().count()), (0, 0));
    }

    #[test]
    fn one_that_is_larger_than_the_quota_is_refused_alone() {
        let mut ledger = a_ledger(10, 100);
        put(&mut ledger, "a", 1, 101);
        assert!(ledger.refuses("a") && !ledger.keeps("a"));
        assert_eq!(put(&mut ledger, "a", 1, 100), moves(&[], &[]));
        assert!(ledger.keeps("a"));
    }
}
