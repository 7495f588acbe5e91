//! The registry: every registration of the fleet, and which of them owns its namespace.
//!
//! This is the only file with a concurrent map. No method returns a guard of it.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use dashmap::DashMap;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{discovery::Registration, sharding::suspicion::Suspicion};
use crate::api::worker_cluster::{OnRemoval, WorkerCluster};
use crate::client::{tenant_status::TenantStatus, watch::Scope};
use crate::tenant::{
    id::{RegistrationId, TenantId},
    inventory::Inventory,
};

/// States whether a registration owns its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// It is the oldest registration in its namespace.
    Owner,
    /// An older registration owns the namespace.
    Second {
        /// The owner.
        owner: RegistrationId,
    },
}

/// One registration of the fleet. The task that serves it follows the watches.
#[derive(Debug)]
pub struct RegisteredCluster {
    /// The registration's Secret.
    pub id: RegistrationId,
    /// The latest version of the registration; `None` after it was removed. If several inventories
    /// have the Secret, that of the first one.
    pub registration: watch::Sender<Option<Arc<Registration>>>,
    /// The registration in each inventory that has the Secret.
    known: Mutex<Vec<Arc<Registration>>>,
    /// The WorkerCluster that names the Secret; `None` until it exists.
    pub worker_cluster: watch::Sender<Option<Arc<WorkerCluster>>>,
    /// The latest version of the WorkerCluster, also after it was deleted: until the cluster is
    /// disengaged, it is served with the settings that it had.
    pub last: watch::Sender<Option<Arc<WorkerCluster>>>,
    /// States whether the registration owns its namespace.
    pub ownership: watch::Sender<Ownership>,
    /// The suspicion because of which its replica does not serve it yet; `None` for nearly all
    /// tenants.
    pub suspicion: watch::Sender<Option<Suspicion>>,
    /// The tenant's status.
    pub status: Arc<TenantStatus>,
    /// True if this replica serves it.
    is_here: AtomicBool,
}

/// The place where a tenant is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Another replica serves it, or none yet.
    Elsewhere,
    /// This replica serves it.
    Here,
}

impl RegisteredCluster {
    fn new(id: RegistrationId, known: Vec<Arc<Registration>>) -> Self {
        Self {
            id,
            registration: watch::Sender::new(first(&known)),
            known: Mutex::new(known),
            worker_cluster: watch::Sender::new(None),
            last: watch::Sender::new(None),
            ownership: watch::Sender::new(Ownership::Owner),
            suspicion: watch::Sender::new(None),
            status: Arc::default(),
            is_here: AtomicBool::new(false),
        }
    }

    /// Returns what to do with the machine deployments when the registration is removed: the
    /// WorkerCluster's latest value, or the default if it never existed.
    pub fn on_removal(&self) -> OnRemoval {
        let last = self.last.borrow();
        last.as_ref()
            .map(|own| own.spec.on_removal)
            .unwrap_or_default()
    }

    /// Returns true if an inventory has the Secret.
    pub fn is_in(&self, inventory: &Inventory) -> bool {
        let known = self.known.lock();
        known.iter().any(|it| it.inventory == *inventory)
    }

    /// Records the registration in an inventory, or that the inventory does not have it any more.
    fn note(&self, inventory: &Inventory, registration: Option<Arc<Registration>>) {
        let mut known = self.known.lock();
        known.retain(|it| it.inventory != *inventory);
        known.extend(registration);
        let first = first(&known);
        self.registration.send_if_modified(|before| {
            let news = *before != first;
            *before = first;
            news
        });
    }

    /// Marks the cluster as served by this replica.
    pub fn take(&self) {
        self.is_here.store(true, Ordering::Relaxed);
    }

    /// Returns whether this replica serves it.
    pub fn place(&self) -> Place {
        if self.is_here.load(Ordering::Relaxed) {
            Place::Here
        } else {
            Place::Elsewhere
        }
    }
}

/// Returns the registration of the first inventory.
fn first(known: &[Arc<Registration>]) -> Option<Arc<Registration>> {
    let first = known.iter().min_by_key(|it| &it.inventory);
    first.cloned()
}

/// Every registration of the fleet, by namespace.
#[derive(Debug)]
pub struct Registry {
    registered: DashMap<TenantId, Vec<Arc<RegisteredCluster>>>,
    inventories: BTreeSet<Inventory>,
    /// What was listed completely: the registrations of an inventory, in a namespace or in all.
    listed: Mutex<BTreeSet<(Inventory, Option<String>)>>,
}

