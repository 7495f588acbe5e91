//! Determines what a new replica knows about replicas that it does not see. The holder of a Lease
//! that was deleted by hand may still write for a while.

use super::{
    Holder, View,
    observed_leases::{LeaseRecord, Listed},
};

/// States how a new replica knows that there is no replica that writes and whose Lease it does not
/// see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predecessor {
    /// Another replica exists, or the replica's previous run was alone. No other replica can act
    /// without the agreement of these.
    Enough,
    /// The last replica left this Lease behind. The replica that removes it knows that no other has
    /// started since.
    Last(String),
    /// No Lease proves it.
    Missing,
}

impl Predecessor {
    /// Evaluates the first list of a new replica.
    pub fn of(me: &Holder, listed: &Listed) -> Self {
        let is_alone = |it: &LeaseRecord| {
            let holder = it.holder.clone();
            holder.is_some_and(|holder| it.view == View([holder].into()).digest())
        };
        if !others(me, listed).0.is_empty() || listed.leases.values().any(is_alone) {
            return Self::Enough;
        }
        let mut found = listed.leases.iter();
        let last = found.find(|(_, it)| it.is_last());
        last.map_or(Self::Missing, |(name, _)| Self::Last(name.clone()))
    }
}

/// Returns the holders of Leases, except for the replica itself in any of its runs.
pub fn others(me: &Holder, listed: &Listed) -> View {
    let holders = listed.leases.values().filter_map(|it| it.holder.clone());
    View(holders.filter(|it| it.instance != me.instance).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fleet::sharding::observed_leases::LAST;

    fn check(leases: &[(&str, &str, &str)], expected: &Predecessor) {
        let lease = |(name, holder, view): &(&str, &str, &str)| {
            let lease = LeaseRecord {
                holder: (!holder.is_empty()).then(|| Holder::parse(holder)),
                view: (*view).to_owned(),
                uid: String::new(),
                resource_version: String::new(),
                duration: Duration::ZERO,
            };
            ((*name).to_owned(), lease)
        };
        let listed = Listed {
            revision: 1,
            leases: leases.iter().map(lease).collect(),
            ..Listed::default()
        };
        let found = Predecessor::of(&Holder::parse("a_2"), &listed);
        assert_eq!(found, *expected, "{leases:?}");
    }

    #[test]
    fn who_sees_no_other_knows_that_there_is_none_by_the_last_ones_word_alone() {
        let view = |replicas: &[&str]| {
            View(replicas.iter().map(|it| Holder::parse(it)).collect()).digest()
        };
        let last = Predecessor::Last("b".to_owned());
        check(&[], &Predecessor::Missing);
        check(&[("b", "", "")], &Predecessor::Missing);
        check(&[("b", "", &view(&["b_1"]))], &Predecessor::Missing);
        check(&[("b", "", LAST)], &last);
        check(&[("a", "a_1", &view(&["a_1"]))], &Predecessor::Enough);
        check(
            &[("a", "a_1", &view(&["a_1", "b_1"]))],
            &Predecessor::Missing,
        );
        check(&[("a", "a_1", &view(&[]))], &Predecessor::Missing);
        check(&[("b", "b_1", "whatever")], &Predecessor::Enough);
        check(&[("b", "", LAST), ("c", "c_1", "")], &Predecessor::Enough);
        check(&[("a", "a_1", &view(&[])), ("b", "", LAST)], &last);
    }
}
