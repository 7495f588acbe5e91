//! Evaluates the Leases: which replicas exist, whether all follow the same set, and which Leases
//! expired.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Holder, View,
    observed_leases::{ObservedLease, Presence},
};

/// The result of an evaluation of the Leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionResult {
    /// The current replicas; `None` if the replica does not see its own Lease yet, because then it
    /// may miss older ones, too.
    pub replicas: Option<View>,
    /// States whether every replica has published the set that this replica follows.
    pub agreement: Agreement,
    /// The names of Leases that expired and still exist.
    pub over: Vec<String>,
    /// The expected time until the next change.
    pub pace: Pace,
}

/// States whether every replica follows the same set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// All replicas have published it.
    Reached,
    /// At least one replica has not.
    Pending,
}

/// How soon the Leases must be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// No change is expected.
    Calm,
    /// A replica is expected to publish, or has not renewed its Lease for a while.
    Brisk,
}

/// Evaluates the Leases that a replica sees.
pub fn evaluate(
    me: &Holder,
    acted_on: &View,
    leases: &BTreeMap<String, ObservedLease>,
    now: Duration,
) -> ElectionResult {
    let is_mine = |it: &ObservedLease| it.lease.holder.as_ref() == Some(me);
    let listed = |it: &ObservedLease| it.presence == Presence::Listed;
    let sees_itself = leases.values().any(|it| is_mine(it) && listed(it));
    let replicas: Vec<&ObservedLease> = leases
        .values()
        .filter(|it| listed(it) || !it.is_over(now))
        .filter(|it| it.lease.holder.is_some())
        .collect();
    let view = View(
        replicas
            .iter()
            .filter_map(|it| it.lease.holder.clone())
            .collect(),
    );
    let published = acted_on.digest();
    let all_published = replicas
        .iter()
        .all(|it| listed(it) && it.lease.view == published);
    let is_begun = !leases.values().any(|it| listed(it) && it.lease.is_last());
    let has_agreed = sees_itself && view == *acted_on && all_published && is_begun;
    let is_done = |it: &ObservedLease| it.is_over(now) || sees_itself && it.lease.is_last();
    let over: Vec<String> = leases
        .iter()
        .filter(|(_, it)| listed(it) && !is_mine(it) && is_done(it))
        .map(|(name, _)| name.clone())
        .collect();
    let is_late = |it: &&ObservedLease| !is_mine(it) && now > it.since + it.lease.duration / 2;
    let is_calm = has_agreed && !replicas.iter().any(is_late);
    ElectionResult {
        replicas: sees_itself.then_some(view),
        agreement: if has_agreed {
            Agreement::Reached
        } else {
            Agreement::Pending
        },
        over,
        pace: if is_calm { Pace::Calm } else { Pace::Brisk },
    }
}

#[cfg(test)]
mod tests;
