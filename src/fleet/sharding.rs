//! Which replica serves which tenant. The parts that decide are pure; `membership` alone asks and
//! writes.
//!
//! ```text
//!  Leases ──list──► observed Leases ──► evaluate ──► assignment ──► shard ──► fleet
//!  one per replica  what is seen        one table    wanted and     which     serves it
//!    ▲                                               published      tenants     │
//!    └────────── the new assignment, once everything that moved was released ◄──┘
//! ```
//!
//! A tenant goes to the replica that draws the highest number for it. A replica lets go of what
//! moved before it publishes the replica set that it acts on, and takes what is new once one list
//! shows that every replica has published the same set. A replica is gone when nobody holds its
//! Lease: released by its holder, or taken from it by compare-and-swap after it was seen unchanged
//! for its duration by the local clock. Its own fence has closed before. A Lease that is not there
//! says nothing: who saw it, and who comes and finds nobody, waits for as long as it may have held.

pub mod assignment;
pub mod evaluate;
pub mod fence;
pub mod lease;
pub mod membership;
pub mod observed_leases;
pub mod precautions;
pub mod predecessor;
pub mod shard;
pub mod suspicion;

use std::{collections::BTreeSet, fmt};

use sha2::{Digest, Sha256};

/// One life of one replica: a process that comes back under its name is another holder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The replica's name; it draws the replica's tenants.
    pub instance: String,
    /// Drawn when the process starts.
    pub incarnation: String,
}

impl Holder {
    /// Reads a `holderIdentity`. One that was not written by us is one life of one replica, too.
    pub fn parse(identity: &str) -> Self {
        let (instance, incarnation) = identity.rsplit_once('_').unwrap_or((identity, ""));
        Self {
            instance: instance.to_owned(),
            incarnation: incarnation.to_owned(),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}_{}", self.instance, self.incarnation)
    }
}

/// A set of replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View(pub BTreeSet<Holder>);

impl View {
    /// What is published of it.
    pub fn digest(&self) -> String {
        let mut digest = Sha256::new();
        for holder in &self.0 {
            digest.update(holder.to_string());
            digest.update([0]);
        }
        let whole = digest.finalize();
        let (first, _) = whole.split_at(16);
        hex::encode(first)
    }
}
