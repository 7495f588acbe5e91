//! Permits for work that all tenants share: concurrent reconciles, and requests in the budget of
//! the process.
//!
//! Waiting tenants are served round-robin, and the requests of a tenant in the order of arrival. A
//! tenant that waits a hundred times gets no more permits than one that waits once. A change has
//! priority over a resync, but one permit in [`LOW_PRIORITY_SHARE`] goes to a waiting resync, so
//! that it does not starve.
//!
//! ```text
//! fresh   berlin ▸▸▸▸   lisbon ▸   ──┐  four of five
//!                                    ├──► permit
//! resync  berlin ▸▸     oslo ▸▸▸   ──┘  one of five
//! ```

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fmt,
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::tenant::id::TenantId;

/// One of this many permits goes to a resync, if both wait.
pub const LOW_PRIORITY_SHARE: u32 = 5;

/// The priority of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Something changed, or is due.
    High,
    /// A resync, or the replacement of a default profile by a newer one. Nothing changed in the
    /// worker cluster.
    Low,
}

/// Permits that all tenants share in equal parts.
#[derive(Clone)]
pub struct Permits(Arc<Mutex<State>>);

/// A permit. Dropping it returns it.
pub struct Permit(Permits);

/// The state behind the permits. While a permit is free, no one waits.
struct State {
    free: usize,
    fresh: Lane,
    resync: Lane,
    /// The number of permits for changes since the last one for a resync.
    fresh_in_a_row: u32,
    next_ticket: u64,
}

/// The waiters of one priority.
#[derive(Default)]
struct Lane {
    /// The tenants in the order of their turns. Each waiting tenant is in it once. A tenant whose
    /// waiters have all left is skipped.
    turns: VecDeque<TenantId>,
    /// The waiters by tenant, in the order of arrival.
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

    /// Waits for a permit. A waiter that is dropped leaves the queue.
    pub async fn take(&self, tenant: &TenantId, priority: Priority) -> Permit {
        let mut place = {
            let mut state = self.0.lock();
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

    /// Returns a permit, and passes it to the next waiter.
    fn give_back(&self) {
        let next = {
            let mut state = self.0.lock();
            let next = state.next();
            if next.is_none() {
                state.free += 1;
            }
            next
        };
        if let Some(next) = next {
            // A waiter that has just left does not receive it. The permit is then dropped here, and
            // returned again.
            drop(next.send(Permit(self.clone())));
        }
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

/// A place in the queue. Dropping it leaves the queue. A permit that was sent in the meantime is
/// dropped with the receiver, and so returned.
struct Place {
    permits: Permits,
    tenant: TenantId,
    priority: Priority,
    ticket: u64,
    permit: oneshot::Receiver<Permit>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.permits.0.lock();
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

    /// Returns the next waiter, if any.
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