impl Registry {
    /// Creates the registry of these inventories.
    pub fn new(inventories: &BTreeSet<Inventory>) -> Self {
        Self {
            registered: DashMap::default(),
            inventories: inventories.clone(),
            listed: Mutex::default(),
        }
    }

    /// Adds or updates a registration. Returns the registered cluster if it is new, so that it is
    /// served. Of a Secret in several inventories, the registration of the first one counts.
    pub fn present(&self, registration: Registration) -> Option<Arc<RegisteredCluster>> {
        let id = registration.id.clone();
        let registration = Arc::new(registration);
        let new = if let Some(registered) = self.get(&id) {
            registered.note(&registration.inventory, Some(Arc::clone(&registration)));
            None
        } else {
            let registered = Arc::new(RegisteredCluster::new(id.clone(), vec![registration]));
            self.registered
                .entry(id.tenant.clone())
                .or_default()
                .push(Arc::clone(&registered));
            Some(registered)
        };
        self.settle_ownership(&id.tenant);
        new
    }

    /// Adds a registered cluster whose registration was removed before this replica saw it, so that
    /// its status can be updated. Returns `None` if it is known, or may still be listed.
    pub fn orphaned(&self, id: &RegistrationId) -> Option<Arc<RegisteredCluster>> {
        if !self.has_seen_all_of(&id.tenant) || self.get(id).is_some() {
            return None;
        }
        let registered = Arc::new(RegisteredCluster::new(id.clone(), Vec::new()));
        self.registered
            .entry(id.tenant.clone())
            .or_default()
            .push(Arc::clone(&registered));
        Some(registered)
    }

    /// Records that a registration was removed from an inventory. If no other has it, it stays in
    /// the registry until its cluster was released.
    pub fn gone(&self, inventory: &Inventory, id: &RegistrationId) {
        if let Some(registered) = self.get(id) {
            registered.note(inventory, None);
            self.settle_ownership(&id.tenant);
        }
    }

    /// Removes a registration from the registry, unless it was created again in the meantime.
    pub fn remove(&self, id: &RegistrationId) -> bool {
        let Some(mut registered) = self.registered.get_mut(&id.tenant) else {
            return false;
        };
        let before = registered.len();
        registered.retain(|registered| {
            registered.id != *id || registered.registration.borrow().is_some()
        });
        let removed = registered.len() < before;
        drop(registered);
        self.registered
            .remove_if(&id.tenant, |_, registered| registered.is_empty());
        removed
    }

    /// Forgets the state of a registered cluster that another replica serves now. Returns the entry
    /// that replaces it.
    pub fn renew(&self, id: &RegistrationId) -> Option<Arc<RegisteredCluster>> {
        let former = self.get(id)?;
        let known = former.known.lock().clone();
        if known.is_empty() {
            return None;
        }
        let fresh = Arc::new(RegisteredCluster::new(id.clone(), known));
        fresh.last.send_replace(former.last.borrow().clone());
        if let Some(mut registered) = self.registered.get_mut(&id.tenant) {
            for registered in registered
                .iter_mut()
                .filter(|registered| registered.id == *id)
            {
                *registered = Arc::clone(&fresh);
            }
        }
        self.settle_ownership(&id.tenant);
        Some(fresh)
    }

    /// Returns a registered cluster by its id.
    pub fn get(&self, id: &RegistrationId) -> Option<Arc<RegisteredCluster>> {
        self.of(&id.tenant)
            .into_iter()
            .find(|registered| registered.id == *id)
    }

    /// Returns all registered clusters.
    pub fn all(&self) -> Vec<Arc<RegisteredCluster>> {
        self.registered
            .iter()
            .flat_map(|registered| registered.value().clone())
            .collect()
    }

    /// Returns the registered clusters of one namespace, or all of them.
    pub fn within(&self, limit: Option<&str>) -> Vec<Arc<RegisteredCluster>> {
        match limit {
            Some(namespace) => self.of(&TenantId::new(namespace)),
            None => self.all(),
        }
    }

    /// Records that all registrations of an inventory were listed, in one namespace or in all.
    pub fn listed(&self, inventory: Inventory, limit: Option<String>) {
        self.listed.lock().insert((inventory, limit));
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
        let listed = self.listed.lock();
        let limit = limit.map(str::to_owned);
        let is_listed =
            |inventory: &Inventory| listed.contains(&(inventory.clone(), limit.clone()));
        self.inventories.iter().all(is_listed)
    }

