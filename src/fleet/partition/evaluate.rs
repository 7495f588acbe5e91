//! The decision: who are the members, do all of them act on the same set, and whose Lease is over.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Holder, View,
    sightings::{Observed, Presence},
};

/// What the Leases say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The members now; none where the replica does not see its own Lease yet, for then it may not
    /// see those that are older either.
    pub members: Option<View>,
    /// Whether every member has published the set that this replica acts on.
    pub agreement: Agreement,
    /// The names of Leases that are over and still there.
    pub over: Vec<String>,
    /// Whether something is about to happen that is worth looking for.
    pub pace: Pace,
}

/// Whether every member acts on the same set.
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
    leases: &BTreeMap<String, Observed>,
    now: Duration,
) -> Verdict {
    let is_mine = |it: &Observed| it.lease.holder.as_ref() == Some(me);
    let listed = |it: &Observed| it.presence == Presence::Listed;
    let sees_itself = leases.values().any(|it| is_mine(it) && listed(it));
    let members: Vec<&Observed> = leases
        .values()
        .filter(|it| listed(it) || !it.is_over(now))
        .filter(|it| it.lease.holder.is_some())
        .collect();
    let view = View(
        members
            .iter()
            .filter_map(|it| it.lease.holder.clone())
            .collect(),
    );
    let published = acted_on.digest();
    let all_published = members
        .iter()
        .all(|it| listed(it) && it.lease.view == published);
    let is_begun = !leases.values().any(|it| listed(it) && it.lease.is_last());
    let has_agreed = sees_itself && view == *acted_on && all_published && is_begun;
    let is_done = |it: &Observed| it.is_over(now) || sees_itself && it.lease.is_last();
    let over: Vec<String> = leases
        .iter()
        .filter(|(_, it)| listed(it) && !is_mine(it) && is_done(it))
        .map(|(name, _)| name.clone())
        .collect();
    let is_late = |it: &&Observed| !is_mine(it) && now > it.since + it.lease.duration / 2;
    let is_calm = has_agreed && !members.iter().any(is_late);
    Verdict {
        members: sees_itself.then_some(view),
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
