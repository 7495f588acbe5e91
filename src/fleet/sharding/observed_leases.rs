//! The Leases that a replica has observed, and since when, by its own clock. Times are boot times:
//! they include the time in which the machine is suspended, and do not depend on other machines'
//! clocks.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Holder, suspicion::Record};

/// Clocks may drift by this fraction of a Lease's duration while it runs.
const DRIFT: u32 = 16;

/// The mark that the last replica publishes when it leaves. A new replica removes it before it
/// serves a tenant: while it exists, no replica exists that lists do not show.
pub const LAST: &str = "last";

/// Returns how long a Lease counts after it was observed.
pub fn with_drift(duration: Duration) -> Duration {
    duration + duration / DRIFT
}

/// A Lease as it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The holder; `None` after the Lease was released.
    pub holder: Option<Holder>,
    /// The digest of the replica set that its holder follows; `LAST` if the last replica left.
    pub view: String,
    /// The Lease's uid.
    pub uid: String,
    /// The Lease's resourceVersion.
    pub resource_version: String,
    /// How long it is valid after it was written.
    pub duration: Duration,
}

/// All Leases of the fleet by name, from one list.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// The list's resourceVersion.
    pub revision: u64,
    /// The Leases.
    pub leases: BTreeMap<String, LeaseRecord>,
    /// The records about crashes, by the names of the Leases.
    pub records: BTreeMap<String, Record>,
}

/// A Lease, and the time since which it has not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedLease {
    /// Its latest version.
    pub lease: LeaseRecord,
    /// The time at which this version was first observed.
    pub since: Duration,
    /// States whether the last list contained it.
    pub presence: Presence,
}

/// States whether a Lease exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It exists.
    Listed,
    /// A person deleted it. Its holder may not know yet.
    Vanished,
}

impl LeaseRecord {
    /// Returns true if the last replica left it behind, and no other replica has started since.
    pub fn is_last(&self) -> bool {
        self.holder.is_none() && self.view == LAST
    }
}

impl ObservedLease {
    /// Returns true if its holder can no longer write.
    pub fn is_over(&self, now: Duration) -> bool {
        now >= self.ends()
    }

    /// Returns the time at which it expires.
    pub fn ends(&self) -> Duration {
        self.since + with_drift(self.lease.duration)
    }
}

/// All observed Leases.
#[derive(Clone, Debug)]
pub struct ObservedLeases {
    leases: BTreeMap<String, ObservedLease>,
    revision: u64,
    listed: Option<Duration>,
    gap_max: Duration,
    /// True if versions went back since the last list.
    is_restored: bool,
}

impl ObservedLeases {
    /// Creates the state before the first list. After a gap between two lists that is longer than a
    /// third of a Lease's duration, no Lease expires because of what happened in the gap.
    pub fn new(duration: Duration) -> Self {
        Self {
            leases: BTreeMap::new(),
            revision: 0,
            listed: None,
            gap_max: duration / 3,
            is_restored: false,
        }
    }

    /// Records the version that the server gave to our write of the Lease. A write is newer than
    /// every list that was answered before it was sent. If its version is lower than that of such a
    /// list, the cluster was restored from a backup and versions went back. Earlier versions then
    /// say nothing any more. Leases that were observed still count, from the next list on for their
    /// whole duration.
    pub fn wrote(&mut self, revision: u64) {
        if revision < self.revision {
            self.revision = 0;
            self.is_restored = true;
        }
    }

    /// Records a list that was received at `now`. A list that is older than a previous one is
    /// ignored.
    pub fn update(&mut self, list: Listed, now: Duration) {
        if list.revision < self.revision {
            return;
        }
        self.revision = list.revision;
        let has_gap = self
            .listed
            .replace(now)
            .is_some_and(|before| now.saturating_sub(before) > self.gap_max);
        // After a restore, a Lease may have its old version by chance although it was written
        // since.
        let was_blind = std::mem::take(&mut self.is_restored) || has_gap;
        let names: BTreeSet<&String> = list.leases.keys().collect();
        self.leases.retain(|name, observed| {
            if names.contains(name) {
                return true;
            }
            if std::mem::replace(&mut observed.presence, Presence::Vanished) == Presence::Listed {
                // It may have been renewed until the moment at which it was deleted.
                observed.since = now;
            }
            observed.lease.holder.is_some() && !observed.is_over(now)
        });
        for (name, lease) in list.leases {
            let same = self
                .leases
                .get(&name)
                .filter(|before| before.lease == lease)
                .map(|before| before.since);
            let observed = ObservedLease {
                lease,
                since: same.unwrap_or(now),
                presence: Presence::Listed,
            };
            self.leases.insert(name, observed);
        }
        if was_blind {
            for observed in self.leases.values_mut() {
                observed.since = now;
            }
        }
    }

