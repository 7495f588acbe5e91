//! Permits for work that all tenants share: reconciles under way at once, and turns at the
//! budget of the process.
//!
//! Who waits is served tenant by tenant in a circle, and within a tenant in the order of asking:
//! a tenant that asks a hundred times gets no more than one that asks once. A fresh change goes
//! before a resync, but one permit in [`LOW_PRIORITY_SHARE`] goes to a resync that waits, so that
//! none starves.
//!
//! ```text
//! fresh   berlin ▸▸▸▸   lisbon ▸   ──┐  four of five
//!                                    ├──► permit
//! resync  berlin ▸▸     oslo ▸▸▸   ──┘  one of five
//! ```

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use crate::tenant::id::TenantId;

/// One of this many permits goes to a resync, if both wait.
pub const LOW_PRIORITY_SHARE: u32 = 5;

/// What the work is done for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Something changed, or is due.
    High,
    /// Everything is looked at once more, or a default profile is replaced by a newer one, for no
    /// change of its own.
    Low,
}

/// Permits that all tenants share in equal parts.
#[derive(Clone)]
pub struct Permits(Arc<Mutex<State>>);

/// A permit; it is given back when dropped.
pub struct Permit(Permits);

/// While there is a free permit nobody waits.
struct State {
    free: usize,
    fresh: Lane,
    resync: Lane,
    /// Permits for fresh changes since the last one for a resync.
    fresh_in_a_row: u32,
    next_ticket: u64,
}

/// The waiters of one priority.
#[derive(Default)]
struct Lane {
    /// Whose turn is next. Each tenant that waits stands here once; one whose waiters have all
    /// left is passed over.
    turns: VecDeque<TenantId>,
    /// Who waits, by tenant, in the order of asking.
    waiting: HashMap<TenantId, BTreeMap<u64, oneshot::Sender<Permit>>>,
}

impl Permits {
    /// Creates `count` permits.
    pub fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: count,
            fresh: Lane::default(),
            resync: Lane::default(),
            fresh_in_a_row: 0,
            next_ticket: 0,
        })))
    }

    /// Waits for a permit. Who is dropped while waiting leaves no hole in the queue.
    pub async fn take(&self, tenant: &TenantId, priority: Priority) -> Permit {
        let mut place = {
            let mut state = self.lock();
            if let Some(free) = state.free.checked_sub(1) {
                state.free = free;
                return Permit(self.clone());
            }
            let (ticket, permit) = state.join(tenant, priority);
            Place {
                permits: self.clone(),
                tenant: tenant.clone(),
                priority,
                ticket,
                permit,
            }
        };
        let permit = (&mut place.permit).await;
        permit.expect("a sender is kept until it has sent")
    }

    /// Takes a permit back, and hands it to who is next.
    fn give_back(&self) {
        let next = {
            let mut state = self.lock();
            let next = state.next();
            if next.is_none() {
                state.free += 1;
            }
            next
        };
        if let Some(next) = next {
            // One that has just left does not take it: then it is dropped here, and comes back.
            drop(next.send(Permit(self.clone())));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("permits")
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a permit")
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// A place in the queue; given up when dropped. A permit that was sent meanwhile goes back with
/// the receiver.
struct Place {
    permits: Permits,
    tenant: TenantId,
    priority: Priority,
    ticket: u64,
    permit: oneshot::Receiver<Permit>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.permits.lock();
        state.lane(self.priority).leave(&self.tenant, self.ticket);
    }
}

impl State {
    fn lane(&mut self, priority: Priority) -> &mut Lane {
        match priority {
            Priority::High => &mut self.fresh,
            Priority::Low => &mut self.resync,
        }
    }

    fn join(&mut self, tenant: &TenantId, priority: Priority) -> (u64, oneshot::Receiver<Permit>) {
        let (sender, permit) = oneshot::channel();
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.lane(priority).join(tenant, ticket, sender);
        (ticket, permit)
    }

    /// Who is next, if anybody waits.
    fn next(&mut self) -> Option<oneshot::Sender<Permit>> {
        if self.fresh_in_a_row + 1 < LOW_PRIORITY_SHARE
            && let Some(fresh) = self.fresh.next()
        {
            self.fresh_in_a_row += 1;
            return Some(fresh);
        }
        self.fresh_in_a_row = 0;
        self.resync.next().or_else(|| self.fresh.next())
    }
}

impl Lane {
    fn join(&mut self, tenant: &TenantId, ticket: u64, sender: oneshot::Sender<Permit>) {
        if let Some(waiting) = self.waiting.get_mut(tenant) {
            waiting.insert(ticket, sender);
            return;
        }
        let waiting = BTreeMap::from([(ticket, sender)]);
        self.waiting.insert(tenant.clone(), waiting);
        self.turns.push_back(tenant.clone());
    }

    fn leave(&mut self, tenant: &TenantId, ticket: u64) {
        if let Some(waiting) = self.waiting.get_mut(tenant) {
            waiting.remove(&ticket);
        }
    }

    fn next(&mut self) -> Option<oneshot::Sender<Permit>> {
        while let Some(tenant) = self.turns.pop_front() {
            let waiting = self.waiting.get_mut(&tenant);
            let first = waiting.and_then(|waiting| {
                let (_, first) = waiting.pop_first()?;
                Some((first, waiting.is_empty()))
            });
            match first {
                Some((first, false)) => {
                    self.turns.push_back(tenant);
                    return Some(first);
                }
                Some((first, true)) => {
                    self.waiting.remove(&tenant);
                    return Some(first);
                }
                None => {
                    self.waiting.remove(&tenant);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
