//! A budget of requests: so many a second, so many at once, first come, first served.
//!
//! Each tenant has two: one for its worker cluster, one for its share of the management API. Time
//! is tokio's, so that a test with a paused clock sees exact delays.

use std::{num::NonZeroU32, time::Duration};

use governor::{
    RateLimiter,
    clock::Clock as GovernorClock,
    middleware::NoOpMiddleware,
    nanos::Nanos,
    state::{InMemoryState, NotKeyed},
};
use tokio::{sync::Mutex, time::Instant};

use crate::tenant::policy::RequestBudget;

/// tokio's time as governor wants it.
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

/// A budget of requests.
#[derive(Debug)]
pub struct Budget {
    limiter: RateLimiter<NotKeyed, InMemoryState, TokioClock, NoOpMiddleware<Nanos>>,
    clock: TokioClock,
    /// Holding this while waiting makes the budget first come, first served.
    queue: Mutex<()>,
}

/// Marks a request whose budget was taken beforehand.
#[derive(Clone, Copy, Debug)]
pub struct Prepaid;

impl Budget {
    /// A full budget.
    pub fn new(size: RequestBudget) -> Self {
        let clock = TokioClock {
            start: Instant::now(),
        };
        let quota = governor::Quota::per_second(size.per_second).allow_burst(size.burst);
        Self {
            limiter: RateLimiter::direct_with_clock(quota, clock.clone()),
            clock,
            queue: Mutex::new(()),
        }
    }

    /// Waits until `requests` fit into the budget, takes them, and tells how long that took.
    ///
    /// More than the burst never fit: they are let through, and callers ask for two at most.
    pub async fn take(&self, requests: NonZeroU32) -> Duration {
        let asked = Instant::now();
        let _first_come_first_served = self.queue.lock().await;
        while let Ok(Err(not_yet)) = self.limiter.check_n(requests) {
            tokio::time::sleep(not_yet.wait_time_from(self.clock.now())).await;
        }
        asked.elapsed()
    }
}
