//! The registry: every registration of the fleet, and which of them owns its namespace.
//!
//! This is the only file with a concurrent map. No method returns a guard of it.

mod known;
mod namespace;
mod registered_cluster;

use std::{collections::BTreeSet, sync::Arc};

use dashmap::DashMap;
use tokio::sync::watch;

use self::namespace::Namespace;
pub use self::{
    namespace::{CONSIDERED_MAX, Moves},
    registered_cluster::{Ownership, Place, RegisteredCluster},
};
use super::discovery::{Gone, Registration};
use crate::client::watch::Scope;
use crate::tenant::{
    id::{RegistrationId, TenantId},
    inventory::Inventory,
};

/// Every registration of the fleet, by namespace.
#[derive(Debug)]
pub struct Registry {
    namespaces: DashMap<TenantId, Namespace>,
    inventories: BTreeSet<Inventory>,
    /// What was listed completely: the registrations of an inventory, in a namespace or in all.
    listed: watch::Sender<BTreeSet<(Inventory, Option<String>)>>,
}

impl Registry {
    /// Creates the registry of these inventories.
    pub fn new(inventories: &BTreeSet<Inventory>) -> Self {
        Self {
            namespaces: DashMap::default(),
            inventories: inventories.clone(),
            listed: watch::Sender::default(),
        }
    }

    /// Adds or updates a registration. Of a Secret in several inventories, the registration of the
    /// first one counts.
    pub fn present(&self, registration: Registration) -> Moves {
        let tenant = registration.id.tenant.clone();
        let mut namespace = self.namespaces.entry(tenant).or_default();
        namespace.present(registration)
    }

    /// Adds a registered cluster whose registration was removed before this replica saw it, so that
    /// its status can be updated. Returns `None` if it is known, or may still be listed.
    pub fn orphaned(&self, id: &RegistrationId) -> Option<Arc<RegisteredCluster>> {
        if !self.has_seen_all_of(&id.tenant) {
            return None;
        }
        let mut namespace = self.namespaces.entry(id.tenant.clone()).or_default();
        namespace.orphaned(id)
    }

    /// Records that a registration was removed from an inventory. If no other has it, it stays in
    /// the registry until its cluster was released.
    pub fn gone(&self, gone: &Gone) -> Moves {
        let tenant = &gone.id.tenant;
        let namespace = self.namespaces.get_mut(tenant);
        let moves = namespace.map(|mut namespace| namespace.gone(gone));
        self.forget_if_empty(tenant);
        moves.unwrap_or_default()
    }

    /// Removes a registration from the registry, unless it was created again in the meantime.
    pub fn remove(&self, id: &RegistrationId) -> bool {
        let namespace = self.namespaces.get_mut(&id.tenant);
        let removed = namespace.is_some_and(|mut namespace| namespace.remove(id));
        self.forget_if_empty(&id.tenant);
        removed
    }

    fn forget_if_empty(&self, tenant: &TenantId) {
        self.namespaces
            .remove_if(tenant, |_, namespace| namespace.is_empty());
    }

    /// Forgets the state of a registered cluster that another replica serves now. Returns the entry
    /// that replaces it.
    pub fn renew(&self, id: &RegistrationId) -> Option<Arc<RegisteredCluster>> {
        self.namespaces.get_mut(&id.tenant)?.renew(id)
    }

    /// Returns a registered cluster by its id.
    pub fn get(&self, id: &RegistrationId) -> Option<Arc<RegisteredCluster>> {
        self.namespaces.get(&id.tenant)?.get(id).cloned()
    }

    /// Returns all registered clusters.
    pub fn all(&self) -> Vec<Arc<RegisteredCluster>> {
        self.within(None)
    }

    /// Returns the registered clusters of one namespace, or all of them.
    pub fn within(&self, limit: Option<&str>) -> Vec<Arc<RegisteredCluster>> {
        self.collect(limit, |namespace| namespace.considered().cloned().collect())
    }

    /// Returns the registrations of an inventory in one namespace, or in all.
    pub fn of(&self, inventory: &Inventory, limit: Option<&str>) -> Vec<RegistrationId> {
        self.collect(limit, |namespace| namespace.of(inventory))
    }

