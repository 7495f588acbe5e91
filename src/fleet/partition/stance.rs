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
