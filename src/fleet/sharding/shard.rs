//! The tenants that a replica may serve, by rendezvous hashing: each pair of replica and tenant has
//! a number, and the replica with the highest number serves the tenant. A new replica takes an
//! equal part from each, a replica that leaves gives an equal part to each, and no other tenant
//! moves.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::View;
use crate::tenant::id::TenantId;

/// The tenants that a replica may serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shard {
    me: String,
    /// The replicas whose numbers it must exceed; `None` while it may serve nothing.
    against: Option<BTreeSet<String>>,
}

impl Shard {
    /// Creates the shard of a replica that may serve nothing yet.
    pub fn nothing(me: &str) -> Self {
        Self {
            me: me.to_owned(),
            against: None,
        }
    }

    /// Returns true if all replicas have agreed since the replica started.
    pub fn has_begun(&self) -> bool {
        self.against.is_some()
    }

    /// Returns true if the replica may serve a tenant.
    pub fn covers(&self, tenant: &TenantId) -> bool {
        #[cfg(test)]
        crate::fleet::index::visits::count();
        let Some(against) = &self.against else {
            return false;
        };
        wins(&self.me, against, tenant)
    }

    /// Returns the replica that serves a tenant according to this one, or `None` until all replicas
    /// have agreed. After a replica has left, it returns that one until all have agreed again.
    pub fn owner(&self, tenant: &TenantId) -> Option<&str> {
        let others = self.against.as_ref()?.iter().map(String::as_str);
        owner(others.chain([self.me.as_str()]), tenant)
    }

    /// Removes the tenants for which other replicas have a higher number. Tenants of replicas that
    /// leave are not added until all have agreed.
    pub fn narrow(&mut self, view: &View) {
        if let Some(against) = &mut self.against {
            against.extend(view.0.iter().map(|holder| holder.instance.clone()));
        }
    }

    /// Records that all replicas have agreed on this set.
    pub fn settle(&mut self, view: &View) {
        let instances = view.0.iter().map(|holder| holder.instance.clone());
        self.against = Some(instances.collect());
    }
}

/// Returns the replica that serves a tenant, of a set of replicas that have agreed.
pub fn owner<'a>(replicas: impl Iterator<Item = &'a str>, tenant: &TenantId) -> Option<&'a str> {
    replicas.max_by_key(|replica| draw(replica, tenant))
}

/// Returns true if a replica has a higher number for a tenant than all others.
pub fn wins(me: &str, against: &BTreeSet<String>, tenant: &TenantId) -> bool {
    let mine = draw(me, tenant);
    let mut others = against.iter().filter(|other| *other != me);
    others.all(|other| draw(other, tenant) < mine)
}

/// Returns a replica's number for a tenant. No two replicas have the same number.
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
        for me in replicas {
            assert_eq!(a_grant(me, replicas).owner(tenant), Some(*owner));
        }
        assert_eq!(Shard::nothing(owner).owner(tenant), None);
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

    /// During an upgrade, replicas of two releases serve one fleet, so the numbers must not change.
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