    /// Returns true if a replica has lost its Lease and may not know that yet.
    pub fn has_vanished(&self) -> bool {
        self.leases
            .values()
            .any(|it| it.presence == Presence::Vanished)
    }

    /// Returns the Leases by name.
    pub fn leases(&self) -> &BTreeMap<String, ObservedLease> {
        &self.leases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn listed(revision: u64, holders: &[&str]) -> Listed {
        let lease = |holder: &&str| {
            let lease = LeaseRecord {
                holder: Some(Holder::parse(holder)),
                view: String::new(),
                uid: String::new(),
                resource_version: "1".to_owned(),
                duration: SECOND * 16,
            };
            ((*holder).to_owned(), lease)
        };
        Listed {
            revision,
            leases: holders.iter().map(lease).collect(),
            ..Listed::default()
        }
    }

    /// It may have been renewed a moment before it was removed.
    #[test]
    fn a_lease_that_was_removed_by_hand_counts_for_its_whole_duration_from_then() {
        let mut seen = ObservedLeases::new(SECOND * 180);
        seen.update(listed(1, &["a_1", "b_1"]), SECOND);
        assert!(!seen.has_vanished());
        seen.update(listed(2, &["a_1"]), SECOND * 10);
        assert!(seen.has_vanished());
        seen.update(listed(3, &["a_1"]), SECOND * 12);
        assert_eq!(seen.leases()["b_1"].ends(), SECOND * (10 + 17));
        seen.update(listed(4, &["a_1"]), SECOND * 27);
        assert!(!seen.has_vanished());
    }

    /// The restored cluster's versions are lower than those from before. Replicas that joined since
    /// must be seen. Those that only the old lists show must be waited for, and then dropped.
    #[test]
    fn after_a_restore_the_lists_count_again_and_what_was_seen_counts_for_its_duration() {
        let mut seen = ObservedLeases::new(SECOND * 180);
        seen.update(listed(100, &["a_1", "b_1", "c_1"]), SECOND);
        seen.wrote(101);
        seen.update(listed(40, &["a_1", "b_1"]), SECOND * 2);
        assert!(!seen.has_vanished(), "a list alone may come from a cache");
        seen.wrote(41);
        seen.update(listed(42, &["a_1", "b_1", "d_1"]), SECOND * 10);
        assert!(seen.leases().contains_key("d_1"), "a new replica is seen");
        assert_eq!(seen.leases()["c_1"].presence, Presence::Vanished);
        let ends = ["b_1", "c_1"].map(|name| seen.leases()[name].ends());
        assert_eq!(ends, [SECOND * (10 + 17); 2], "each counts from now");
        seen.update(listed(43, &["a_1", "b_1", "d_1"]), SECOND * 27);
        assert!(
            !seen.leases().contains_key("c_1"),
            "one that went is dropped"
        );
        let ends = seen.leases()["b_1"].ends();
        assert_eq!(ends, SECOND * (10 + 17), "silence counts again");
    }

    #[test]
    fn a_list_that_is_older_says_nothing() {
        let mut seen = ObservedLeases::new(SECOND * 180);
        seen.update(listed(2, &["a_1"]), SECOND);
        seen.update(listed(1, &[]), SECOND * 2);
        assert!(!seen.has_vanished());
    }

    #[test]
    fn a_list_of_the_same_version_counts_and_so_does_one_after_the_longest_gap() {
        let mut seen = ObservedLeases::new(SECOND * 180);
        for (revision, at) in [(1, 1), (1, 50), (2, 110)] {
            seen.update(listed(revision, &["a_1"]), SECOND * at);
        }
        assert_eq!(seen.leases()["a_1"].since, SECOND, "no gap was too long");
        seen.update(listed(3, &["a_1"]), SECOND * 171);
        assert_eq!(seen.leases()["a_1"].since, SECOND * 171, "this one was");
    }

    #[test]
    fn a_write_that_the_last_list_showed_already_is_no_restore() {
        let mut seen = ObservedLeases::new(SECOND * 180);
        seen.update(listed(5, &["a_1"]), SECOND);
        seen.wrote(5);
        seen.update(listed(4, &[]), SECOND * 2);
        assert!(!seen.has_vanished(), "an older list says nothing");
        seen.update(listed(6, &["a_1"]), SECOND * 3);
        assert_eq!(seen.leases()["a_1"].since, SECOND);
    }
}
