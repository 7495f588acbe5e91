//! Which tenants a replica may serve, by rendezvous hashing: every replica draws a number for a
//! tenant, and the highest has it. Who comes takes from all alike, who goes leaves to all alike,
//! and nothing else moves.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::View;
use crate::tenant::id::TenantId;

/// Which tenants a replica may serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shard {
    me: String,
    /// Everybody whom it has to beat; none while it may serve nothing.
    against: Option<BTreeSet<String>>,
}

impl Shard {
    /// A replica that may serve nothing yet.
    pub fn nothing(me: &str) -> Self {
        Self {
            me: me.to_owned(),
            against: None,
        }
    }

    /// Whether all replicas have agreed since the replica came.
    pub fn has_begun(&self) -> bool {
        self.against.is_some()
    }

    /// Whether the replica may serve a tenant.
    pub fn covers(&self, tenant: &TenantId) -> bool {
        #[cfg(test)]
        crate::fleet::index::visits::count();
        let Some(against) = &self.against else {
            return false;
        };
        wins(&self.me, against, tenant)
    }

    /// Leaves what other replicas have to beat this one for. Members that go leave nothing behind
    /// until all have agreed on that.
    pub fn narrow(&mut self, view: &View) {
        if let Some(against) = &mut self.against {
            against.extend(view.0.iter().map(|holder| holder.instance.clone()));
        }
    }

    /// All replicas have agreed on this set.
    pub fn settle(&mut self, view: &View) {
        let instances = view.0.iter().map(|holder| holder.instance.clone());
        self.against = Some(instances.collect());
    }
}

/// Whether a replica draws higher than all others for a tenant.
pub fn wins(me: &str, against: &BTreeSet<String>, tenant: &TenantId) -> bool {
    let mine = draw(me, tenant);
    let mut others = against.iter().filter(|other| *other != me);
    others.all(|other| draw(other, tenant) < mine)
}

/// A replica's number for a tenant. Two replicas never draw the same.
fn draw<'a>(instance: &'a str, tenant: &TenantId) -> ([u8; 32], &'a str) {
    let mut digest = Sha256::new();
    digest.update(instance);
    digest.update([0]);
    digest.update(tenant.namespace());
    (digest.finalize().into(), instance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::sharding::Holder;

    fn a_view(instances: &[&str]) -> View {
        let holder = |it: &&str| Holder::parse(it);
        View(instances.iter().map(holder).collect())
    }

    fn a_grant(me: &str, instances: &[&str]) -> Shard {
        let mut grant = Shard::nothing(me);
        grant.settle(&a_view(instances));
        grant
    }

    fn tenants() -> Vec<TenantId> {
        (0..1_000)
            .map(|number| TenantId::new(format!("tenant-{number}").as_str()))
            .collect()
    }

    fn owner<'a>(replicas: &[&'a str], tenant: &TenantId) -> &'a str {
        let mut owners = replicas
            .iter()
            .filter(|me| a_grant(me, replicas).covers(tenant));
        let owner = owners.next().expect("somebody has it");
        assert_eq!(owners.next(), None, "nobody else has it");
        owner
    }

    #[test]
    fn each_tenant_has_one_owner_and_all_owners_have_about_as_many() {
        let replicas = ["a", "b", "c"];
        for me in replicas {
            let grant = a_grant(me, &replicas);
            let count = tenants().iter().filter(|it| grant.covers(it)).count();
            assert!((250..=420).contains(&count), "{me} has {count}");
        }
        for tenant in tenants() {
            owner(&replicas, &tenant);
        }
    }

    #[test]
    fn who_goes_moves_its_own_tenants_only() {
        for tenant in tenants() {
            let before = owner(&["a", "b", "c"], &tenant);
            let after = owner(&["a", "b"], &tenant);
            assert!(before == after || before == "c");
        }
    }

    #[test]
    fn nothing_is_taken_before_all_agree_and_what_moves_is_left_at_once() {
        let mut grant = Shard::nothing("a");
        grant.narrow(&a_view(&["a"]));
        assert!(!tenants().iter().any(|it| grant.covers(it)));
        grant.settle(&a_view(&["a", "b"]));
        let wide = tenants().iter().filter(|it| grant.covers(it)).count();
        grant.narrow(&a_view(&["a", "c"]));
        let narrow = tenants().iter().filter(|it| grant.covers(it)).count();
        assert!(narrow < wide);
        let both = a_grant("a", &["a", "b", "c"]);
        assert!(
            tenants()
                .iter()
                .all(|it| grant.covers(it) == both.covers(it)),
            "what went to b does not come back before all agree that b is gone"
        );
    }

    /// Replicas of two releases serve one fleet during an upgrade: what draws highest stays.
    #[test]
    fn every_release_gives_a_tenant_to_the_same_member() {
        let replicas = ["a", "b", "c"];
        let owners: String = tenants()
            .iter()
            .take(16)
            .map(|tenant| owner(&replicas, tenant))
            .collect();
        assert_eq!(owners, "bbabbcbbaaaabcbb");
    }
}
