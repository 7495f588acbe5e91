//! The decision: who are the replicas, do all of them act on the same set, and whose Lease is over.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Holder, View,
    observed_leases::{ObservedLease, Presence},
};

/// What the Leases say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElectionResult {
    /// The replicas now; none where the replica does not see its own Lease yet, for then it may not
    /// see those that are older either.
    pub replicas: Option<View>,
    /// Whether every replica has published the set that this replica acts on.
    pub agreement: Agreement,
    /// The names of Leases that are over and still there.
    pub over: Vec<String>,
    /// Whether something is about to happen that is worth looking for.
    pub pace: Pace,
}

/// Whether every replica acts on the same set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// All have published it.
    Reached,
    /// Somebody has not.
    Pending,
}

/// How soon to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Nothing is expected.
    Calm,
    /// Somebody is expected to publish, or was not heard of for a while.
    Brisk,
}

/// Judges what a replica sees.
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
