//! Decides which replica serves which tenant. The modules that decide are pure. Only `membership`
//! sends requests.
//!
//! ```text
//!  Leases ──list──► observed Leases ──► evaluate ──► assignment ──► shard ──► fleet
//!  one per replica  what is seen        one table    wanted and     which     serves it
//!    ▲                                               published      tenants     │
//!    └────────── the new assignment, once everything that moved was released ◄──┘
//! ```
//!
//! Rendezvous hashing assigns each tenant to a replica. A replica releases the tenants that moved
//! before it publishes the replica set that it follows, and serves new ones once one list shows
//! that all replicas have published the same set. A replica is gone when nobody holds its Lease:
//! the holder released it, or another replica took it by compare-and-swap after it had not changed
//! for its duration by the local clock. By then the holder's fence has closed. A missing Lease
//! proves nothing: replicas that saw it, and newcomers that see no peer, wait one full lease
//! duration.

pub mod assignment;
pub mod evaluate;
pub mod lease;
pub mod membership;
pub mod observed_leases;
pub mod precautions;
pub mod predecessor;
pub mod shard;
pub mod suspicion;

use std::{collections::BTreeSet, fmt};

use sha2::{Digest, Sha256};

/// One run of one replica. A process that restarts under the same name is a different holder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The replica's name. The assignment of tenants depends on it.
    pub instance: String,
    /// A random value from the start of the process.
    pub incarnation: String,
}

impl Holder {
    /// Parses a `holderIdentity`. One in another format also counts as one run of one replica.
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
    /// Returns the digest of the set, which is published in the Lease.
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
