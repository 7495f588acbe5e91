//! The fence: every write is checked as it is sent, behind every queue, and again when its body is
//! sent. A process that was stopped finds the fence closed when it continues. If its virtual
//! machine was paused, it may find the fence open until its next renewal is refused.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use http::Method;

use crate::client::clock::Clock;
use crate::telemetry::metrics;

/// The reason why a write was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fenced {
    /// The replica's Lease may end before the write is answered.
    #[error("not sent: the replica's Lease may end before the answer")]
    Lease,
    /// Another replica may already serve the tenant.
    #[error("not sent: this replica has let go of the tenant")]
    LetGo,
}

impl Fenced {
    /// Returns the label under which this is counted.
    pub const fn reason(self) -> metrics::Fence {
        match self {
            Self::Lease => metrics::Fence::Lease,
            Self::LetGo => metrics::Fence::LetGo,
        }
    }
}

/// The time until which the replica's Lease is valid, shared by all of its fences.
#[derive(Debug)]
struct Validity {
    clock: Clock,
    /// Boot time in milliseconds; 0 while there is no Lease.
    until: AtomicU64,
    /// The longest time that a write may take.
    margin: Duration,
}

/// Lets the writes of one tenant through, or of all of them.
#[derive(Clone, Debug)]
pub struct Fence {
    validity: Arc<Validity>,
    let_go: Arc<AtomicBool>,
}

impl Fence {
    /// Creates a fence that is closed until the Lease is acquired. `margin` is the longest time
    /// that a write may take.
    pub fn closed(clock: Clock, margin: Duration) -> Self {
        Self {
            validity: Arc::new(Validity {
                clock,
                until: AtomicU64::new(0),
                margin,
            }),
            let_go: Arc::default(),
        }
    }

    /// Returns a fence for one tenant. It depends on the same Lease, and can be closed for this
    /// tenant.
    #[must_use]
    pub fn of_tenant(&self) -> Self {
        Self {
            validity: Arc::clone(&self.validity),
            let_go: Arc::default(),
        }
    }

    /// Extends the validity of the Lease to this boot time.
    pub fn extend(&self, until: Duration) {
        let until = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        self.validity.until.store(until, Ordering::Release);
    }

    /// Closes the fence of this tenant permanently. If the tenant comes back, it gets a new fence.
    pub fn let_go(&self) {
        self.let_go.store(true, Ordering::Release);
    }

    /// Checks a request that is about to be sent. Reads always pass.
    ///
    /// # Errors
    ///
    /// The Lease may have ended, so another replica may write.
    pub fn check(&self, method: &Method) -> Result<(), Fenced> {
        if matches!(*method, Method::GET | Method::HEAD) {
            return Ok(());
        }
        if self.let_go.load(Ordering::Acquire) {
            return Err(Fenced::LetGo);
        }
        let until = Duration::from_millis(self.validity.until.load(Ordering::Acquire));
        if self.validity.clock.since_boot() + self.validity.margin > until {
            return Err(Fenced::Lease);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_goes_through_while_the_lease_outlasts_it_and_a_read_always() {
        let clock = Clock::tokio(Timestamp::UNIX_EPOCH);
        let fence = Fence::closed(clock.clone(), Duration::from_secs(10));
        assert_eq!(fence.check(&Method::POST), Err(Fenced::Lease));
        fence.extend(clock.since_boot() + Duration::from_secs(15));
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert_eq!(fence.check(&method), Ok(()));
        }
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(fence.check(&Method::PUT), Ok(()));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(fence.check(&Method::PUT), Err(Fenced::Lease));
        assert_eq!(fence.check(&Method::GET), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_that_was_let_go_is_closed_for_itself() {
        let fence = Fence::closed(Clock::tokio(Timestamp::UNIX_EPOCH), Duration::ZERO);
        fence.extend(Duration::from_mins(1));
        let (berlin, lisbon) = (fence.of_tenant(), fence.of_tenant());
        berlin.let_go();
        assert_eq!(berlin.check(&Method::PATCH), Err(Fenced::LetGo));
        assert_eq!(lisbon.check(&Method::PATCH), Ok(()));
        assert_eq!(fence.check(&Method::PATCH), Ok(()));
    }
}
