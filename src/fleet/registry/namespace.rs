//! The registrations of one namespace. The oldest owns it. The next ones are considered, too, so
//! that each can say why it is not served; of any others, only enough is kept to know whose turn it
//! is when one is gone. So any number of Secrets in a namespace costs no more than a few clusters.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use jiff::Timestamp;

use super::{
    known::Known,
    registered_cluster::{Ownership, RegisteredCluster},
};
use crate::fleet::discovery::{Gone, Registration};
use crate::tenant::{id::RegistrationId, inventory::Inventory};

/// The number of registrations of a namespace that are considered.
pub const CONSIDERED_MAX: usize = 10;

/// The registrations of one namespace.
#[derive(Debug, Default)]
pub(super) struct Namespace {
    /// Those that are considered, and those that are gone and whose task has not ended.
    considered: HashMap<RegistrationId, Arc<RegisteredCluster>>,
    left_out: HashMap<RegistrationId, Known>,
    /// The ages of those that are left out.
    ages: BTreeSet<Age>,
}

/// Orders registrations by age. Of two that were created in the same second, the one with the
/// smaller uid counts as the older one.
type Age = (Timestamp, String, RegistrationId);

/// What changes for other registrations of a namespace when one changes.
#[derive(Debug, Default)]
pub struct Moves {
    /// One that is considered from now on.
    pub begins: Option<Arc<RegisteredCluster>>,
    /// One that is not considered any more.
    pub ends: Option<RegistrationId>,
}

impl Namespace {
    pub fn get(&self, id: &RegistrationId) -> Option<&Arc<RegisteredCluster>> {
        self.considered.get(id)
    }

    /// Returns those that are considered.
    pub fn considered(&self) -> impl Iterator<Item = &Arc<RegisteredCluster>> {
        self.considered.values()
    }

