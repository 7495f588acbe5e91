//! The roster: every registration of the fleet, and who owns which namespace.
//!
//! The only place that holds a concurrent map; no method hands out a guard of it.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use dashmap::DashMap;
use tokio::sync::watch;

use super::{board::Board, discovery::Registration};
use crate::api::worker_cluster::WorkerCluster;
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

/// One registration of the fleet. Whoever serves it follows the three watches.
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
    /// What is known of the tenant.
    pub board: Arc<Board>,
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
            let member = Arc::new(Member {
                id: id.clone(),
                registration: watch::Sender::new(Some(registration)),
                worker_cluster: watch::Sender::new(None),
                standing: watch::Sender::new(Standing::Owner),
                board: Arc::default(),
            });
            self.members
                .entry(id.tenant.clone())
                .or_default()
                .push(Arc::clone(&member));
            Some(member)
        };
        self.settle_standing(&id.tenant);
        new
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

    /// Whether a tenant is known to have no registration. Of a namespace that this process does not
    /// watch, or has not listed yet, nothing is known.
    pub fn is_gone(&self, tenant: &TenantId) -> bool {
        let is_listed = {
            let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
            listed.everywhere == Everywhere::Yes || listed.namespaces.contains(tenant.namespace())
        };
        is_listed && self.living(tenant).is_empty()
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