    fn collect<T>(&self, limit: Option<&str>, each: impl Fn(&Namespace) -> Vec<T>) -> Vec<T> {
        match limit {
            Some(namespace) => self
                .namespaces
                .get(&TenantId::new(namespace))
                .map(|namespace| each(&namespace))
                .unwrap_or_default(),
            None => self.namespaces.iter().flat_map(|it| each(&it)).collect(),
        }
    }

    /// Records that all registrations of an inventory were listed, in one namespace or in all.
    pub fn listed(&self, inventory: Inventory, limit: Option<String>) {
        self.listed
            .send_if_modified(|listed| listed.insert((inventory, limit)));
    }

    /// Waits until all registrations of a scope were listed.
    pub async fn until_listed(&self, scope: &Scope) {
        let mut listed = self.listed.subscribe();
        while !self.is_listed(scope) && listed.changed().await.is_ok() {}
    }

    /// Returns true if all registrations of a scope were listed.
    pub fn is_listed(&self, scope: &Scope) -> bool {
        match scope {
            Scope::All => self.has_listed(None),
            Scope::Namespaces(names) => names.iter().all(|name| self.has_listed(Some(name))),
        }
    }

    /// Returns true if each inventory was listed, in one namespace or in all.
    fn has_listed(&self, limit: Option<&str>) -> bool {
        let listed = self.listed.borrow();
        let limit = limit.map(str::to_owned);
        let is_listed =
            |inventory: &Inventory| listed.contains(&(inventory.clone(), limit.clone()));
        self.inventories.iter().all(is_listed)
    }