    /// Returns true if a tenant certainly has no registration. Returns false for a namespace that
    /// this process does not watch or has not listed yet.
    pub fn is_gone(&self, tenant: &TenantId) -> bool {
        self.has_seen_all_of(tenant) && self.living(tenant).is_empty()
    }

    fn has_seen_all_of(&self, tenant: &TenantId) -> bool {
        self.has_listed(None) || self.has_listed(Some(tenant.namespace()))
    }

    /// Determines the owner of the namespace: the oldest registration. Of two that were created in
    /// the same second, the one with the smaller uid.
    fn settle_ownership(&self, tenant: &TenantId) {
        let mut living = self.living(tenant);
        living.sort_by(|(_, a), (_, b)| (a.created, &a.uid).cmp(&(b.created, &b.uid)));
        let mut in_order = living.into_iter();
        let Some((owner, _)) = in_order.next() else {
            return;
        };
        set(&owner.ownership, Ownership::Owner);
        for (second, _) in in_order {
            set(
                &second.ownership,
                Ownership::Second {
                    owner: owner.id.clone(),
                },
            );
        }
    }

    fn living(&self, tenant: &TenantId) -> Vec<(Arc<RegisteredCluster>, Arc<Registration>)> {
        self.of(tenant)
            .into_iter()
            .filter_map(|registered| {
                let registration = registered.registration.borrow().clone()?;
                Some((registered, registration))
            })
            .collect()
    }

    fn of(&self, tenant: &TenantId) -> Vec<Arc<RegisteredCluster>> {
        self.registered
            .get(tenant)
            .map(|registered| registered.value().clone())
            .unwrap_or_default()
    }
}

fn set(ownership: &watch::Sender<Ownership>, new: Ownership) {
    ownership.send_if_modified(|before| {
        let news = *before != new;
        *before = new;
        news
    });
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::fleet::discovery::Settings;

    fn a_registration(name: &str, created: i64, uid: &str) -> Registration {
        Registration {
            id: RegistrationId::new("berlin", name),
            uid: uid.to_owned(),
            created: Timestamp::from_second(created).unwrap(),
            kubeconfig: None,
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
                assert!(registry.present(registration.clone()).is_some());
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
        registry.gone(&Inventory::Label, &old);
        assert_eq!(ownership(&registry, "young"), Ownership::Owner);
        assert!(!registry.is_gone(&old.tenant));
        assert!(registry.remove(&old));
        assert!(registry.get(&old).is_none());
        let young = RegistrationId::new("berlin", "young");
        registry.gone(&Inventory::Label, &young);
        assert!(registry.remove(&young));
        assert!(!registry.is_gone(&old.tenant), "not listed, not known");
        registry.listed(Inventory::Label, Some("lisbon".to_owned()));
        assert!(!registry.is_gone(&old.tenant));
        registry.listed(Inventory::Label, Some("berlin".to_owned()));
        assert!(registry.is_gone(&old.tenant));
    }

    #[test]
    fn one_that_comes_back_before_it_is_given_back_stays() {
        let registry = Registry::new(&[Inventory::Label].into());
        let registered = registry.present(a_registration("old", 1, "a")).unwrap();
        registry.gone(&Inventory::Label, &registered.id);
        assert!(registered.registration.borrow().is_none());
        assert!(registry.present(a_registration("old", 3, "c")).is_none());
        assert!(!registry.remove(&registered.id));
        assert_eq!(registry.all().len(), 1);
    }

    #[test]
    fn the_same_registration_again_is_no_news() {
        let registry = Registry::new(&[Inventory::Label].into());
        let registered = registry.present(a_registration("old", 1, "a")).unwrap();
        let mut registrations = registered.registration.subscribe();
        registrations.borrow_and_update();
        assert!(registry.present(a_registration("old", 1, "a")).is_none());
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
            registry.gone(&label, &registered.id);
            assert_eq!(from(), Some(Inventory::Kkp));
            registry.gone(&kkp, &registered.id);
            assert_eq!(from(), None);
        }
    }

    #[test]
    fn tenants_do_not_meet() {
        let registry = Registry::new(&[Inventory::Label].into());
        registry.present(a_registration("old", 1, "a"));
        let other = Registration {
            id: RegistrationId::new("lisbon", "old"),
            ..a_registration("old", 2, "b")
        };
        let registered = registry.present(other).unwrap();
        assert_eq!(*registered.ownership.borrow(), Ownership::Owner);
    }
}
