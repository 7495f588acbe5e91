//! The resync queue: machine deployments that are reconciled although they did not change
//! themselves, because they were listed or because something changed that concerns many of them.
//!
//! Each of them waits here once. Only a few at a time enter the controller's queue, so that a
//! change finds a free slot of its tenant. A machine deployment that is reconciled meanwhile needs
//! no resync. Retries that take their turn wait here, too.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use futures::{Stream, stream};
use kube::runtime::reflector::ObjectRef;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::backoff::Retry;
use crate::api::machine_deployment::MachineDeployment;
use crate::client::{permits::Priority, tenant_status::TenantStatus};
use crate::tenant::policy::TenantPolicy;

type Reference = ObjectRef<MachineDeployment>;

/// The resyncs of one tenant.
#[derive(Debug)]
pub struct ResyncQueue {
    state: Mutex<State>,
    notify: Notify,
    at_once: usize,
    /// Receives the length of the queue.
    tenant_status: Arc<TenantStatus>,
}

#[derive(Debug, Default)]
struct State {
    /// The machine deployments that wait, in order of arrival.
    queue: BTreeMap<u64, Reference>,
    tickets: HashMap<Reference, u64>,
    next_ticket: u64,
    /// Those that entered the controller's queue, but whose reconcile has not begun.
    let_in: HashSet<Reference>,
    at_work: usize,
    /// The number of running reconciles of any priority.
    under_way: usize,
}

impl ResyncQueue {
    /// Creates the queue of a tenant. The policy limits the number of concurrent resyncs. If the
    /// tenant has more than one reconcile slot, one is always left free.
    pub fn new(policy: &TenantPolicy, tenant_status: Arc<TenantStatus>) -> Self {
        let slots_left = policy.reconciles_max.saturating_sub(1);
        Self {
            state: Mutex::default(),
            notify: Notify::new(),
            at_once: slots_left.min(policy.resyncs_max).max(1),
            tenant_status,
        }
    }

    /// Adds machine deployments, unless they are waiting already.
    pub fn add(&self, references: impl IntoIterator<Item = Reference>) {
        let mut state = self.state.lock();
        for reference in references {
            let is_new = !state.tickets.contains_key(&reference);
            if is_new && !state.let_in.contains(&reference) {
                let ticket = state.next_ticket;
                state.next_ticket += 1;
                state.queue.insert(ticket, reference.clone());
                state.tickets.insert(reference, ticket);
            }
        }
        self.publish(state);
        self.notify.notify_one();
    }

    /// Returns an endless stream of the machine deployments to reconcile, each when there is room.
    pub fn stream(self: Arc<Self>) -> impl Stream<Item = Reference> + Send {
        stream::unfold(self, |resync| async move {
            loop {
                if let Some(next) = resync.let_one_in() {
                    return Some((next, resync));
                }
                resync.notify.notified().await;
            }
        })
    }

    /// Removes a machine deployment, because a change of it is about to be reconciled.
    pub fn changed(&self, reference: &Reference) {
        let mut state = self.state.lock();
        state.forget(reference);
        let made_room = state.let_in.remove(reference);
        self.publish(state);
        if made_room {
            self.notify.notify_one();
        }
    }

    /// Removes a machine deployment that was deleted before its reconcile began.
    pub fn gone(&self, name: &str, namespace: Option<&str>) {
        let reference = ObjectRef::new(name);
        self.changed(&match namespace {
            Some(namespace) => reference.within(namespace),
            None => reference,
        });
    }

    /// Begins a reconcile, which lasts until the guard is dropped. A resync has low priority.
    /// Returns `None` if it is a retry that has to wait here first.
    pub fn begin(self: &Arc<Self>, reference: &Reference, retry: Retry) -> Option<AtWork> {
        let mut state = self.state.lock();
        let is_let_in = state.let_in.remove(reference);
        if retry == Retry::InTurn && !is_let_in {
            drop(state);
            self.add([reference.clone()]);
            return None;
        }
        state.forget(reference);
        state.under_way += 1;
        let priority = if is_let_in {
            state.at_work += 1;
            Priority::Low
        } else {
            Priority::High
        };
        self.publish(state);
        Some(AtWork {
            resync: Arc::clone(self),
            priority,
        })
    }

    fn let_one_in(&self) -> Option<Reference> {
        let mut state = self.state.lock();
        if state.let_in.len() + state.at_work >= self.at_once {
            return None;
        }
        let (_, reference) = state.queue.pop_first()?;
        state.tickets.remove(&reference);
        state.let_in.insert(reference.clone());
        Some(reference)
    }

    /// Records the length of the queue in the tenant's statistics, and releases the lock.
    fn publish(&self, state: MutexGuard<'_, State>) {
        let waiting = state.queue.len() + state.let_in.len();
        self.tenant_status
            .statistics
            .queue(waiting, state.under_way);
        drop(state);
    }
}

/// A tenant that is no longer served has no queue.
impl Drop for ResyncQueue {
    fn drop(&mut self) {
        self.tenant_status.statistics.queue(0, 0);
    }
}

impl State {
    fn forget(&mut self, reference: &Reference) {
        if let Some(ticket) = self.tickets.remove(reference) {
            self.queue.remove(&ticket);
        }
    }
}

/// The guard of a running reconcile.
#[derive(Debug)]
pub struct AtWork {
    resync: Arc<ResyncQueue>,
    priority: Priority,
}

