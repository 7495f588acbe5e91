//! Tests of the order in which permits are granted.

use std::{collections::HashMap, time::Duration};

use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use crate::client::permits::*;

const NAMES: [&str; 3] = ["berlin", "lisbon", "oslo"];

/// Requests permits in this order while the only permit is taken, and records the order in which
/// they were granted.
struct Queue {
    permits: Permits,
    held: Permit,
    tasks: JoinSet<()>,
    served: mpsc::UnboundedReceiver<(&'static str, usize)>,
    reported: mpsc::UnboundedSender<(&'static str, usize)>,
}

impl Queue {
    async fn new() -> Self {
        let permits = Permits::new(1);
        let (reported, served) = mpsc::unbounded_channel();
        Self {
            held: permits.take(&TenantId::new("holder"), Priority::High).await,
            permits,
            tasks: JoinSet::new(),
            served,
            reported,
        }
    }

    /// Returns once the request is in the queue.
    async fn ask(&mut self, name: &'static str, index: usize, priority: Priority) {
        let (permits, reported) = (self.permits.clone(), self.reported.clone());
        self.tasks.spawn(async move {
            let _permit = permits.take(&TenantId::new(name), priority).await;
            reported.send((name, index)).unwrap();
        });
        tokio::task::yield_now().await;
    }

    async fn order(mut self) -> Vec<(&'static str, usize)> {
        drop(self.held);
        self.tasks.join_all().await;
        drop(self.reported);
        let mut order = Vec::new();
        while let Some(served) = self.served.recv().await {
            order.push(served);
        }
        assert_eq!(self.permits.0.lock().free, 1, "every permit came back");
        order
    }
}

#[tokio::test]
async fn tenants_that_wait_are_served_in_a_circle_and_in_order_within_each() {
    let mut queue = Queue::new().await;
    for index in 0..100 {
        queue.ask("berlin", index, Priority::High).await;
    }
    for index in 0..3 {
        queue.ask("lisbon", index, Priority::High).await;
        queue.ask("oslo", index, Priority::High).await;
    }
    let order = queue.order().await;
    for round in 0..3 {
        for (place, name) in NAMES.into_iter().enumerate() {
            assert_eq!(order[round * 3 + place], (name, round));
        }
    }
    let rest: Vec<usize> = order[9..].iter().map(|(_, index)| *index).collect();
    assert_eq!(rest, (3..100).collect::<Vec<_>>());
}

/// Returns how long each piece of work of sixteen quiet tenants took, sorted, while another tenant
/// requests a multiple of that. Each piece takes 20 ms of one of two permits, and all are requested
/// at once.
async fn latencies(load: usize) -> Vec<Duration> {
    let permits = Permits::new(2);
    let mut took = Vec::new();
    for _ in 0..6 {
        let mut tasks = JoinSet::new();
        for index in 0..load + 16 {
            let quiet = index.checked_sub(load);
            let name = quiet.map_or("noisy".to_owned(), |quiet| format!("quiet-{quiet}"));
            let (permits, tenant) = (permits.clone(), TenantId::new(&name));
            tasks.spawn(async move {
                let asked = Instant::now();
                let _permit = permits.take(&tenant, Priority::High).await;
                tokio::time::sleep(Duration::from_millis(20)).await;
                quiet.map(|_| asked.elapsed())
            });
        }
        took.extend(tasks.join_all().await.into_iter().flatten());
    }
    took.sort();
    took
}

#[tokio::test(start_paused = true)]
async fn a_hundredfold_load_leaves_the_p99_of_others() {
    let p99 = |sorted: &[Duration]| sorted[sorted.len() * 99 / 100];
    let (alone, beside) = (p99(&latencies(1).await), p99(&latencies(100).await));
    assert!(alone > Duration::from_millis(100), "it is not short");
    assert!(beside <= alone.mul_f64(1.25), "{beside:?}, {alone:?} alone");
}

#[tokio::test]
async fn resyncs_yield_to_fresh_changes_and_have_one_permit_in_five() {
    let mut queue = Queue::new().await;
    for index in 0..10 {
        queue.ask("berlin", index, Priority::Low).await;
    }
    for index in 10..30 {
        queue.ask("lisbon", index, Priority::High).await;
    }
    let order = queue.order().await;
    let resync: Vec<usize> = order[..25]
        .iter()
        .enumerate()
        .filter_map(|(place, (name, _))| (*name == "berlin").then_some(place))
        .collect();
    assert_eq!(resync, [4, 9, 14, 19, 24]);
    assert_eq!(order.len(), 30);
}

#[tokio::test]
async fn who_leaves_while_waiting_leaves_no_hole() {
    let permits = Permits::new(1);
    let [berlin, lisbon, _] = NAMES.map(TenantId::new);
    let held = permits.take(&berlin, Priority::High).await;
    for _ in 0..1_000 {
        let waits = permits.take(&lisbon, Priority::High);
        assert!(futures::poll!(std::pin::pin!(waits)).is_pending());
    }
    {
        let state = permits.0.lock();
        assert_eq!(state.fresh.turns.len(), 1);
        let waiting: usize = state.fresh.waiting.values().map(BTreeMap::len).sum();
        assert_eq!(waiting, 0);
    }
    let stays = permits.take(&berlin, Priority::High);
    let mut stays = std::pin::pin!(stays);
    assert!(futures::poll!(&mut stays).is_pending());
    drop(held);
    let next = stays.await;
    drop(next);
    assert_eq!(permits.0.lock().free, 1);
}

#[tokio::test]
async fn a_permit_that_nobody_fetches_any_more_goes_to_the_next() {
    let permits = Permits::new(1);
    let [berlin, lisbon, oslo] = NAMES.map(TenantId::new);
    let held = permits.take(&berlin, Priority::High).await;
    let mut leaves = Box::pin(permits.take(&lisbon, Priority::High));
    let mut stays = Box::pin(permits.take(&oslo, Priority::High));
    assert!(futures::poll!(&mut leaves).is_pending());
    assert!(futures::poll!(&mut stays).is_pending());
    drop(held);
    // Its permit was sent, and it is dropped without having received it.
    drop(leaves);
    drop(stays.await);
    assert_eq!(permits.0.lock().free, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_much_coming_and_going_no_permit_is_lost() {
    let permits = Permits::new(3);
    let mut tasks = JoinSet::new();
    for index in 0..300_usize {
        let permits = permits.clone();
        let tenant = TenantId::new(NAMES[index % 3]);
        let priority = [Priority::High, Priority::Low][index % 2];
        tasks.spawn(async move {
            for turn in 0..20 {
                let take = permits.take(&tenant, priority);
                if (index + turn) % 4 == 0 {
                    let _ = futures::poll!(std::pin::pin!(take));
                } else {
                    let _permit = take.await;
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    tasks.join_all().await;
    let state = permits.0.lock();
    assert_eq!(state.free, 3);
    let left = [&state.fresh, &state.resync].map(|lane| lane.waiting.len());
    assert_eq!(left, [0, 0]);
    let _: &HashMap<_, _> = &state.fresh.waiting;
}
