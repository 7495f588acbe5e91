//! The roster: every registration of the fleet, and who owns which namespace.
//!
//! The only place that holds a concurrent map; no method hands out a guard of it.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use dashmap::DashMap;
use tokio::sync::watch;

use super::{board::Board, discovery::Registration, partition::suspicion::Suspicion, watch::Scope};
use crate::api::worker_cluster::{OnRemoval, WorkerCluster};
use crate::tenant::id::{RegistrationId, TenantId};

/// Whether a registration has its namespace to itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is the oldest of its namespace.
    Owner,
    /// An older one owns the namespace.
    Second {
        /// The owner.
        owner: RegistrationId,
    },
}

/// One registration of the fleet. Whoever serves it follows the watches.
#[derive(Debug)]
pub struct Member {
    /// The registration's Secret.
    pub id: RegistrationId,
    /// The registration as it was found last; none once it is gone.
    pub registration: watch::Sender<Option<Arc<Registration>>>,
    /// The WorkerCluster that names the Secret; none until there is one.
    pub worker_cluster: watch::Sender<Option<Arc<WorkerCluster>>>,
    /// Whether the registration has its namespace to itself.
    pub standing: watch::Sender<Standing>,
    /// Why the replica that has it does not serve it yet; none for nearly everybody.
    pub suspicion: watch::Sender<Option<Suspicion>>,
    /// What is known of the tenant.
    pub board: Arc<Board>,
    /// The `onRemoval` that was seen last: the WorkerCluster may go before the registration does.
    on_removal: Mutex<OnRemoval>,
    /// Whether this replica serves it.
    is_here: AtomicBool,
}

/// Where a tenant is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// By another replica, or by none yet.
    Elsewhere,
    /// By this replica.
    Here,
}

impl Member {
    fn new(id: RegistrationId, registration: Option<Arc<Registration>>) -> Self {
        Self {
            id,
            registration: watch::Sender::new(registration),
            worker_cluster: watch::Sender::new(None),
            standing: watch::Sender::new(Standing::Owner),
            suspicion: watch::Sender::new(None),
            board: Arc::default(),
            on_removal: Mutex::default(),
            is_here: AtomicBool::new(false),
        }
    }

    /// Remembers what becomes of the machine deployments when the registration is removed.
    pub fn see_on_removal(&self, on_removal: OnRemoval) {
        let mut known = self
            .on_removal
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *known = on_removal;
    }

    /// What becomes of the machine deployments when the registration is removed, as the
    /// WorkerCluster said last; the default where there never was one.
    pub fn on_removal(&self) -> OnRemoval {
        *self
            .on_removal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note that this replica serves it.
    pub fn take(&self) {
        self.is_here.store(true, Ordering::Relaxed);
    }

    /// Where it is served.
    pub fn place(&self) -> Place {
        if self.is_here.load(Ordering::Relaxed) {
            Place::Here
        } else {
            Place::Elsewhere
        }
    }
}

/// Every registration of the fleet, by the namespace that it asks for.
#[derive(Debug, Default)]
pub struct Roster {
    members: DashMap<TenantId, Vec<Arc<Member>>>,
    listed: Mutex<Listed>,
}

/// Where every registration has been seen once.
#[derive(Debug, Default)]
struct Listed {
    everywhere: Everywhere,
    namespaces: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Everywhere {
    Yes,
    #[default]
    No,
}

impl Roster {
    /// Takes note of a registration. A new one is handed out, to be served.
    pub fn present(&self, registration: Registration) -> Option<Arc<Member>> {
        let id = registration.id.clone();
        let registration = Arc::new(registration);
        let new = if let Some(member) = self.member(&id) {
            member.registration.send_if_modified(|before| {
                let news = before.as_ref() != Some(&registration);
                *before = Some(registration);
                news
            });
            None
        } else {
            let member = Arc::new(Member::new(id.clone(), Some(registration)));
            self.members
                .entry(id.tenant.clone())
                .or_default()
                .push(Arc::clone(&member));
            Some(member)
        };
        self.settle_standing(&id.tenant);
        new
    }