impl AtWork {
    /// Returns the priority of the reconcile.
    pub const fn priority(&self) -> Priority {
        self.priority
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut state = self.resync.state.lock();
        state.under_way = state.under_way.saturating_sub(1);
        if self.priority == Priority::Low {
            state.at_work = state.at_work.saturating_sub(1);
        }
        self.resync.publish(state);
        if self.priority == Priority::Low {
            self.resync.notify.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    fn a_policy(reconciles_max: usize) -> TenantPolicy {
        TenantPolicy {
            reconciles_max,
            ..TenantPolicy::default()
        }
    }

    fn reference(name: &str) -> Reference {
        ObjectRef::new(name).within("kube-system")
    }

    fn names(resync: &ResyncQueue) -> Vec<String> {
        std::iter::from_fn(|| resync.let_one_in())
            .map(|let_in| let_in.name)
            .collect()
    }

    fn begin(resyncs: &Arc<ResyncQueue>, name: &str) -> AtWork {
        let at_work = resyncs.begin(&reference(name), Retry::WhenDue);
        at_work.expect("it does not wait")
    }

    #[test]
    fn resyncs_leave_a_slot_of_the_tenant_free_and_follow_one_another() {
        let resyncs = Arc::new(ResyncQueue::new(&a_policy(4), Arc::default()));
        resyncs.add(["a", "b", "c", "d", "e"].map(reference));
        assert_eq!(names(&resyncs), ["a", "b", "c"]);
        let at_work = begin(&resyncs, "b");
        assert_eq!(at_work.priority(), Priority::Low);
        assert_eq!(names(&resyncs), [""; 0]);
        drop(at_work);
        assert_eq!(names(&resyncs), ["d"]);
        let one_slot = ResyncQueue::new(&a_policy(1), Arc::default());
        one_slot.add([reference("a")]);
        assert_eq!(names(&one_slot), ["a"]);
    }

    #[test]
    fn resyncs_of_one_machine_deployment_are_merged_with_each_other_and_with_its_changes() {
        let resyncs = Arc::new(ResyncQueue::new(&a_policy(2), Arc::default()));
        for _ in 0..1_000 {
            resyncs.add(["a", "b", "c"].map(reference));
        }
        assert_eq!(names(&resyncs), ["a"]);
        resyncs.add([reference("a")]);
        assert_eq!(
            resyncs.state.lock().queue.len(),
            2,
            "a is on its way already"
        );
        // A change removes one that waits, and frees the room of one that was let in.
        resyncs.changed(&reference("b"));
        resyncs.changed(&reference("a"));
        assert_eq!(begin(&resyncs, "a").priority(), Priority::High);
        assert_eq!(names(&resyncs), ["c"]);
        // A reconcile for another reason replaces the resync.
        drop(begin(&resyncs, "c"));
        resyncs.add([reference("d")]);
        assert_eq!(begin(&resyncs, "d").priority(), Priority::High);
        assert_eq!(names(&resyncs), [""; 0]);
        // A change while work is under way is followed by a resync.
        let at_work = begin(&resyncs, "e");
        resyncs.add([reference("e")]);
        drop(at_work);
        assert_eq!(names(&resyncs), ["e"]);
    }

    #[test]
    fn a_retry_in_turn_comes_after_those_that_wait_already() {
        let resyncs = Arc::new(ResyncQueue::new(&a_policy(2), Arc::default()));
        let retry = |name| resyncs.begin(&reference(name), Retry::InTurn);
        resyncs.add(["a", "b"].map(reference));
        assert!(retry("c").is_none());
        // This one waits already, and keeps its place.
        assert!(retry("b").is_none());
        for next in ["a", "b", "c"] {
            assert_eq!(names(&resyncs), [next]);
            assert_eq!(retry(next).unwrap().priority(), Priority::Low);
        }
        assert_eq!(names(&resyncs), [""; 0]);
    }

    #[test]
    fn the_length_of_the_queue_is_reported_until_nobody_is_served() {
        let tenant_status = Arc::<TenantStatus>::default();
        let queue_lengths = || {
            let queue = tenant_status.statistics.read().queue;
            (queue.waiting, queue.under_way)
        };
        let resyncs = Arc::new(ResyncQueue::new(&a_policy(2), Arc::clone(&tenant_status)));
        resyncs.add(["a", "b", "c"].map(reference));
        assert_eq!(names(&resyncs), ["a"]);
        assert_eq!(queue_lengths(), (3, 0));
        let resync = begin(&resyncs, "a");
        let fresh = begin(&resyncs, "d");
        assert_eq!(queue_lengths(), (2, 2));
        resyncs.changed(&reference("b"));
        drop(fresh);
        assert_eq!(queue_lengths(), (1, 1));
        drop((resync, resyncs));
        assert_eq!(queue_lengths(), (0, 0));
    }

    #[tokio::test]
    async fn the_stream_goes_on_when_there_is_room() {
        let resyncs = Arc::new(ResyncQueue::new(&a_policy(1), Arc::default()));
        let mut stream = Box::pin(Arc::clone(&resyncs).stream());
        resyncs.add(["a", "b"].map(reference));
        assert_eq!(stream.next().await.map(|next| next.name), Some("a".into()));
        let mut next = stream.next();
        assert!(futures::poll!(&mut next).is_pending());
        drop(begin(&resyncs, "a"));
        assert_eq!(next.await.map(|next| next.name), Some("b".into()));
    }
}
