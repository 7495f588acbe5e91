//! The decisions that a replica has made and published so far. No method sends a request or waits.

use std::time::Duration;

use super::{
    Holder, View,
    evaluate::{Agreement, ElectionResult},
    observed_leases::Listed,
    predecessor::others,
    shard::Shard,
};

/// The state of a replica's decisions.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The replica.
    pub me: Holder,
    /// The replica set in its Lease.
    pub published: View,
    /// The replica set that it will publish next.
    pub aim: View,
    /// The tenants that it may serve.
    pub grant: Shard,
    /// The boot time until which a replica may still write whose Lease was deleted by hand before
    /// this replica started. Until then, this replica publishes nothing.
    pub unseen_until: Duration,
}

impl Assignment {
    /// Creates the state of a replica that starts, and publishes its first set together with its
    /// Lease. It serves nothing yet, so it has nothing to release. Before `unseen_until` that set
    /// is empty, and no other replica agrees with it.
    pub fn joining(me: Holder, listed: &Listed, unseen_until: Duration) -> Self {
        let mut aim = others(&me, listed);
        aim.0.insert(me.clone());
        let is_sure = unseen_until == Duration::ZERO;
        Self {
            grant: Shard::nothing(&me.instance),
            me,
            published: if is_sure {
                aim.clone()
            } else {
                View::default()
            },
            aim,
            unseen_until,
        }
    }

    /// Applies an evaluation of the Leases. Tenants that moved are removed from the shard.
    pub fn follow(&mut self, election_result: &ElectionResult) {
        let Some(replicas) = &election_result.replicas else {
            return;
        };
        if *replicas != self.aim {
            self.grant.narrow(replicas);
            self.aim = replicas.clone();
        } else if election_result.agreement == Agreement::Reached && self.aim == self.published {
            self.grant.settle(replicas);
        }
    }

    /// Returns the set to publish now, if it differs. Call this only once all tenants outside of
    /// the shard have been released.
    pub fn to_publish(&self, now: Duration) -> Option<&View> {
        (now >= self.unseen_until && self.aim != self.published).then_some(&self.aim)
    }

    /// Returns true if it is the only replica.
    pub fn is_last(&self) -> bool {
        self.published == View([self.me.clone()].into())
    }

    /// Records that the server has stored the set.
    pub fn has_published(&mut self, view: View) {
        self.published = view;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::sharding::{evaluate::Pace, observed_leases::LeaseRecord};
    use crate::tenant::id::TenantId;

    fn a_view(replicas: &[&str]) -> View {
        View(replicas.iter().map(|it| Holder::parse(it)).collect())
    }

    fn joining(others: &[&str], unseen_until: Duration) -> Assignment {
        let lease = |holder: &&str| {
            let lease = LeaseRecord {
                holder: Some(Holder::parse(holder)),
                view: String::new(),
                uid: String::new(),
                resource_version: String::new(),
                duration: Duration::ZERO,
            };
            ((*holder).to_owned(), lease)
        };
        let listed = Listed {
            revision: 1,
            leases: others.iter().map(lease).collect(),
            ..Listed::default()
        };
        Assignment::joining(Holder::parse("a_1"), &listed, unseen_until)
    }

    fn a_verdict(replicas: &[&str], agreement: Agreement) -> ElectionResult {
        ElectionResult {
            replicas: Some(a_view(replicas)),
            agreement,
            over: Vec::new(),
            pace: Pace::Calm,
        }
    }

    #[test]
    fn a_replica_publishes_its_first_set_as_it_joins_unless_somebody_may_be_unseen() {
        let sure = joining(&["b_1"], Duration::ZERO);
        assert_eq!(sure.published, a_view(&["a_1", "b_1"]));
        assert_eq!(sure.to_publish(Duration::ZERO), None);
        let (before, until) = (Duration::from_secs(16), Duration::from_secs(17));
        let mut unsure = joining(&["b_1"], until);
        assert_eq!(unsure.published, View::default());
        assert_eq!(unsure.to_publish(before), None);
        let aim = unsure.to_publish(until).cloned().unwrap();
        assert_eq!(aim, a_view(&["a_1", "b_1"]));
        unsure.has_published(aim);
        assert_eq!(unsure.to_publish(until), None);
    }

    #[test]
    fn only_a_replica_that_published_itself_alone_is_the_last() {
        assert!(joining(&[], Duration::ZERO).is_last());
        assert!(!joining(&["b_1"], Duration::ZERO).is_last());
        assert!(!joining(&[], Duration::from_secs(17)).is_last());
    }

    /// A replica serves only what all have agreed on, and only by a set that it published itself.
    #[test]
    fn nothing_is_granted_before_the_set_is_published_and_agreed_on() {
        use Agreement::{Pending, Reached};
        let tenant = TenantId::new("berlin");
        let covers = |assignment: &Assignment| assignment.grant.covers(&tenant);
        let mut assignment = joining(&["b_1"], Duration::ZERO);
        assignment.follow(&a_verdict(&["a_1", "b_1"], Pending));
        assert!(!assignment.grant.has_begun(), "not agreed on");
        // b leaves. Its tenants are not taken until this replica has published the smaller set.
        assignment.follow(&a_verdict(&["a_1"], Reached));
        assert!(!assignment.grant.has_begun(), "another set than before");
        assert_eq!(assignment.aim, a_view(&["a_1"]));
        assignment.follow(&a_verdict(&["a_1"], Reached));
        assert!(
            !assignment.grant.has_begun() && !covers(&assignment),
            "not published"
        );
        let aim = assignment.to_publish(Duration::ZERO).cloned().unwrap();
        assignment.has_published(aim);
        assignment.follow(&a_verdict(&["a_1"], Pending));
        assert!(!assignment.grant.has_begun(), "not agreed on");
        assignment.follow(&a_verdict(&["a_1"], Reached));
        assert!(assignment.grant.has_begun() && covers(&assignment));
        // A replica that does not see its own Lease follows nothing.
        let before = assignment.aim.clone();
        let blind = ElectionResult {
            replicas: None,
            ..a_verdict(&[], Reached)
        };
        assignment.follow(&blind);
        assert_eq!(assignment.aim, before);
    }
}