    /// A member whose registration was removed before this replica saw it, for somebody to tell.
    /// None where it is on the roster, or may still be found.
    pub fn bereaved(&self, id: &RegistrationId) -> Option<Arc<Member>> {
        if !self.has_seen_all_of(&id.tenant) || self.member(id).is_some() {
            return None;
        }
        let member = Arc::new(Member::new(id.clone(), None));
        self.members
            .entry(id.tenant.clone())
            .or_default()
            .push(Arc::clone(&member));
        Some(member)
    }

    /// Takes note that a registration is gone. It stays on the roster until it was given back.
    pub fn gone(&self, id: &RegistrationId) {
        if let Some(member) = self.member(id) {
            member.registration.send_replace(None);
            self.settle_standing(&id.tenant);
        }
    }

    /// Takes a registration off the roster, unless it has come back meanwhile.
    pub fn remove(&self, id: &RegistrationId) -> bool {
        let Some(mut members) = self.members.get_mut(&id.tenant) else {
            return false;
        };
        let before = members.len();
        members.retain(|member| member.id != *id || member.registration.borrow().is_some());
        let removed = members.len() < before;
        drop(members);
        self.members
            .remove_if(&id.tenant, |_, members| members.is_empty());
        removed
    }

    /// Forgets what was learned of a member that was let go: another replica knows better by now.
    /// Hands out the member that stands in its place.
    pub fn renew(&self, id: &RegistrationId) -> Option<Arc<Member>> {
        let former = self.member(id)?;
        let registration = former.registration.borrow().clone()?;
        let fresh = Arc::new(Member::new(id.clone(), Some(registration)));
        fresh.see_on_removal(former.on_removal());
        if let Some(mut members) = self.members.get_mut(&id.tenant) {
            for member in members.iter_mut().filter(|member| member.id == *id) {
                *member = Arc::clone(&fresh);
            }
        }
        self.settle_standing(&id.tenant);
        Some(fresh)
    }

    /// A member by its id.
    pub fn member(&self, id: &RegistrationId) -> Option<Arc<Member>> {
        self.of(&id.tenant)
            .into_iter()
            .find(|member| member.id == *id)
    }

    /// All members.
    pub fn members(&self) -> Vec<Arc<Member>> {
        self.members
            .iter()
            .flat_map(|members| members.value().clone())
            .collect()
    }

    /// The members of one namespace, or all of them.
    pub fn members_of(&self, limit: Option<&str>) -> Vec<Arc<Member>> {
        match limit {
            Some(namespace) => self.of(&TenantId::new(namespace)),
            None => self.members(),
        }
    }

    /// Takes note that every registration has been seen, of one namespace or of all.
    pub fn listed(&self, limit: Option<String>) {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        match limit {
            Some(namespace) => {
                listed.namespaces.insert(namespace);
            }
            None => listed.everywhere = Everywhere::Yes,
        }
    }

    /// Whether every registration of a scope has been seen.
    pub fn is_listed(&self, scope: &Scope) -> bool {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        match scope {
            Scope::All => listed.everywhere == Everywhere::Yes,
            Scope::Namespaces(names) => names.iter().all(|name| listed.namespaces.contains(name)),
        }
    }

    /// Whether a tenant is known to have no registration. Of a namespace that this process does not
    /// watch, or has not listed yet, nothing is known.
    pub fn is_gone(&self, tenant: &TenantId) -> bool {
        self.has_seen_all_of(tenant) && self.living(tenant).is_empty()
    }

    fn has_seen_all_of(&self, tenant: &TenantId) -> bool {
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        listed.everywhere == Everywhere::Yes || listed.namespaces.contains(tenant.namespace())
    }

    /// The oldest registration owns the namespace; of two made in the same second, the one with
    /// the smaller uid.
    fn settle_standing(&self, tenant: &TenantId) {
        let mut living = self.living(tenant);
        living.sort_by(|(_, a), (_, b)| (a.created, &a.uid).cmp(&(b.created, &b.uid)));
        let mut in_order = living.into_iter();
        let Some((owner, _)) = in_order.next() else {
            return;
        };
        set(&owner.standing, Standing::Owner);
        for (second, _) in in_order {
            set(
                &second.standing,
                Standing::Second {
                    owner: owner.id.clone(),
                },
            );
        }
    }