    fn has_seen_all_of(&self, tenant: &TenantId) -> bool {
        self.has_listed(None) || self.has_listed(Some(tenant.namespace()))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::fleet::discovery::{KubeconfigText, Settings};
    use crate::tenant::secret_text::SecretBytes;

    fn a_registration(name: &str, created: i64, uid: &str) -> Registration {
        Registration {
            id: RegistrationId::new("berlin", name),
            uid: uid.to_owned(),
            created: Timestamp::from_second(created).unwrap(),
            version: String::new(),
            kubeconfig: KubeconfigText::Missing,
            inventory: Inventory::Label,
            settings: Settings::Operator,
        }
    }

    fn ownership(registry: &Registry, name: &str) -> Ownership {
        let registered = registry.get(&RegistrationId::new("berlin", name));
        registered.unwrap().ownership.borrow().clone()
    }

    fn second_to(name: &str) -> Ownership {
        Ownership::Second {
            owner: RegistrationId::new("berlin", name),
        }
    }

    #[test]
    fn the_older_registration_owns_the_namespace_in_whatever_order_they_come() {
        let (old, young) = (
            a_registration("old", 1, "z"),
            a_registration("young", 2, "a"),
        );
        for order in [[&old, &young], [&young, &old]] {
            let registry = Registry::new(&[Inventory::Label].into());
            for registration in order {
                assert!(registry.present(registration.clone()).begins.is_some());
            }
            assert_eq!(ownership(&registry, "old"), Ownership::Owner);
            assert_eq!(ownership(&registry, "young"), second_to("old"));
        }
    }

    #[test]
    fn of_two_made_in_one_second_the_smaller_uid_owns() {
        let registry = Registry::new(&[Inventory::Label].into());
        registry.present(a_registration("first", 1, "b"));
        registry.present(a_registration("second", 1, "a"));
        assert_eq!(ownership(&registry, "second"), Ownership::Owner);
        assert_eq!(ownership(&registry, "first"), second_to("second"));
    }

    #[test]
    fn the_second_takes_over_when_the_first_is_gone() {
        let registry = Registry::new(&[Inventory::Label].into());
        registry.present(a_registration("old", 1, "a"));
        registry.present(a_registration("young", 2, "b"));
        let old = RegistrationId::new("berlin", "old");
        registry.gone(&Gone::new(&Inventory::Label, old.clone()));
        assert_eq!(ownership(&registry, "young"), Ownership::Owner);
        assert!(registry.remove(&old));
        assert!(registry.get(&old).is_none());
        let young = RegistrationId::new("berlin", "young");
        registry.gone(&Gone::new(&Inventory::Label, young.clone()));
        assert!(registry.remove(&young));
        assert!(registry.orphaned(&old).is_none(), "not listed, not known");
        registry.listed(Inventory::Label, Some("lisbon".to_owned()));
        assert!(registry.orphaned(&old).is_none());
        registry.listed(Inventory::Label, Some("berlin".to_owned()));
        assert!(registry.orphaned(&old).is_some());
    }

    #[test]
    fn one_that_comes_back_before_it_is_given_back_stays() {
        let registry = Registry::new(&[Inventory::Label].into());
        let registered = registry
            .present(a_registration("old", 1, "a"))
            .begins
            .unwrap();
        registry.gone(&Gone::new(&Inventory::Label, registered.id.clone()));
        assert!(registered.registration.borrow().is_none());
        assert!(
            registry
                .present(a_registration("old", 3, "c"))
                .begins
                .is_none()
        );
        assert!(!registry.remove(&registered.id));
        assert_eq!(registry.all().len(), 1);
    }

    #[test]
    fn the_same_registration_again_is_no_news() {
        let registry = Registry::new(&[Inventory::Label].into());
        let registered = registry
            .present(a_registration("old", 1, "a"))
            .begins
            .unwrap();
        let mut registrations = registered.registration.subscribe();
        registrations.borrow_and_update();
        assert!(
            registry
                .present(a_registration("old", 1, "a"))
                .begins
                .is_none()
        );
        assert!(!registrations.has_changed().unwrap());
        registry.present(a_registration("old", 1, "b"));
        assert!(registrations.has_changed().unwrap());
    }

    #[test]
    fn of_a_secret_in_two_inventories_the_first_counts_and_the_other_stays_known() {
        let of = |inventory: &Inventory| Registration {
            inventory: inventory.clone(),
            ..a_registration("old", 1, "a")
        };
        let (label, kkp) = (Inventory::Label, Inventory::Kkp);
        for order in [[&label, &kkp], [&kkp, &label]] {
            let registry = Registry::new(&[label.clone(), kkp.clone()].into());
            for inventory in order {
                registry.present(of(inventory));
            }
            let registered = registry.get(&of(&label).id).unwrap();
            let from = || {
                let registration = registered.registration.borrow();
                registration.as_ref().map(|it| it.inventory.clone())
            };
            assert_eq!(from(), Some(Inventory::Label));
            registry.gone(&Gone::new(&label, registered.id.clone()));
            assert_eq!(from(), Some(Inventory::Kkp));
            registry.gone(&Gone::new(&kkp, registered.id.clone()));
            assert_eq!(from(), None);
        }
    }

    fn considered(registry: &Registry) -> BTreeSet<String> {
        let considered = registry.within(Some("berlin")).into_iter();
        considered.map(|it| it.id.name.to_string()).collect()
    }

    fn with_kubeconfig(name: &str, created: i64) -> Registration {
        Registration {
            kubeconfig: KubeconfigText::Kept(SecretBytes::new(b"secret".to_vec())),
            ..a_registration(name, created, name)
        }
    }

    fn kubeconfig(registered: &RegisteredCluster) -> Option<KubeconfigText> {
        let registration = registered.registration.borrow();
        registration.as_ref().map(|it| it.kubeconfig.clone())
    }

    #[test]
    fn of_many_in_a_namespace_the_oldest_are_considered_in_whatever_order_they_come() {
        let names: Vec<String> = (10..40).map(|age| format!("r{age}")).collect();
        let oldest: BTreeSet<String> = names.iter().take(CONSIDERED_MAX).cloned().collect();
        let in_order: Vec<i64> = (10..40).collect();
        let youngest_first = in_order.iter().rev().copied().collect();
        let mixed = (0..30).map(|step| 10 + step * 7 % 30).collect();
        for order in [in_order, youngest_first, mixed] {
            let registry = Registry::new(&[Inventory::Label].into());
            let mut tasks = BTreeSet::new();
            for age in &order {
                let moves = registry.present(with_kubeconfig(&format!("r{age}"), *age));
                tasks.extend(moves.begins.map(|it| it.id.clone()));
                if let Some(ended) = moves.ends {
                    assert!(tasks.remove(&ended), "{ended} has a task");
                }
            }
            assert_eq!(considered(&registry), oldest, "{order:?}");
            let tasks: BTreeSet<String> = tasks.iter().map(|it| it.name.to_string()).collect();
            assert_eq!(tasks, oldest, "{order:?}");
            assert_eq!(ownership(&registry, "r19"), second_to("r10"));
            assert_eq!(registry.of(&Inventory::Label, None).len(), 30);
        }
    }

    #[test]
    fn one_that_was_left_out_is_considered_when_an_older_one_is_gone() {
        let registry = Registry::new(&[Inventory::Label].into());
        for age in 10..30 {
            registry.present(with_kubeconfig(&format!("r{age}"), age));
        }
        let gone = |age: i64| {
            let id = RegistrationId::new("berlin", &format!("r{age}"));
            let begins = registry
                .gone(&Gone::new(&Inventory::Label, id.clone()))
                .begins;
            registry.remove(&id);
            begins
        };
        let next = gone(12).expect("another is considered");
        assert_eq!(&*next.id.name, "r20");
        assert_eq!(kubeconfig(&next), Some(KubeconfigText::Unread));
        assert!(gone(25).is_none(), "it was not considered");
        for age in (10..30).filter(|age| ![12, 20, 25].contains(age)) {
            gone(age);
        }
        assert_eq!(ownership(&registry, "r20"), Ownership::Owner);
        next.fill(&Arc::new(with_kubeconfig("r20", 20)));
        let read = with_kubeconfig("r20", 20).kubeconfig;
        assert_eq!(kubeconfig(&next), Some(read.clone()));
        // What is read late does not replace what a watch has shown meanwhile.
        let rotated = KubeconfigText::Kept(SecretBytes::new(b"another".to_vec()));
        registry.present(Registration {
            kubeconfig: rotated.clone(),
            ..with_kubeconfig("r20", 20)
        });
        next.fill(&Arc::new(with_kubeconfig("r20", 20)));
        assert_eq!(kubeconfig(&next), Some(rotated));
        gone(20);
        assert!(registry.namespaces.is_empty(), "nothing is left of them");
    }

    #[test]
    fn what_was_read_of_a_version_stays_until_there_is_another() {
        let registry = Registry::new(&[Inventory::Label].into());
        let of = |version: &str, kubeconfig: KubeconfigText| Registration {
            version: version.to_owned(),
            kubeconfig,
            ..a_registration("a", 1, "a")
        };
        let text = with_kubeconfig("a", 1).kubeconfig;
        let read = Arc::new(of("1", text.clone()));
        let registered = registry.present(of("1", KubeconfigText::Unread)).begins;
        let registered = registered.unwrap();
        registered.fill(&read);
        registry.present(of("1", KubeconfigText::Unread));
        assert_eq!(
            kubeconfig(&registered),
            Some(text),
            "a list brings it again"
        );
        registry.present(of("2", KubeconfigText::Unread));
        assert_eq!(kubeconfig(&registered), Some(KubeconfigText::Unread));
        registered.fill(&read);
        let now = kubeconfig(&registered);
        assert_eq!(now, Some(KubeconfigText::Unread), "it was read before");
    }

    #[test]
    fn one_that_is_created_again_is_as_young_as_it_is() {
        let registry = Registry::new(&[Inventory::Label].into());
        for age in 10..22 {
            registry.present(with_kubeconfig(&format!("r{age}"), age));
        }
        let moves = registry.present(with_kubeconfig("r10", 50));
        assert_eq!(
            moves.begins.map(|it| it.id.name.clone()),
            Some("r20".into())
        );
        let r10 = RegistrationId::new("berlin", "r10");
        assert_eq!(moves.ends.as_ref(), Some(&r10));
        assert_eq!(ownership(&registry, "r12"), second_to("r11"));
        assert!(
            registry.orphaned(&r10).is_none(),
            "it is left out, not gone"
        );
    }

    #[test]
    fn tenants_do_not_meet() {
        let registry = Registry::new(&[Inventory::Label].into());
        registry.present(a_registration("old", 1, "a"));
        let other = Registration {
            id: RegistrationId::new("lisbon", "old"),
            ..a_registration("old", 2, "b")
        };
        let registered = registry.present(other).begins.unwrap();
        assert_eq!(*registered.ownership.borrow(), Ownership::Owner);
    }
}
