//! What a replica has decided and promised so far. Each step is a method, so that the random
//! histories of the tests walk the same steps as the real thing.

use super::{
    Holder, View,
    evaluate::{Agreement, Verdict},
    grant::Grant,
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
}

impl Stance {
    /// A replica that comes, and publishes this set with its Lease: it holds nothing that it would
    /// have to let go.
    pub fn joining(me: Holder, published: View) -> Self {
        Self {
            grant: Grant::nothing(&me.instance),
            me,
            aim: published.clone(),
            published,
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

    /// The set to publish, if it is another: everything that is not granted must have been let go.
    pub fn to_publish(&self) -> Option<&View> {
        (self.aim != self.published).then_some(&self.aim)
    }

    /// The server has taken the set.
    pub fn has_published(&mut self, view: View) {
        self.published = view;
    }
}

#[cfg(test)]
mod tests;