    fn living(&self, tenant: &TenantId) -> Vec<(Arc<Member>, Arc<Registration>)> {
        self.of(tenant)
            .into_iter()
            .filter_map(|member| {
                let registration = member.registration.borrow().clone()?;
                Some((member, registration))
            })
            .collect()
    }

    fn of(&self, tenant: &TenantId) -> Vec<Arc<Member>> {
        self.members
            .get(tenant)
            .map(|members| members.value().clone())
            .unwrap_or_default()
    }
}

fn set(standing: &watch::Sender<Standing>, new: Standing) {
    standing.send_if_modified(|before| {
        let news = *before != new;
        *before = new;
        news
    });
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn a_registration(name: &str, created: i64, uid: &str) -> Registration {
        Registration {
            id: RegistrationId::new("berlin", name),
            uid: uid.to_owned(),
            created: Timestamp::from_second(created).unwrap(),
            kubeconfig: None,
        }
    }

    fn standing(roster: &Roster, name: &str) -> Standing {
        let member = roster.member(&RegistrationId::new("berlin", name));
        member.unwrap().standing.borrow().clone()
    }

    fn second_to(name: &str) -> Standing {
        Standing::Second {
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
            let roster = Roster::default();
            for registration in order {
                assert!(roster.present(registration.clone()).is_some());
            }
            assert_eq!(standing(&roster, "old"), Standing::Owner);
            assert_eq!(standing(&roster, "young"), second_to("old"));
        }
    }

    #[test]
    fn of_two_made_in_one_second_the_smaller_uid_owns() {
        let roster = Roster::default();
        roster.present(a_registration("first", 1, "b"));
        roster.present(a_registration("second", 1, "a"));
        assert_eq!(standing(&roster, "second"), Standing::Owner);
        assert_eq!(standing(&roster, "first"), second_to("second"));
    }

    #[test]
    fn the_second_takes_over_when_the_first_is_gone() {
        let roster = Roster::default();
        roster.present(a_registration("old", 1, "a"));
        roster.present(a_registration("young", 2, "b"));
        let old = RegistrationId::new("berlin", "old");
        roster.gone(&old);
        assert_eq!(standing(&roster, "young"), Standing::Owner);
        assert!(!roster.is_gone(&old.tenant));
        assert!(roster.remove(&old));
        assert!(roster.member(&old).is_none());
        let young = RegistrationId::new("berlin", "young");
        roster.gone(&young);
        assert!(roster.remove(&young));
        assert!(!roster.is_gone(&old.tenant), "not listed, not known");
        roster.listed(Some("lisbon".to_owned()));
        assert!(!roster.is_gone(&old.tenant));
        roster.listed(Some("berlin".to_owned()));
        assert!(roster.is_gone(&old.tenant));
    }

    #[test]
    fn one_that_comes_back_before_it_is_given_back_stays() {
        let roster = Roster::default();
        let member = roster.present(a_registration("old", 1, "a")).unwrap();
        roster.gone(&member.id);
        assert!(member.registration.borrow().is_none());
        assert!(roster.present(a_registration("old", 3, "c")).is_none());
        assert!(!roster.remove(&member.id));
        assert_eq!(roster.members().len(), 1);
    }

    #[test]
    fn the_same_registration_again_is_no_news() {
        let roster = Roster::default();
        let member = roster.present(a_registration("old", 1, "a")).unwrap();
        let mut registrations = member.registration.subscribe();
        registrations.borrow_and_update();
        assert!(roster.present(a_registration("old", 1, "a")).is_none());
        assert!(!registrations.has_changed().unwrap());
        roster.present(a_registration("old", 1, "b"));
        assert!(registrations.has_changed().unwrap());
    }

    #[test]
    fn tenants_do_not_meet() {
        let roster = Roster::default();
        roster.present(a_registration("old", 1, "a"));
        let other = Registration {
            id: RegistrationId::new("lisbon", "old"),
            ..a_registration("old", 2, "b")
        };
        let member = roster.present(other).unwrap();
        assert_eq!(*member.standing.borrow(), Standing::Owner);
    }
}
