//! How many of its tenants a command has handled.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many of its tenants a command has handled, for who shows it meanwhile.
#[derive(Debug, Default)]
pub struct Count {
    done: AtomicUsize,
    all: AtomicUsize,
}

impl Count {
    /// Records how many there are.
    pub fn begin(&self, all: usize) {
        self.all.store(all, Ordering::Relaxed);
    }

    /// Records that one more is done.
    pub fn advance(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many are done, and how many there are. The latter is 0 until that is known.
    pub fn read(&self) -> (usize, usize) {
        let read = |number: &AtomicUsize| number.load(Ordering::Relaxed);
        (read(&self.done), read(&self.all))
    }
}