    /// Returns true if nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.considered.is_empty() && self.left_out.is_empty()
    }

    /// Returns the registrations of an inventory.
    pub fn of(&self, inventory: &Inventory) -> Vec<RegistrationId> {
        let considered = self
            .considered
            .values()
            .filter(|it| it.known().is_in(inventory));
        let left_out = self
            .left_out
            .iter()
            .filter(|(_, known)| known.is_in(inventory));
        considered
            .map(|it| it.id.clone())
            .chain(left_out.map(|(id, _)| id.clone()))
            .collect()
    }

    /// Adds or updates a registration.
    pub fn present(&mut self, registration: Registration) -> Moves {
        let id = registration.id.clone();
        let registration = Arc::new(registration);
        if let Some(registered) = self.considered.get(&id) {
            registered.present(registration);
            return self.settle();
        }
        if let Some(mut known) = self.take_left_out(&id) {
            known.present(registration);
            self.leave_out(&id, known);
            return self.settle();
        }
        let mut known = Known::default();
        known.present(registration);
        let registered = self.consider(&id, known);
        let moves = self.settle();
        if moves.ends.as_ref() == Some(&id) {
            return Moves::default();
        }
        Moves {
            begins: Some(registered),
            ..moves
        }
    }

    /// Records that an inventory does not have a registration any more.
    pub fn gone(&mut self, gone: &Gone) -> Moves {
        if let Some(registered) = self.considered.get(&gone.id) {
            registered.gone(gone);
        } else if let Some(mut known) = self.take_left_out(&gone.id) {
            known.gone(&gone.inventory);
            self.leave_out(&gone.id, known);
        }
        self.settle()
    }

    /// Adds a registration that was removed before this replica saw it. Returns `None` if it is
    /// known.
    pub fn orphaned(&mut self, id: &RegistrationId) -> Option<Arc<RegisteredCluster>> {
        let is_known = self.considered.contains_key(id) || self.left_out.contains_key(id);
        (!is_known).then(|| self.consider(id, Known::default()))
    }

    /// Forgets a registration whose task has ended, unless it was created again in the meantime.
    pub fn remove(&mut self, id: &RegistrationId) -> bool {
        let is_gone = |it: &Arc<RegisteredCluster>| it.registration.borrow().is_none();
        self.considered.get(id).is_some_and(is_gone) && self.considered.remove(id).is_some()
    }

    /// Replaces a registered cluster by one without its state.
    pub fn renew(&mut self, id: &RegistrationId) -> Option<Arc<RegisteredCluster>> {
        let former = self.considered.get(id)?;
        let (known, last) = (former.known(), former.last.borrow().clone());
        if known.is_empty() {
            return None;
        }
        let fresh = self.consider(id, known);
        fresh.last.send_replace(last);
        self.settle();
        Some(fresh)
    }

    /// Settles who is considered, and who owns the namespace. Since it was settled last, one
    /// registration has changed.
    fn settle(&mut self) -> Moves {
        let mut moves = Moves::default();
        let mut living = self.living();
        let youngest = living.last().map(|(age, _)| age);
        let is_due = |oldest: &&Age| match living.len() {
            0..CONSIDERED_MAX => true,
            CONSIDERED_MAX => youngest.is_some_and(|youngest| *oldest < youngest),
            // One of them is left out below.
            _ => false,
        };
        if let Some(oldest) = self.ages.first().filter(is_due).cloned() {
            let known = self.take_left_out(&oldest.2).unwrap_or_default();
            let registered = self.consider(&oldest.2, known);
            moves.begins = Some(Arc::clone(&registered));
            living.push((oldest, registered));
            living.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        if living.len() > CONSIDERED_MAX
            && let Some((_, youngest)) = living.pop()
        {
            self.considered.remove(&youngest.id);
            self.leave_out(&youngest.id, youngest.known());
            if self.left_out.len() == 1 {
                tracing::warn!(
                    registration = %youngest.id,
                    "the namespace has more than {CONSIDERED_MAX} registrations: the youngest are \
                     left out"
                );
            }
            moves.ends = Some(youngest.id.clone());
        }
        let mut in_order = living.into_iter().map(|(_, registered)| registered);
        if let Some(owner) = in_order.next() {
            set(&owner.ownership, Ownership::Owner);
            for second in in_order {
                let owner = owner.id.clone();
                set(&second.ownership, Ownership::Second { owner });
            }
        }
        moves
    }

    /// Returns the registrations that are considered and not gone, by age.
    fn living(&self) -> Vec<(Age, Arc<RegisteredCluster>)> {
        let living = self.considered.values().filter_map(|it| {
            let registration = it.registration.borrow();
            Some((age(registration.as_ref()?), Arc::clone(it)))
        });
        let mut living: Vec<_> = living.collect();
        living.sort_by(|(a, _), (b, _)| a.cmp(b));
        living
    }

    fn consider(&mut self, id: &RegistrationId, known: Known) -> Arc<RegisteredCluster> {
        let registered = Arc::new(RegisteredCluster::new(id.clone(), known));
        self.considered.insert(id.clone(), Arc::clone(&registered));
        registered
    }

    fn leave_out(&mut self, id: &RegistrationId, known: Known) {
        let known = known.without_kubeconfig();
        if let Some(first) = known.first() {
            self.ages.insert(age(&first));
            self.left_out.insert(id.clone(), known);
        }
    }

    fn take_left_out(&mut self, id: &RegistrationId) -> Option<Known> {
        let known = self.left_out.remove(id)?;
        if let Some(first) = known.first() {
            self.ages.remove(&age(&first));
        }
        Some(known)
    }
}

fn age(registration: &Arc<Registration>) -> Age {
    let uid = registration.uid.clone();
    (registration.created, uid, registration.id.clone())
}

fn set(ownership: &tokio::sync::watch::Sender<Ownership>, new: Ownership) {
    ownership.send_if_modified(|before| {
        let news = *before != new;
        *before = new;
        news
    });
}
