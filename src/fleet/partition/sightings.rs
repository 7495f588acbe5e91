//! What a replica has seen of the Leases, and since when by its own clock. Time here is boot time:
//! it goes on while the machine is suspended, and no other machine's clock counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::Holder;

/// Clocks may differ by this part of a Lease's duration in the course of it.
const DRIFT: u32 = 16;

/// A Lease, as it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Who holds it; nobody once it was released.
    pub holder: Option<Holder>,
    /// The digest of the member set that its holder acts on.
    pub view: String,
    /// The Lease's uid.
    pub uid: String,
    /// The Lease's resourceVersion.
    pub resource_version: String,
    /// For how long it holds after it was written.
    pub duration: Duration,
}

/// All Leases of the fleet by their names, as one list showed them.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// The list's resourceVersion.
    pub revision: u64,
    /// The Leases.
    pub leases: BTreeMap<String, Sighting>,
}

/// A Lease, and for how long it has been like this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// As it was seen last.
    pub lease: Sighting,
    /// When it was first seen like this.
    pub since: Duration,
    /// Whether it was part of the last list.
    pub presence: Presence,
}

/// Whether a Lease is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is.
    Listed,
    /// Somebody removed it. Its holder may not know yet.
    Vanished,
}

impl Observed {
    /// Whether its holder cannot write any more, whatever it knows.
    pub fn is_over(&self, now: Duration) -> bool {
        now >= self.ends()
    }

    /// When it is over.
    pub fn ends(&self) -> Duration {
        let duration = self.lease.duration;
        self.since + duration + duration / DRIFT
    }
}

/// Everything that was seen.
#[derive(Clone, Debug)]
pub struct Sightings {
    leases: BTreeMap<String, Observed>,
    revision: u64,
    listed: Option<Duration>,
    gap_max: Duration,
}

impl Sightings {
    /// Nothing was seen yet. After a gap between two lists that is longer than `gap_max`, nothing
    /// is held against those who could not be seen in the meantime.
    pub fn new(gap_max: Duration) -> Self {
        Self {
            leases: BTreeMap::new(),
            revision: 0,
            listed: None,
            gap_max,
        }
    }

    /// Takes note of a list that was answered at `now`. One that is older than what was seen before
    /// tells nothing.
    pub fn update(&mut self, list: Listed, now: Duration) {
        if list.revision < self.revision {
            return;
        }
        self.revision = list.revision;
        let was_blind = self
            .listed
            .replace(now)
            .is_some_and(|before| now.saturating_sub(before) > self.gap_max);
        let names: BTreeSet<&String> = list.leases.keys().collect();
        self.leases.retain(|name, observed| {
            if names.contains(name) {
                return true;
            }
            observed.presence = Presence::Vanished;
            observed.lease.holder.is_some() && !observed.is_over(now)
        });
        for (name, lease) in list.leases {
            let same = self
                .leases
                .get(&name)
                .filter(|before| before.lease == lease)
                .map(|before| before.since);
            let observed = Observed {
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

    /// The Leases by their names.
    pub fn leases(&self) -> &BTreeMap<String, Observed> {
        &self.leases
    }
}
