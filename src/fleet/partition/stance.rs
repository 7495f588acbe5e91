//! What a replica has decided and promised so far. Each step is a method without a call or a wait.

use std::time::Duration;

use super::{
    Holder, View,
    evaluate::{Agreement, Verdict},
    evidence::others,
    grant::Grant,
    sightings::Listed,
};

/// What a replica has decided so far.
#[derive(Clone, Debug)]
pub struct Stance {
    /// The replica.
    pub me: Holder,
    /// The member set that it published last.
    pub published: View,
    /// The member set that it is about to publish.
    pub aim: View,
    /// What it may serve.
    pub grant: Grant,
    /// Until when somebody may write whose Lease was removed by hand before the replica came, in
    /// boot time. Nothing is published before.
    pub unseen_until: Duration,
}

impl Stance {
    /// A replica that comes, and publishes its first set with its Lease: it holds nothing that it
    /// would have to let go. Before `unseen_until` that is the empty set, on which nobody agrees.
    pub fn joining(me: Holder, listed: &Listed, unseen_until: Duration) -> Self {
        let mut aim = others(&me, listed);
        aim.0.insert(me.clone());
        let is_sure = unseen_until == Duration::ZERO;
        Self {
            grant: Grant::nothing(&me.instance),
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

    /// Follows what the Leases say. What moved is no longer granted from here on.
    pub fn follow(&mut self, verdict: &Verdict) {
        let Some(members) = &verdict.members else {
            return;
        };
        if *members != self.aim {
            self.grant.narrow(members);
            self.aim = members.clone();
        } else if verdict.agreement == Agreement::Reached && self.aim == self.published {
            self.grant.settle(members);
        }
    }

    /// The set to publish now, if it is another: everything that is not granted must have been let
    /// go.
    pub fn to_publish(&self, now: Duration) -> Option<&View> {
        (now >= self.unseen_until && self.aim != self.published).then_some(&self.aim)
    }

    /// Whether it has no fellow.
    pub fn is_last(&self) -> bool {
        self.published == View([self.me.clone()].into())
    }

    /// The server has taken the set.
    pub fn has_published(&mut self, view: View) {
        self.published = view;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::partition::{evaluate::Pace, sightings::Sighting};
    use crate::tenant::id::TenantId;

    fn a_view(members: &[&str]) -> View {
        View(members.iter().map(|it| Holder::parse(it)).collect())
    }

    fn joining(others: &[&str], unseen_until: Duration) -> Stance {
        let lease = |holder: &&str| {
            let lease = Sighting {
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
        Stance::joining(Holder::parse("a_1"), &listed, unseen_until)
    }

    fn a_verdict(members: &[&str], agreement: Agreement) -> Verdict {
        Verdict {
            members: Some(a_view(members)),
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

    /// What is granted is what all have agreed on, of a set that this replica published.
    #[test]
    fn nothing_is_granted_before_the_set_is_published_and_agreed_on() {
        use Agreement::{Pending, Reached};
        let tenant = TenantId::new("berlin");
        let covers = |stance: &Stance| stance.grant.covers(&tenant);
        let mut stance = joining(&["b_1"], Duration::ZERO);
        stance.follow(&a_verdict(&["a_1", "b_1"], Pending));
        assert!(!stance.grant.has_begun(), "not agreed on");
        // b goes: its tenants are not taken until this replica has published the smaller set.
        stance.follow(&a_verdict(&["a_1"], Reached));
        assert!(!stance.grant.has_begun(), "another set than before");
        assert_eq!(stance.aim, a_view(&["a_1"]));
        stance.follow(&a_verdict(&["a_1"], Reached));
        assert!(
            !stance.grant.has_begun() && !covers(&stance),
            "not published"
        );
        let aim = stance.to_publish(Duration::ZERO).cloned().unwrap();
        stance.has_published(aim);
        stance.follow(&a_verdict(&["a_1"], Pending));
        assert!(!stance.grant.has_begun(), "not agreed on");
        stance.follow(&a_verdict(&["a_1"], Reached));
        assert!(stance.grant.has_begun() && covers(&stance));
        // Who does not see itself follows nothing.
        let before = stance.aim.clone();
        let blind = Verdict {
            members: None,
            ..a_verdict(&[], Reached)
        };
        stance.follow(&blind);
        assert_eq!(stance.aim, before);
    }
}
