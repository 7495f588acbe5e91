//! A budget of requests: a rate and a burst, first come, first served.
//!
//! Each tenant has two: one for its worker cluster, and one for its share of the management API.
//! All tenants share a third one for the management API, round-robin. Time is tokio's, so that
//! tests with a paused clock see exact delays.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use governor::{
    RateLimiter,
    clock::Clock as GovernorClock,
    middleware::NoOpMiddleware,
    nanos::Nanos,
    state::{InMemoryState, NotKeyed},
};
use tokio::{sync::Mutex, time::Instant};

use crate::client::permits::{Permit, Permits, Priority};
use crate::tenant::{id::TenantId, policy::RequestBudget};

/// tokio's time in the form that governor requires.
#[derive(Clone, Debug)]
struct TokioClock {
    start: Instant,
}

impl GovernorClock for TokioClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::from(self.start.elapsed())
    }
}

type Limiter = RateLimiter<NotKeyed, InMemoryState, TokioClock, NoOpMiddleware<Nanos>>;

/// A budget of requests.
#[derive(Debug)]
pub struct Budget {
    bucket: parking_lot::Mutex<(RequestBudget, Arc<Limiter>)>,
    clock: TokioClock,
    /// Holding this while waiting makes the budget first come, first served.
    queue: Mutex<()>,
}

/// Marks a request whose budget was taken beforehand.
#[derive(Clone, Copy, Debug)]
pub struct Prepaid;

impl Budget {
    /// Creates a full budget.
    pub fn new(size: RequestBudget) -> Self {
        let clock = TokioClock {
            start: Instant::now(),
        };
        Self {
            bucket: parking_lot::Mutex::new((size, bucket(size, &clock))),
            clock,
            queue: Mutex::new(()),
        }
    }

    /// Changes the size. The bucket is then full. The same size changes nothing.
    pub fn resize(&self, size: RequestBudget) {
        let mut known = self.bucket.lock();
        if known.0 != size {
            *known = (size, bucket(size, &self.clock));
        }
    }

    fn limiter(&self) -> Arc<Limiter> {
        let known = self.bucket.lock();
        Arc::clone(&known.1)
    }

    /// Waits until `requests` fit into the budget, takes them, and returns how long the budget made
    /// the caller wait: zero if they fit, however busy the runtime is.
    ///
    /// More requests than the burst never fit, and are let through. Callers take at most two.
    pub async fn take(&self, requests: NonZeroU32) -> Duration {
        if let Ok(_nobody_waits) = self.queue.try_lock()
            && !matches!(self.limiter().check_n(requests), Ok(Err(_)))
        {
            return Duration::ZERO;
        }
        let asked = Instant::now();
        let _first_come_first_served = self.queue.lock().await;
        while let Ok(Err(not_yet)) = self.limiter().check_n(requests) {
            tokio::time::sleep(not_yet.wait_time_from(self.clock.now())).await;
        }
        asked.elapsed()
    }
}

/// Creates a full bucket of this size.
fn bucket(size: RequestBudget, clock: &TokioClock) -> Arc<Limiter> {
    let quota = governor::Quota::per_second(size.per_second).allow_burst(size.burst);
    Arc::new(RateLimiter::direct_with_clock(quota, clock.clone()))
}

/// A budget that all tenants share. If it is short, tenants are served round-robin: a tenant with a
/// thousand waiting requests gets no more of it than a tenant with one. Requests of low priority
/// yield to the changes of all tenants, and get a fifth of the budget while changes are waiting.
///
/// The number of requests in flight is limited, too. If the API server is slow, requests wait here,
/// where they have priorities, and not there.
#[derive(Debug)]
pub struct SharedBudget {
    turn: Permits,
    budget: Budget,
    under_way: Permits,
}

/// The number of requests in flight: at least 16, and otherwise an eighth of the budget per second.
/// If the API server answers within an eighth of a second, no request waits.
const UNDER_WAY_MIN: usize = 16;
const UNDER_WAY_PARTS: usize = 8;

impl SharedBudget {
    /// Creates a full budget.
    pub fn new(size: RequestBudget) -> Self {
        let per_second = usize::try_from(size.per_second.get()).unwrap_or(usize::MAX);
        let under_way = (per_second / UNDER_WAY_PARTS).max(UNDER_WAY_MIN);
        Self {
            turn: Permits::new(1),
            budget: Budget::new(size),
            under_way: Permits::new(under_way),
        }
    }

    /// Waits until a request of the tenant fits into the budget, takes it, and returns how long
    /// that took.
    pub async fn take(&self, tenant: &TenantId, priority: Priority) -> Duration {
        let asked = Instant::now();
        let _turn = self.turn.take(tenant, priority).await;
        self.budget.take(NonZeroU32::MIN).await;
        asked.elapsed()
    }

