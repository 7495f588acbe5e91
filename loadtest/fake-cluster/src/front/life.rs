//! The life of one client process, as its front sees it. After its death nothing is answered and
//! nothing is executed any more, while the cluster lives on.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::{fault::Matcher, request::Call};

#[derive(Debug)]
struct Plan {
    matcher: Matcher,
    calls_left: u64,
}

#[derive(Debug)]
pub(crate) struct Life {
    plan: Mutex<Option<Plan>>,
    calls: Mutex<u64>,
    dead: watch::Sender<bool>,
}

/// What a call means for the life of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Goes,
    /// The call is executed, and its answer never arrives.
    DiesAfter,
    Dead,
}

impl Life {
    pub(crate) fn new() -> Self {
        Self {
            plan: Mutex::new(None),
            calls: Mutex::new(0),
            dead: watch::Sender::new(false),
        }
    }

    pub(crate) fn die_after(&self, calls: u64, matcher: Matcher) {
        if calls == 0 {
            self.die();
            return;
        }
        let plan = Plan {
            matcher,
            calls_left: calls,
        };
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = Some(plan);
    }

    pub(crate) fn die(&self) {
        self.dead.send_replace(true);
    }

    pub(crate) fn is_dead(&self) -> bool {
        *self.dead.borrow()
    }

    pub(crate) fn dead(&self) -> watch::Receiver<bool> {
        self.dead.subscribe()
    }

    pub(crate) fn calls(&self) -> u64 {
        *self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call.
    pub(crate) fn meet(&self, call: &Call, user: &str) -> Fate {
        if self.is_dead() {
            return Fate::Dead;
        }
        *self.calls.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(plan) = plan.as_mut() else {
            return Fate::Goes;
        };
        let counts = plan.matcher.fits(call.verb, &call.target, user) && !call.target.is_review();
        if !counts || plan.calls_left == 0 {
            return Fate::Goes;
        }
        plan.calls_left -= 1;
        if plan.calls_left == 0 {
            Fate::DiesAfter
        } else {
            Fate::Goes
        }
    }
}