    /// Waits until a request of the tenant may be in flight. Drop the permit when it is answered.
    pub async fn enter(&self, tenant: &TenantId, priority: Priority) -> Permit {
        self.under_way.take(tenant, priority).await
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::coop;

    use super::*;

    fn a_size(per_second: u32, burst: u32) -> RequestBudget {
        let count = |count| NonZeroU32::new(count).unwrap();
        RequestBudget {
            per_second: count(per_second),
            burst: count(burst),
        }
    }

    fn a_budget(per_second: u32, burst: u32) -> Budget {
        Budget::new(a_size(per_second, burst))
    }

    const ONE: NonZeroU32 = NonZeroU32::MIN;
    const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

    /// tokio's timers have a resolution of one millisecond.
    fn is_about(found: Duration, expected: Duration) -> bool {
        found >= expected && found <= expected + Duration::from_millis(1)
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_free_and_then_the_rate_counts() {
        let budget = a_budget(10, 3);
        for _ in 0..3 {
            assert_eq!(budget.take(ONE).await, Duration::ZERO);
        }
        for _ in 0..5 {
            let waited = budget.take(ONE).await;
            assert!(is_about(waited, Duration::from_millis(99)), "{waited:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_runtime_is_no_wait_for_the_budget() {
        let budget = a_budget(10, 3);
        // A task that has used up its share of the runtime yields at its next lock.
        while coop::has_budget_remaining() {
            coop::consume_budget().await;
        }
        let later = tokio::time::advance(Duration::from_secs(1));
        let (waited, ()) = futures::join!(budget.take(ONE), later);
        assert_eq!(waited, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_fills_the_budget_up_to_its_burst() {
        let budget = a_budget(10, 3);
        tokio::time::sleep(Duration::from_hours(1)).await;
        for _ in 0..3 {
            assert_eq!(budget.take(ONE).await, Duration::ZERO);
        }
        assert!(budget.take(ONE).await > Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn two_are_taken_together_or_not_at_all() {
        let budget = a_budget(10, 2);
        assert_eq!(budget.take(ONE).await, Duration::ZERO);
        let waited = budget.take(TWO).await;
        assert!(is_about(waited, Duration::from_millis(100)), "{waited:?}");
        let waited = budget.take(TWO).await;
        assert!(is_about(waited, Duration::from_millis(199)), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_first_is_served_first_also_for_two() {
        let budget = Arc::new(a_budget(10, 2));
        budget.take(TWO).await;
        let (sender, mut served) = tokio::sync::mpsc::unbounded_channel();
        let mut tasks = tokio::task::JoinSet::new();
        for index in 0..9 {
            let (budget, sender) = (Arc::clone(&budget), sender.clone());
            tasks.spawn(async move {
                budget.take(if index % 3 == 0 { TWO } else { ONE }).await;
                sender.send(index).unwrap();
            });
            tokio::task::yield_now().await;
        }
        tasks.join_all().await;
        drop(sender);
        let mut order = Vec::new();
        while let Some(index) = served.recv().await {
            order.push(index);
        }
        assert_eq!(order, (0..9).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn another_size_holds_from_now_on_and_the_same_size_buys_nothing() {
        let budget = a_budget(1, 1);
        budget.take(ONE).await;
        budget.resize(a_size(1, 1));
        assert!(is_about(budget.take(ONE).await, Duration::from_secs(1)));
        budget.resize(a_size(10, 2));
        assert_eq!(budget.take(TWO).await, Duration::ZERO);
        assert!(is_about(budget.take(ONE).await, Duration::from_millis(100)));
    }

    #[tokio::test(start_paused = true)]
    async fn one_budget_knows_nothing_of_another() {
        let (busy, quiet) = (a_budget(1, 2), a_budget(1, 2));
        for _ in 0..5 {
            busy.take(ONE).await;
        }
        assert_eq!(quiet.take(TWO).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn tenants_take_turns_at_the_budget_that_they_share() {
        let size = a_size(10, 1);
        let shared = Arc::new(SharedBudget::new(size));
        let [busy, quiet] = ["busy", "quiet"].map(TenantId::new);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..1_000 {
            let (shared, busy) = (Arc::clone(&shared), busy.clone());
            tasks.spawn(async move { shared.take(&busy, Priority::High).await });
        }
        tokio::task::yield_now().await;
        for _ in 0..20 {
            // It waits behind the request that waits for time, and behind the next in turn.
            let waited = shared.take(&quiet, Priority::High).await;
            assert!(waited <= Duration::from_millis(303), "{waited:?}");
        }
        tasks.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_does_not_wait_for_what_others_do_for_no_change_of_their_own() {
        let shared = Arc::new(SharedBudget::new(a_size(10, 1)));
        let mut resyncs = tokio::task::JoinSet::new();
        for index in 0..1_000 {
            let (shared, other) = (
                Arc::clone(&shared),
                TenantId::new(&format!("other-{index}")),
            );
            resyncs.spawn(async move { shared.take(&other, Priority::Low).await });
        }
        tokio::task::yield_now().await;
        let own = TenantId::new("own");
        let begun = Instant::now();
        for _ in 0..20 {
            // It waits behind the request that waits for time, and sometimes behind the next in
            // turn.
            let waited = shared.take(&own, Priority::High).await;
            assert!(waited <= Duration::from_millis(303), "{waited:?}");
        }
        // The resyncs got their share in the meantime, and no more than the changes left them.
        let mut served = 0;
        while resyncs.try_join_next().is_some() {
            served += 1;
        }
        let all = begun.elapsed().as_millis() / 100;
        assert!(served >= 4, "{served} of {all}");
        resyncs.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_api_server_has_not_answered_yet_is_bounded_and_changes_go_first() {
        let shared = Arc::new(SharedBudget::new(a_size(1_000, 1_000)));
        let mut unanswered = Vec::new();
        for index in 0..125 {
            let tenant = TenantId::new(&format!("other-{index}"));
            unanswered.push(shared.enter(&tenant, Priority::Low).await);
        }
        let [other, own] = ["other", "own"].map(TenantId::new);
        let mut resync = Box::pin(shared.enter(&other, Priority::Low));
        assert!(futures::poll!(&mut resync).is_pending());
        let mut change = Box::pin(shared.enter(&own, Priority::High));
        assert!(futures::poll!(&mut change).is_pending());
        unanswered.pop();
        assert!(futures::poll!(&mut resync).is_pending());
        drop(change.await);
        drop(resync.await);
    }
}
